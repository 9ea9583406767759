"""What a leader says of its partitions, and from when on it counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from rtolap.cubes.receiver.closing_rules import Takeover
from rtolap.cubes.receiver.host_reports import WatermarkReports
from rtolap.cubes.receiver.hosts.batch_progress import HostProgressBatch
from rtolap.cubes.receiver.hosts.host_progress import HostProgress
from rtolap.model.application import CubeWatermark

from tests.support.twins.clock import ManualClock
from tests.support.watermarks.recorded_reports import RecordedReports

GENERATION = 7


class Views:
    def __init__(self) -> None:
        self.takeover: Takeover | None = None

    def generation(self, control: object) -> int | None:
        return GENERATION

    def offer_takeover(self, takeover: Takeover | None) -> None:
        self.takeover = takeover


class World:
    """A leader of partitions 0 and 1, without a receiver around it."""

    def __init__(self, watermark_records: str | None) -> None:
        self.hosts, self.client, self.views = HostProgress(), RecordedReports(input_ms=50), Views()
        core: Any = SimpleNamespace(
            schema=SimpleNamespace(
                table=SimpleNamespace(watermark_records=watermark_records),
                cube=SimpleNamespace(name="c"),
            ),
            control=SimpleNamespace(assignment={"rs": (0, 1)}),
            state=SimpleNamespace(positions={0: 0, 1: 0}),
            progress=SimpleNamespace(hosts=self.hosts, log_ends={}, log_ends_requested_s=-1.0),
        )
        self.reports = WatermarkReports(
            CubeWatermark("app", "source", "sink"),
            core,
            views=self.views,
            clock=ManualClock(),
            ask=lambda what: what(),
            coordinators=lambda: ["http://here"],
            open_client=lambda urls: self.client,
        )

    def read(self, partition: int, host: str, latest_ms: int) -> None:
        row = (np.array([one], np.int64) for one in (partition, latest_ms, 1, 0))
        self.hosts.took(HostProgressBatch(pa.array([host]), *row))


def test_a_partition_without_a_host_is_said_to_be_read() -> None:
    world = World(None)
    world.read(0, "h", 60)
    world.reports.turn()
    assert world.client.progress == {0: {"h": 60}, 1: {}}
    assert world.views.takeover is not None


def test_a_partition_in_which_no_producer_has_stated_anything_is_awaited() -> None:
    world = World("header")
    world.read(0, "store-0", 60)
    world.reports.turn()
    world.reports.turn()
    assert world.client.progress == {0: {"store-0": 60}}
    assert world.views.takeover is None, "nothing closes by the application before"
    world.read(1, "store-0", 55)
    world.reports.turn()
    assert world.client.progress == {0: {"store-0": 60}, 1: {"store-0": 55}}
    assert world.views.takeover == Takeover(GENERATION, frozenset({0, 1}), 50, None)

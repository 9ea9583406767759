"""A coordinator on memory stores, with a topic catalogue that tests write."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import httpx
from fastapi import FastAPI
from fastapi.testclient import TestClient
from rtolap.base.errors import NotFound
from rtolap.coordinator.applications.host_lists import ListPlaces
from rtolap.coordinator.assembly import Coordinator
from rtolap.coordinator.server import build_app
from rtolap.cubes.format.manifest import MANIFEST_NAME, HistoryManifest, StagedManifest, encode
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.members.places import PlacementPolicy
from rtolap.metadata.records import ReceiverRecord, SegmentRecord
from rtolap.model.offsets import Offsets, PartRange
from rtolap.model.segment import SegmentRange, StagedPart
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import (
    Alteration,
    AlterRequest,
    CubeReport,
    HeartbeatRequest,
    PartitionReport,
)
from rtolap.servers.limits import HttpLimits

from tests.support.cubes.builders import spec_losses
from tests.support.cubes.metadata_contract import eventually
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

TOKEN = "a-token-of-the-tests"
HOUR_MS = 3_600_000
URL = "http://127.0.0.1:1"  # nobody listens there

TABLE: dict[str, Any] = {
    "name": "clicks",
    "topic": "clicks",
    "columns": [
        {"name": "at", "type": "bigint"},
        {"name": "page", "type": "string"},
        {"name": "price", "type": "decimal(10,2)"},
    ],
    "time": {"column": "at"},
}
CUBE: dict[str, Any] = {
    "name": "clicks_by_page",
    "table": "clicks",
    "dimensions": ["page"],
    "measures": [{"function": "count"}, {"function": "sum", "column": "price"}],
    "segment": {"window_ms": HOUR_MS},
    "retention": {"after_ms": 10 * HOUR_MS},
}
NAME = "clicks_by_page"
READ_ALL = 10**9  # an offset beyond all logs of the tests


class MemoryTopics:
    """topic → partition → (log start, log end)"""

    def __init__(self) -> None:
        self.logs: dict[str, dict[int, tuple[int, int]]] = {}
        self.ids: dict[str, str] = {}

    def partitions(self, topic: str) -> list[int]:
        if topic not in self.logs:
            raise NotFound(f"topic {topic} does not exist")
        return sorted(self.logs[topic])

    def topic_id(self, topic: str) -> str:
        self.partitions(topic)
        return self.ids.get(topic, "id-1")

    def offsets(self, topic: str, which: str) -> Offsets:
        self.partitions(topic)
        return {p: log[0 if which == "earliest" else 1] for p, log in self.logs[topic].items()}


class _Present:
    """Stands for the coordinator of the test that runs: making an app takes longer than most tests."""

    coordinator: Coordinator

    def __getattr__(self, name: str) -> Any:
        return getattr(self.coordinator, name)


_PRESENT = _Present()


@functools.cache
def _app() -> FastAPI:
    return build_app(cast(Coordinator, _PRESENT), TOKEN, HttpLimits())


class Cluster:
    """A coordinator that leads, and what receivers and Spark would do, by hand."""

    def __init__(
        self,
        folder: Path,
        *,
        building_max: int = 10,
        placement: PlacementPolicy = "warn",
        lost_after_s: float = 0.0,
    ) -> None:
        self.peers: dict[str, httpx.BaseTransport] = {}  # by address: other coordinators
        self.clock = ManualClock(1_000_000_000_000)
        self.ensemble = MemoryEnsemble()
        self.store = MemoryStore(self.ensemble)
        self.topics = MemoryTopics()
        self.topics.logs["clicks"] = {p: (10 * p, 1000) for p in range(4)}
        self.uri = f"file://{folder}"
        self.files: ObjectStore = open_store(self.uri)
        self.files.claim()
        self.metadata = ClusterMetadata(self.store, self.clock, self.files)
        self.coordinator = Coordinator(
            self.metadata,
            lambda cluster: self.topics,
            object_store_uri=self.uri,
            url=URL,
            open_client=self.open_client,
            list_places=ListPlaces((folder,), ("127.0.0.1", "lists.example.org:8080")),
            building_max=building_max,
            placement=placement,
            lost_after_s=lost_after_s,
            tick_s=3600,  # tests call `tick` themselves
        )
        eventually(self.coordinator.leadership.is_leader, "the coordinator leads")
        eventually(lambda: self.coordinator._ticks > 0, "the first tick is over")
        _PRESENT.coordinator = self.coordinator
        self.app = _app()
        self.http = TestClient(self.app, headers={"Authorization": f"Bearer {TOKEN}"})
        self.http.__enter__()  # one event loop until the end, not one for each request
        self.client = CoordinatorClient(
            ["http://testserver"], TOKEN, retry_s=0.0, transport=self.http._transport
        )

    def open_client(self, url: str) -> CoordinatorClient:
        """A client of another coordinator of the cluster: see `peers`."""
        return CoordinatorClient([url], TOKEN, retry_s=0.0, transport=self.peers[url])

    def receiver(self, name: str, replica_set: str, machine: str = "", rack: str = "") -> None:
        record = ReceiverRecord(name, "127.0.0.1", 7080, replica_set, machine=machine, rack=rack)
        self.metadata.register_receiver(record)
        self.metadata.announce_live(name, "instance")

    def define(self, **cube: Any) -> None:
        self.client.create_table(TABLE)
        self.client.create_cube({**CUBE, **cube})

    def report(self, *cubes: str, held: Sequence[str] = (), more_active: bool = False) -> None:
        """Have each living receiver report the cubes that its replica set owns, read to the ends, and that it
        holds events of these segments, or of more. Without cubes: all that there are."""
        controls = {cube: self.metadata.control(cube) for cube in cubes or self.metadata.cubes()}
        for replica_set, receivers in self.metadata.living_members().items():
            reports = {
                cube: CubeReport(
                    state="CONSUMING",
                    assignment_epoch=control.assignment_epoch,
                    partitions={
                        p: PartitionReport(position=READ_ALL) for p in control.assignment.get(replica_set, ())
                    },
                    active=tuple(held),
                    more_active=more_active,
                )
                for cube, control in controls.items()
                if control.assignment.get(replica_set)
            }
            for name in receivers:
                self.coordinator.heartbeat(
                    HeartbeatRequest(receiver_id=name, replica_set=replica_set, cubes=reports)
                )

    def alter(self, cube: str, request: AlterRequest) -> Alteration:
        """Alter a cube where each living receiver has said what it holds: nothing, if it has not said so."""
        members = self.metadata.living_members()
        for each in self.metadata.cubes():
            control = self.metadata.control(each)
            nothing = CubeReport(state="CONSUMING", assignment_epoch=control.assignment_epoch, partitions={})
            for owner, receivers in self.coordinator.heartbeats.unheard(each, control, members).items():
                for name in receivers:
                    said = HeartbeatRequest(receiver_id=name, replica_set=owner, cubes={each: nothing})
                    self.client.heartbeat(said)
        return self.client.alter_cube(cube, request)

    def enabled(self) -> None:
        self.receiver("r1", "rs1")
        self.define()
        self.client.enable_cube(NAME)

    def closed(self, hour: int, *, by: int = 100, events: int = 5, cube: str = NAME) -> SegmentRecord:
        """Close a segment `by` offsets beyond what history covers and stage its one part."""
        window = SegmentRange(hour * HOUR_MS, (hour + 1) * HOUR_MS)
        control = self.metadata.control(cube)
        first = control.first_offsets

        def persisted(record: SegmentRecord) -> SegmentRecord:
            vector = {p: record.covered.get(p, first[p]) + by for p in first}
            closed = segments.close(record, vector, now_ms=self.clock.now_ms(), by="rs1")
            ranges = tuple(PartRange(p, record.covered.get(p, first[p]), vector[p]) for p in first)
            part = self.stage(window.name, record.version + 1, ranges, events, cube=cube)
            return segments.add_part(closed, part, partitions=first, first=first, now_ms=self.clock.now_ms())

        return self.metadata.update_segment(cube, window, persisted)

    def stage(
        self,
        segment: str,
        version: int,
        ranges: tuple[PartRange, ...],
        events: int,
        attempt: str = "a",
        *,
        cube: str = NAME,
    ) -> StagedPart:
        """Stage what receivers upload: the manifest of a part that has no files."""
        path = f"staged/{cube}/{self.metadata.cube_id(cube)}/{segment}/v{version}/rs1-{attempt}"
        manifest = StagedManifest(
            cube=cube,
            segment=segment,
            version=version,
            replica_set="rs1",
            ranges=ranges,
            files=(),
            events=events,
        )
        self.files.write(f"{path}/{MANIFEST_NAME}", encode(manifest))
        return StagedPart("rs1", path, ranges, rows=events, events=events, bytes=1)

    def build(self, segment: str, *, of: str = NAME, **wrong: Any) -> str:
        """Do the work of Spark: start, write the manifest. Returns the build id. `of`: the cube."""
        spec = self.client.start_build(of, segment)
        record = self.metadata.segment(of, segment)
        assert record is not None
        said = {
            "cube": of,
            "segment": segment,
            "version": spec.version,
            "build_id": spec.build_id,
            "covered": spec.covered,
            "events": (0 if record.is_rebuilt else record.events) + sum(part.events for part in spec.parts),
            "cuboids": (),
            "losses": spec_losses(spec),
            **wrong,
        }
        self.files.write(f"{spec.location}/{MANIFEST_NAME}", encode(HistoryManifest(**said)))
        return spec.build_id

    def serve(self) -> None:
        """Have the app stand for this one again, after another was made."""
        _PRESENT.coordinator = self.coordinator

    def close(self) -> None:
        self.http.__exit__()
        self.coordinator.close()
        self.store.close()


def assert_columns_as_listed(client: CoordinatorClient, cube: str) -> None:
    """Compare all that the columns have, and the notes: what is not noted has nothing to say."""
    listed, columns = client.segments(cube), client.segment_columns(cube)
    for name in ("segment", "start_ms", "end_ms", "state", "version", "events", "late_events"):
        assert getattr(columns, name) == tuple(getattr(each, name) for each in listed), name
    assert columns.parts == tuple(len(each.parts) for each in listed)
    noted = {each.segment: each for each in columns.noted}
    for each in listed:
        if each.segment in noted:
            assert noted[each.segment] == each
        else:
            failed = each.build is not None and each.build.error
            assert not any((failed, each.base_lost, each.lost, each.breached, each.batch))
            assert each.state in ("READY", "PURGED")

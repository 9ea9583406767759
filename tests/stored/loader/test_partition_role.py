"""The add partition role: which partitions, and that nothing it meets stops loading."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from rtolap.base.errors import Unavailable
from rtolap.model.loader import LoaderSink, SinkPartitions
from rtolap.model.stored.partitions import PartitionRange, partition_of
from rtolap.model.stored.table import PartitionUnit
from rtolap.protocols.loader.messages import API, PartitionsStatus
from rtolap.protocols.stored_tables.mysql_partitions import KnownPartition
from rtolap.stored.loader.partition_role import end_of_row, is_covered, near

from tests.support.loader.running_loader import Running
from tests.support.waiting import until

DAY_MS = 86_400_000
NOW_MS = 19_675 * DAY_MS + 3_600_000  # 2023-11-14 01:00
WANTED = LoaderSink(partitions=SinkPartitions("unused:1", "at", ahead=2, every_ms=1_000))


class Server:
    """Its MySQL endpoint, in memory. `broken`: what it raises instead of letting anybody in; `gate`: it
    answers no sooner."""

    def __init__(self, broken: Exception | None = None) -> None:
        self.broken = broken
        self.gate = threading.Event()
        self.gate.set()
        self.there: list[KnownPartition] = []

    @contextmanager
    def session(self) -> Iterator[Server]:
        assert self.gate.wait(30)
        if self.broken is not None:
            raise self.broken
        yield self

    def partitions(self, db: str, table: str) -> Sequence[KnownPartition]:
        return tuple(self.there)

    def add_partition(self, db: str, table: str, part: PartitionRange, *, has_time: bool) -> None:
        assert (db, table, has_time) == ("d", "t", True)
        self.there.append(KnownPartition(part.name, (part.start_ms, part.end_ms)))


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("hour", ["p2023111400", "p2023111401", "p2023111402", "p2023111403"]),
        ("day", ["p20231113", "p20231114", "p20231115", "p20231116"]),
        ("week", ["p20231106", "p20231113", "p20231120", "p20231127"]),
        ("month", ["p202310", "p202311", "p202312", "p202401"]),
        ("year", ["p2022", "p2023", "p2024", "p2025"]),
    ],
)
def test_partitions_around_now(unit: PartitionUnit, expected: list[str]) -> None:
    found = near(unit, NOW_MS, 1, 2)
    assert [part.name for part in found] == expected
    assert all(before.end_ms == after.start_ms for before, after in pairwise(found))
    assert found[1].start_ms <= NOW_MS < found[1].end_ms


def test_a_partition_is_there_by_its_name_or_by_its_time() -> None:
    day = partition_of(NOW_MS, "day")
    hours = [
        KnownPartition(f"h{hour}", (day.start_ms + hour * 3_600_000, day.start_ms + (hour + 1) * 3_600_000))
        for hour in range(24)
    ]
    assert is_covered(day, [KnownPartition(day.name, None)])
    assert is_covered(day, [KnownPartition("m", (day.start_ms - DAY_MS, day.end_ms + DAY_MS))])
    assert is_covered(day, hours[::-1])
    assert not is_covered(day, hours[:-1])
    assert not is_covered(day, hours[1:])
    assert not is_covered(day, [*hours[:5], *hours[6:]])
    assert not is_covered(day, [KnownPartition("other", None)])
    assert not is_covered(day, [])


def test_the_row_of_partitions_ends_at_the_first_hole() -> None:
    parts = near("day", NOW_MS, 1, 3)
    assert end_of_row(parts, NOW_MS) == parts[-1].end_ms
    assert end_of_row([*parts[:3], parts[4]], NOW_MS) == parts[2].end_ms
    assert end_of_row(parts[2:], NOW_MS) is None


@pytest.mark.parametrize(
    "broken", [Unavailable("the endpoint is away"), RuntimeError("a library's own error")]
)
def test_a_role_that_fails_stops_no_row_and_mends_itself(tmp_path: Path, broken: Exception) -> None:
    server = Server(broken)
    running = Running(tmp_path, open_session=server.session, sink=WANTED)
    try:
        running.produce(range(40))
        until(lambda: len(running.keys()) == 40)
        shown = running.endpoint.get(API, headers=running.headers).json()
        assert (shown["state"], shown["phase"], shown["partitions"]["state"]) == (
            "RUNNING",
            "loading",
            "failing",
        )
        assert str(broken) in shown["partitions"]["last_error"]
        page = running.endpoint.get("/metrics", headers=running.headers).text
        assert 'rtolap_loader_partitions_failing{loader="j"} 1.0' in page
        assert "rtolap_loader_partitions_until_seconds" not in page
        server.broken = None
        until(lambda: _state(running) == "kept")
        assert len(server.there) == 3
        page = running.endpoint.get("/metrics", headers=running.headers).text
        assert 'rtolap_loader_partitions_failing{loader="j"} 0.0' in page
        assert 'rtolap_loader_partitions_made_total{loader="j"} 3.0' in page
    finally:
        running.close()


def test_no_row_is_sent_before_partitions_were_tried(tmp_path: Path) -> None:
    server = Server()
    server.gate.clear()
    running = Running(tmp_path, open_session=server.session, sink=WANTED)
    try:
        running.produce(range(40))
        until(lambda: running.status().pending > 0)
        assert (_state(running), running.keys()) == ("starting", [])
        server.gate.set()
        until(lambda: len(running.keys()) == 40)
        assert _state(running) == "kept"
    finally:
        server.gate.set()
        running.close()


def test_what_is_dropped_is_made_again(tmp_path: Path) -> None:
    server = Server()
    running = Running(tmp_path, open_session=server.session, sink=WANTED)
    try:
        until(lambda: _status(running).made_count == 3)
        gone = server.there.pop()
        until(lambda: _status(running).made_count == 4)
        assert _status(running).made[-1] == gone.name
        assert gone in server.there
    finally:
        running.close()


def _status(running: Running) -> PartitionsStatus:
    found = running.status().partitions
    assert found is not None
    return found


def _state(running: Running) -> str:
    return _status(running).state

"""Settled segments in a receiver: what it looks up, when, and what it does while it cannot."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import StaleSnapshot, Unavailable
from rtolap.cubes.receiver.answers.query_service import NotReady
from rtolap.cubes.receiver.local.align import NO_VECTORS, versions_of
from rtolap.cubes.receiver.local.cut_logs import counted_beyond, known_by_vectors
from rtolap.cubes.receiver.settled import SettledVersion
from rtolap.cubes.receiver.upload import upload_job
from rtolap.kafka.interfaces import CutPartition
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.segment_format.pages import HistoryFrontier
from rtolap.model.segment import SegmentRange, SegmentState
from rtolap.protocols.receiver.messages import HistorySnapshot

from tests.cubes.receiver.test_core import Bench
from tests.support.cubes.builders import START_MS, WINDOW_MS

NAME = SegmentRange(START_MS, START_MS + WINDOW_MS).name


class Settled:
    """`SettledSegments` in memory. `away`: what has to be read cannot be."""

    def __init__(self) -> None:
        self.records: dict[int, SegmentRecord] = {}
        self.away = False
        self.looked_up: list[int] = []

    @property
    def frontier(self) -> HistoryFrontier:
        frontier = HistoryFrontier()
        for record in self.records.values():
            frontier = frontier.beyond(record)
        return frontier

    def record(self, start_ms: int) -> SegmentRecord | None:
        self.looked_up.append(start_ms)
        self._reachable()
        return self.records.get(start_ms)

    def versions(self, start_ms: int | None, end_ms: int | None) -> Mapping[int, SettledVersion]:
        self._reachable()
        return {
            start: SettledVersion(record.version, record.state is SegmentState.PURGED)
            for start, record in self.records.items()
        }

    def newest_first(self) -> Iterator[SegmentRecord]:
        self._reachable()
        return iter([record for _, record in sorted(self.records.items(), reverse=True)])

    def put(self, covered: dict[int, int], version: int = 1, *, at: int = 0) -> None:
        start_ms = START_MS + at * WINDOW_MS
        self.records[start_ms] = SegmentRecord(
            cube="sales_by_kind",
            start_ms=start_ms,
            end_ms=start_ms + WINDOW_MS,
            state=SegmentState.READY,
            version=version,
            covered=covered,
        )

    def _reachable(self) -> None:
        if self.away:
            raise Unavailable("the object store does not answer")


class World:
    def __init__(self, folder: Path) -> None:
        self.bench = Bench(folder)
        self.settled = Settled()
        self.bench.step(settled=self.settled)

    def rows(self, versions: dict[str, int]) -> int:
        return self.bench.rows(HistorySnapshot(versions))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_events_below_the_vectors_of_a_settled_segment_are_not_counted_again(world: World) -> None:
    world.settled.put({0: 3, 1: 0})
    world.bench.send(5)
    world.bench.step()
    assert world.rows({NAME: 1}) == 2, "offsets 3 and 4 are late, the others are in history"
    assert set(world.settled.looked_up) == {START_MS}


def test_segments_that_no_event_falls_into_are_not_looked_up(world: World) -> None:
    for at in range(100):
        world.settled.put({0: 1}, at=-at - 5)
    world.bench.send(3)
    world.bench.step()
    assert set(world.settled.looked_up) == {START_MS}


def test_a_batch_whose_vectors_cannot_be_read_is_read_again_and_none_of_it_is_lost_or_doubled(
    world: World,
) -> None:
    world.settled.put({0: 3})
    world.settled.away = True
    world.bench.send(5)
    for _ in range(3):
        with pytest.raises(Unavailable, match="object store"):
            world.bench.core.step(world.bench.view)
    assert "object store" in world.bench.core.reason
    assert world.bench.core.state.positions[0] == 0
    world.settled.away = False
    world.bench.step()
    assert world.rows({NAME: 1}) == 2


def test_a_snapshot_that_knows_another_version_than_the_page_gets_no_answer(world: World) -> None:
    world.bench.send(4)
    world.bench.step(records={})
    world.settled.put({0: 4}, at=-3)
    early = SegmentRange(START_MS - 3 * WINDOW_MS, START_MS - 2 * WINDOW_MS).name
    assert world.rows({early: 1}) == 4
    with pytest.raises(StaleSnapshot, match="moved on"):
        world.rows({})
    with pytest.raises(NotReady, match="version 2"):
        world.rows({early: 2})


def test_local_events_that_are_not_aligned_with_a_version_yet_are_not_answered_beside_it(
    world: World,
) -> None:
    """The page knows of the promotion before the core does: history and its tables hold the same events."""
    world.bench.send(4)
    world.bench.step(records={})
    assert world.rows({}) == 4
    world.settled.put({0: 4})
    with pytest.raises(NotReady, match="not known here yet"):
        world.rows({NAME: 1})
    world.bench.step(records={})
    assert world.rows({NAME: 1}) == 0


def test_no_answer_is_given_before_the_frontier_of_history_is_reached(world: World) -> None:
    world.settled.put({0: 2}, at=-3)
    early = SegmentRange(START_MS - 3 * WINDOW_MS, START_MS - 2 * WINDOW_MS).name
    with pytest.raises(NotReady, match="what history holds"):
        world.rows({early: 1})
    world.bench.send(2)
    world.bench.step(records={})
    assert world.rows({early: 1}) == 2


def test_while_vectors_cannot_be_read_an_earlier_view_stands(world: World) -> None:
    world.bench.send(4)
    world.bench.step(records={})
    before = world.bench.core.state
    world.settled.put({0: 4})
    world.settled.away = True
    world.bench.step(records={})
    assert world.bench.core.state is before, "nothing is dropped by half of what is known"
    world.settled.away = False
    world.bench.step()
    assert world.rows({NAME: 1}) == 0


@pytest.mark.parametrize("seed", range(20))
def test_tables_are_of_the_versions_that_the_vectors_beside_them_say(tmp_path: Path, seed: int) -> None:
    """A segment is closed while its events arrive. Whoever looks a record up knows of it before the view of
    the step has it; what is chosen for an upload in between holds nothing from the vector on."""
    chooser, world = random.Random(seed), World(tmp_path)
    bench, record = world.bench, None
    decided, known, seen = sorted(chooser.sample(range(1, 30), 3))
    for turn in range(35):
        bench.send(chooser.randint(1, 6), partition=0)
        bench.send(chooser.randint(1, 6), partition=1)
        if turn == decided:
            target = dict(bench.core.state.positions)
            world.settled.put({}, 0)
            closed = world.settled.records.pop(START_MS)
            record = msgspec.structs.replace(closed, state=SegmentState.IMMUTABLE, target=target)
        if turn == known and record is not None:
            world.settled.records[START_MS] = record
        if turn == seen and record is not None:
            bench.view = replace(bench.view, records={START_MS: record})
        bench.core.step(bench.view)
        state = bench.core.state
        for start, segment in state.segments.items():
            vectors = state.vectors.get(start, NO_VECTORS)
            for table in segment.tables:
                assert table.versions == versions_of(vectors, table.ranges, bench.core.valid_partitions)
        if record is not None:
            job = upload_job(bench.schema, state, bench.view.control, {START_MS: record})
            if job is not None:
                assert sum(table.events for table in job.tables) == sum(record.target.values())
    bench.realign()
    job = upload_job(bench.schema, bench.core.state, bench.view.control, bench.view.records)
    assert job is not None
    assert record is not None
    assert sum(table.events for table in job.tables) == sum(record.target.values())


def test_a_cut_log_is_held_against_the_frontier_and_the_newest_segment_is_named() -> None:
    settled = Settled()
    for at, end in enumerate((10, 20, 30)):
        settled.put({0: end, 1: 5}, at=at)
    newest = settled.records[START_MS + 2 * WINDOW_MS]
    cut = CutPartition(0, 40, 25)
    assert counted_beyond({}, settled, [cut], None) == [newest.name]
    assert counted_beyond({}, settled, [cut], newest.end_ms) == [], "purged for ever"
    assert counted_beyond({}, settled, [CutPartition(0, 40, 30)], None) == []
    opened = msgspec.structs.replace(newest, state=SegmentState.IMMUTABLE, target={0: 35})
    assert counted_beyond({opened.start_ms: opened}, settled, [cut], None) == [opened.name]


def test_the_epoch_at_the_frontier_is_compared_with_the_log() -> None:
    frontier = HistoryFrontier({0: 30, 1: 9}, {0: 4})
    known = known_by_vectors({}, frontier, {0, 1})
    assert {p: (epochs.epoch, epochs.end) for p, epochs in known.items()} == {0: (4, 30)}

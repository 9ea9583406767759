"""Settled segments in pages, their vectors in files, and closing records in pieces: on stores in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import pytest
from rtolap.base.errors import CommitConflict, CommitUnknown, Corrupted, NotFound, Refused
from rtolap.metadata import codec, paths, segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import BuildAttempt, SegmentRecord
from rtolap.metadata.segment_format import pieces
from rtolap.metadata.segment_format.pages import (
    PAGE_SEGMENTS,
    RECORD_BYTES_MAX,
    HistoryFrontier,
    page_of,
    paged,
)
from rtolap.metadata.segment_format.pieces import HEAD_BYTES_MAX
from rtolap.metadata.segment_format.vectors import vectors_path
from rtolap.metadata.store import Operation, Put
from rtolap.metadata.view import SegmentView
from rtolap.model.cube import Cube
from rtolap.model.offsets import Offsets, PartRange
from rtolap.model.segment import SegmentRange, SegmentState, StagedPart

from tests.support.seeds import so_many
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore
from tests.support.twins.version_files import MemoryFiles

HOUR_MS = 3_600_000
CUBE = Cube(name="c", table="t", dimensions=("d",))
FIRST: Offsets = {0: 0, 1: 0}


def hour(number: int) -> SegmentRange:
    return SegmentRange(number * HOUR_MS, (number + 1) * HOUR_MS)


@dataclass
class World:
    ensemble: MemoryEnsemble = field(default_factory=MemoryEnsemble)
    files: MemoryFiles = field(default_factory=MemoryFiles)
    stores: list[MemoryStore] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.metadata = self.service()
        self.metadata.create_cube(CUBE)

    def service(self, *, with_files: bool = True) -> ClusterMetadata:
        """Return what another service of the cluster has in its hands."""
        self.stores.append(MemoryStore(self.ensemble))
        return ClusterMetadata(self.stores[-1], ManualClock(1), self.files if with_files else None)

    def nodes(self, below: str) -> list[str]:
        return sorted(path for path in self.ensemble.nodes if path.startswith(f"{below}/"))

    def ready(
        self, number: int, by: int = 10, *, partitions: int = 2, metadata: ClusterMetadata | None = None
    ) -> SegmentRecord:
        """Close the hour `by` offsets beyond what history covers of it, stage, build and promote it."""
        metadata = metadata or self.metadata
        self.staged(number, by, partitions=partitions, metadata=metadata)
        return self.promoted(number, metadata)

    def staged(self, number: int, by: int, *, partitions: int, metadata: ClusterMetadata) -> None:
        def persisted(record: SegmentRecord) -> SegmentRecord:
            vector = {p: record.covered.get(p, 1000 * number) + by for p in range(partitions)}
            closed = segments.close(record, vector, now_ms=1, by="rs", epochs=dict.fromkeys(vector, 3))
            ranges = tuple(PartRange(p, record.built_on.get(p, 0), vector[p]) for p in vector)
            part = StagedPart("rs", f"staged/{number}/{record.version}", ranges, 1, 5, 9, begins=dict(vector))
            return segments.add_part(
                closed, part, partitions=range(partitions), first=dict.fromkeys(vector, 0), now_ms=1
            )

        metadata.update_segment("c", hour(number), persisted)

    def promoted(self, number: int, metadata: ClusterMetadata) -> SegmentRecord:
        record = metadata.segment("c", hour(number).name)
        assert record is not None
        build = f"b{number}-{record.version + 1}"
        attempt = BuildAttempt(build, record.version + 1, 1, f"history/c/id/{record.name}/{build}")
        metadata.update_segment("c", hour(number), lambda r: segments.start_build(r, attempt))
        return metadata.update_segment(
            "c", hour(number), lambda r: segments.promote(r, build, events=5, now_ms=1)
        )

    def close(self) -> None:
        for store in self.stores:
            store.close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_ready_segment_stands_in_the_page_of_its_time_and_its_vectors_beside_its_data(world: World) -> None:
    record = world.ready(3)
    assert (record.covered, record.covered_epochs) == ({0: 3010, 1: 3010}, {0: 3, 1: 3})
    assert world.nodes(paths.segments("c")) == []
    assert world.nodes(paths.history("c")) == [paths.history_page("c", page_of(hour(3)).name)]
    (path,) = world.files.kept
    assert path.startswith(f"{record.location}-vectors/")
    assert comparable(world.metadata.segment("c", record.name)) == comparable(record)
    assert world.metadata.nodes.frontier("c") == HistoryFrontier({0: 3010, 1: 3010}, {0: 3, 1: 3})


def test_the_record_in_a_page_has_two_kilobytes_at_most_whatever_the_partitions(world: World) -> None:
    sizes = []
    for partitions in (1, 10_000):
        record = world.ready(partitions, partitions=partitions)
        small = world.metadata.nodes.segment("c", record.name)
        assert small is not None
        sizes.append(len(codec.encode(small)))
    few, many = sizes
    assert many <= few + 64 <= RECORD_BYTES_MAX


def test_long_notes_and_errors_do_not_make_a_record_larger(world: World) -> None:
    record = world.ready(1)
    lines = record.state_history
    noted = tuple(msgspec.structs.replace(line, note="x" * 10_000) for line in lines * 20)
    build = msgspec.structs.replace(record.build or BuildAttempt("b", 1, 1, "x"), error="y" * 4_000)
    small = paged(msgspec.structs.replace(record, state_history=noted, build=build))
    assert len(codec.encode(small)) <= RECORD_BYTES_MAX
    assert small.state_history[-1].event == lines[-1].event, "cleanup goes by the last one"


def test_late_events_open_a_segment_again_and_its_next_version_settles_it(world: World) -> None:
    first = world.ready(3, 10)
    world.staged(3, 5, partitions=2, metadata=world.metadata)
    opened = world.metadata.segment("c", first.name)
    assert opened is not None
    assert (opened.state, opened.covered) == (SegmentState.REMOTE_PERSISTED, first.covered)
    assert world.nodes(paths.history("c")) == [], "it is in one place only"
    stored = world.metadata.nodes.open_segment("c", first.name)
    assert stored is not None
    assert stored.covered == {}, "the vectors of version 1 stay where they are"
    second = world.promoted(3, world.metadata)
    assert (second.version, second.covered) == (2, {0: 3015, 1: 3015})
    assert comparable(world.metadata.segment("c", first.name)) == comparable(second)
    assert len(world.files.kept) == 2


@pytest.mark.parametrize("how", ["missing", "altered"])
def test_vectors_that_are_missing_or_altered_are_named_with_what_to_do(world: World, how: str) -> None:
    record = world.ready(3)
    (path,) = world.files.kept
    if how == "missing":
        del world.files.kept[path]
    else:
        world.files.kept[path] = world.files.kept[path].replace(b"3010", b"3009")
    fresh = world.service()
    with pytest.raises(Corrupted, match=f"{path} .*{how}.*restore the file"):
        fresh.segment("c", record.name)
    with pytest.raises(Corrupted):
        fresh.update_segment("c", hour(3), lambda before: segments.requeue(before, now_ms=2, by="me"))
    view = SegmentView(fresh, "c", by_page=True)
    assert view.records()[record.name].location == record.location, "statements go on"
    view.close()
    purged = fresh.update_segment(
        "c", hour(3), lambda before: segments.purge(before, now_ms=2, by="me"), with_vectors=False
    )
    assert purged.state is SegmentState.PURGED, "it can be given up"


def test_a_record_whose_vectors_change_names_other_vectors(world: World) -> None:
    record = world.ready(3)
    world.metadata.update_segment(
        "c", hour(3), lambda before: msgspec.structs.replace(before, begins={0: 7, 1: 8})
    )
    after = world.metadata.segment("c", record.name)
    assert after is not None
    assert (after.begins, after.covered) == ({0: 7, 1: 8}, record.covered)
    assert len(world.files.kept) == 2


def test_a_change_that_has_read_an_older_page_is_not_committed(world: World) -> None:
    """Two services settle two segments of one page: each finds the other's."""
    other = world.service()
    for number in (1, 2):
        world.staged(number, 10, partitions=2, metadata=world.metadata)
    interrupted = []

    def meanwhile(operations: Sequence[Operation]) -> None:
        ours = any(op.path.startswith(paths.history("c")) for op in operations)
        if ours and not interrupted:
            interrupted.append(True)
            world.promoted(2, other)

    world.ensemble.fault = meanwhile
    world.promoted(1, world.metadata)
    assert interrupted
    names = {hour(1).name, hour(2).name}
    assert set(world.metadata.segments("c")) == names
    (page,) = world.metadata.nodes.page_ranges("c")
    assert set(world.metadata.nodes.page("c", page)[0]) == names


def test_a_dropped_cube_leaves_no_page_frontier_or_piece(world: World) -> None:
    world.ready(1)
    world.staged(2, 10, partitions=9_000, metadata=world.metadata)
    assert world.nodes(paths.closing("c"))
    world.metadata.drop_cube("c", world.metadata.cube_id("c"))
    assert world.nodes(paths.cube("c")) == []


def test_a_purged_record_is_forgotten_with_its_page(world: World) -> None:
    record = world.ready(1)
    world.metadata.update_control("c", lambda c: msgspec.structs.replace(c, horizon_ms=2 * HOUR_MS))
    world.metadata.update_segment("c", hour(1), lambda r: segments.purge(r, now_ms=1, by="x"))
    world.metadata.remove_segment("c", record.name)
    assert world.metadata.segment("c", record.name) is None
    assert world.nodes(paths.history("c")) == []
    with pytest.raises(Refused, match="purged for ever"):
        world.staged(1, 5, partitions=2, metadata=world.metadata)


# -- kills: a process that ends anywhere leaves a record in one place, whose vectors can be read ----------


class _Killed(Exception):
    pass


def killed_at(step: int, when: Literal["before", "after"], world: World) -> Callable[[], bool]:
    """Have the `step`-th write of a file or commit end the process. Return whether it came to that."""
    left = [step]

    def counted() -> bool:
        left[0] -= 1
        return left[0] == -1

    def fault(operations: Sequence[Operation]) -> Literal["before", "after"] | None:
        if counted():
            if when == "after":
                world.ensemble.fault = None
                world.ensemble.apply(operations, (0, 0))
            raise _Killed
        return None

    def written(path: str, data: bytes) -> None:
        if counted():
            if when == "after":
                world.files.kept[path] = data
            raise _Killed

    world.ensemble.fault = fault
    world.files.before_write = written
    return lambda: left[0] < 0


def restarted(world: World) -> None:
    world.ensemble.fault = None
    world.files.before_write = lambda path, data: None


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(3))
def test_a_promotion_that_is_killed_anywhere_is_repeated(
    world: World, step: int, when: Literal["before", "after"]
) -> None:
    world.staged(3, 10, partitions=2, metadata=world.metadata)
    record = world.metadata.segment("c", hour(3).name)
    assert record is not None
    location = f"history/c/id/{record.name}/v1-b"
    world.metadata.update_segment(
        "c", hour(3), lambda r: segments.start_build(r, BuildAttempt("b", 1, 1, location))
    )
    happened = killed_at(step, when, world)

    def promote(metadata: ClusterMetadata) -> SegmentRecord:
        return metadata.update_segment("c", hour(3), lambda r: segments.promote(r, "b", events=5, now_ms=1))

    if step < 2:
        with pytest.raises(_Killed):
            promote(world.metadata)
    else:
        promote(world.metadata)
    assert happened() is (step < 2), "a file and a commit are all"
    restarted(world)
    seen = world.service().segment("c", hour(3).name)
    assert seen is not None
    assert seen.state in (SegmentState.REMOTE_PERSISTED, SegmentState.READY)
    again = promote(world.service())
    assert comparable(again) == comparable(world.service().segment("c", hour(3).name))
    assert (again.state, again.version, again.covered) == (SegmentState.READY, 1, {0: 3010, 1: 3010})
    assert list(world.files.kept) == [vectors_path(location, again.vectors or stored(world, 3))]


def stored(world: World, number: int) -> str:
    record = world.metadata.nodes.segment("c", hour(number).name)
    assert record is not None
    assert record.vectors is not None
    return record.vectors


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(6))
def test_old_records_are_moved_into_pages_by_a_leader_that_is_killed_anywhere(
    world: World, step: int, when: Literal["before", "after"]
) -> None:
    old = world.service(with_files=False)
    before = {}
    for number in (1, 2, 2):
        before[hour(number).name] = world.ready(number, metadata=old)
    assert len(world.nodes(paths.segments("c"))) == 2
    assert world.files.kept == {}
    assert {n: r.covered for n, r in world.metadata.segments("c").items()} == {
        n: r.covered for n, r in before.items()
    }, "they are read as they are"
    killed_at(step, when, world)
    ended = False
    try:
        for number in (1, 2):
            world.metadata.nodes.settle("c", hour(number))
    except _Killed:
        ended = True
    assert ended is (step < 4), "a file and a commit for each of two"
    restarted(world)
    successor = world.service()
    moved = [successor.nodes.settle("c", hour(number)) for number in (1, 2)]
    assert world.nodes(paths.segments("c")) == []
    after = successor.segments("c")
    assert {n: (r.version, r.covered, r.covered_epochs, r.begins) for n, r in after.items()} == {
        n: (r.version, r.covered, r.covered_epochs, r.begins) for n, r in before.items()
    }
    assert successor.nodes.frontier("c").covered == {0: 2020, 1: 2020}
    assert [successor.nodes.settle("c", hour(number)) for number in (1, 2)] == [False, False]
    assert sum(moved) <= 2


# -- pieces ---------------------------------------------------------------------------------------------


def close_by_sets(
    metadata: ClusterMetadata, number: int, sets: int, each: int, services: Sequence[ClusterMetadata]
) -> Offsets:
    closed: Offsets = {}
    for at in range(sets):
        vector = {p: 10_000 + p for p in range(at * each, (at + 1) * each)}
        closed.update(vector)
        services[at % len(services)].update_segment(
            "c",
            hour(number),
            lambda r, vector=vector, at=at: segments.close(  # type: ignore[misc]
                r, vector, now_ms=1, by=f"rs{at}", epochs=dict.fromkeys(vector, 7)
            ),
        )
    return closed


def test_a_closing_record_of_many_partitions_is_kept_in_nodes_that_are_far_from_the_limit(
    world: World,
) -> None:
    services = [world.metadata, world.service()]
    vector = close_by_sets(world.metadata, 1, sets=18, each=1_000, services=services)
    parts = []
    for at in range(18):
        ranges = tuple(PartRange(p, 0, vector[p]) for p in range(at * 1_000, (at + 1) * 1_000))
        parts.append(StagedPart(f"rs{at}", f"staged/{at}", ranges, 1, 1, 1, {r.partition: 5 for r in ranges}))
        services[at % 2].update_segment(
            "c",
            hour(1),
            lambda r, part=parts[-1]: segments.add_part(  # type: ignore[misc]
                r, part, partitions=vector, first=dict.fromkeys(vector, 0), now_ms=1
            ),
        )
    record = world.service().segment("c", hour(1).name)
    assert record is not None
    assert (record.state, record.target) == (SegmentState.REMOTE_PERSISTED, vector)
    assert record.target_epochs == dict.fromkeys(vector, 7)
    assert record.parts == tuple(parts)
    sizes = [len(node.data) for path, node in world.ensemble.nodes.items() if path.startswith("/cubes/c/")]
    assert sum(sizes) > 1_000_000, "as one record it would be refused"
    assert max(sizes) < 2 * HEAD_BYTES_MAX
    ready = world.promoted(1, world.metadata)
    assert ready.covered == vector
    assert world.nodes(paths.closing("c")) == []
    small = world.metadata.nodes.segment("c", hour(1).name)
    assert small is not None
    assert len(codec.encode(small)) <= RECORD_BYTES_MAX


def test_parts_that_are_lost_take_their_pieces_with_them(world: World) -> None:
    world.staged(1, 10, partitions=9_000, metadata=world.metadata)
    (before,) = world.nodes(paths.closing("c"))
    world.metadata.update_segment(
        "c", hour(1), lambda r: segments.lose_parts(r, {r.parts[0].path: "gone"}, now_ms=1, by="x")
    )
    record = world.service().segment("c", hour(1).name)
    assert record is not None
    assert (record.parts, len(record.target)) == ((), 9_000)
    assert before not in world.nodes(paths.closing("c"))


def test_the_first_to_close_a_partition_decides_though_its_offsets_are_in_a_piece(world: World) -> None:
    close_by_sets(world.metadata, 1, sets=8, each=1_000, services=[world.metadata])
    assert world.nodes(paths.closing("c"))
    other = world.service()
    after = other.update_segment(
        "c", hour(1), lambda r: segments.close(r, {5: 99_999, 8_001: 4}, now_ms=1, by="late")
    )
    assert (after.target[5], after.target[8_001]) == (10_005, 4)
    stale = world.ensemble.nodes[paths.segment("c", hour(1).name)].version - 1
    with pytest.raises(CommitConflict):
        world.metadata.store.commit([Put(paths.segment("c", hour(1).name), b"{}", stale)])


def test_a_service_without_pieces_refuses_a_head_instead_of_taking_a_part_for_all(world: World) -> None:
    close_by_sets(world.metadata, 1, sets=8, each=1_000, services=[world.metadata])
    node = world.ensemble.nodes[paths.segment("c", hour(1).name)]
    with pytest.raises(Corrupted, match="does not hold a SegmentRecord"):
        codec.decode(node.data, SegmentRecord, "the node")


def test_a_piece_that_is_gone_is_named(world: World) -> None:
    close_by_sets(world.metadata, 1, sets=8, each=1_000, services=[world.metadata])
    (path, *_) = world.nodes(paths.closing("c"))
    del world.ensemble.nodes[path]
    with pytest.raises(Corrupted, match=r"lacks a piece.*restore the nodes"):
        world.service().segment("c", hour(1).name)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(20)))
def test_random_changes_by_several_services_with_broken_commits_equal_one_record_in_memory(
    world: World, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every change is one that some service may make, and is applied to a record in memory, too."""
    monkeypatch.setattr(pieces, "HEAD_BYTES_MAX", 1_500)
    draw = random.Random(seed)
    services = [world.service() for _ in range(3)]
    views = [
        SegmentView(services[0], "c"),
        SegmentView(services[1], "c", by_page=True, with_frontier=True),
    ]
    plain: dict[int, SegmentRecord] = {}
    frontier: Offsets = {}
    partitions = draw.choice((2, 30, 100))
    all_of = range(partitions)
    first = dict.fromkeys(all_of, 0)
    hours = (1, 2, PAGE_SEGMENTS + 1)

    def fault(operations: Sequence[Operation]) -> Literal["before", "after"] | None:
        return draw.choice(("before", "after")) if draw.random() < 0.15 else None

    for number in range(40):
        at = draw.choice(hours)
        record = plain.get(at, SegmentRecord(cube="c", start_ms=hour(at).start_ms, end_ms=hour(at).end_ms))
        change = drawn_change(draw, record, all_of, first, number)
        try:
            plain[at] = change(record)
        except Refused:
            continue
        world.ensemble.fault = fault
        try:
            after = draw.choice(services).update_segment("c", hour(at), change)
        except CommitUnknown:
            world.ensemble.fault = None
            after = services[0].update_segment("c", hour(at), change)
        world.ensemble.fault = None
        assert comparable(after) == comparable(plain[at])
        if plain[at].state is SegmentState.READY:
            frontier.update({p: max(o, frontier.get(p, 0)) for p, o in plain[at].covered.items()})
    world.ensemble.settle()
    expected = {hour(at).name: record for at, record in plain.items() if record.state_history}
    found = services[2].segments("c")
    assert {n: comparable(r) for n, r in found.items()} == {n: comparable(r) for n, r in expected.items()}
    assert services[2].nodes.frontier("c").covered == frontier
    for view in views:
        view.refresh()
        shown = {n: (r.state, r.version, r.location) for n, r in view.records().items()}
        assert shown == {n: (r.state, r.version, r.location) for n, r in expected.items()}
        view.close()
    assert views[1].known()[1].frontier.covered == frontier


def drawn_change(
    draw: random.Random, record: SegmentRecord, all_of: range, first: Offsets, number: int
) -> Callable[[SegmentRecord], SegmentRecord]:
    kind = draw.choice(("close", "part", "part", "build", "promote", "promote", "requeue", "lose", "base"))
    some = draw.sample(all_of, draw.randrange(1, len(all_of) + 1))
    by = draw.randrange(1, 9)
    name = f"b{number}"

    def close(r: SegmentRecord) -> SegmentRecord:
        vector = {p: r.covered.get(p, 0) + by for p in some}
        return segments.close(r, vector, now_ms=number, by="x", epochs=dict.fromkeys(some, number))

    def part(r: SegmentRecord) -> SegmentRecord:
        missing = segments.missing_ranges(record, partitions=all_of, first=first)
        if not missing:
            return r
        staged = StagedPart(
            "rs", f"staged/{number}", missing, 1, 1, 1, {m.partition: m.start for m in missing}
        )
        return segments.add_part(r, staged, partitions=all_of, first=first, now_ms=number)

    def build(r: SegmentRecord) -> SegmentRecord:
        if r.build is not None and r.build.build_id == name:
            return r
        return segments.start_build(
            r, BuildAttempt(name, r.version + 1, number, f"history/c/{r.name}/{name}")
        )

    def promote(r: SegmentRecord) -> SegmentRecord:
        build_id = "none" if record.build is None else record.build.build_id
        return segments.promote(r, build_id, events=number, now_ms=number)

    def requeue(r: SegmentRecord) -> SegmentRecord:
        return (
            r
            if r.state_history[-1:] != record.state_history[-1:]
            else segments.requeue(r, now_ms=number, by="x")
        )

    def lose(r: SegmentRecord) -> SegmentRecord:
        return segments.lose_parts(r, {p.path: "gone" for p in record.parts}, now_ms=number, by="x")

    def base(r: SegmentRecord) -> SegmentRecord:
        return segments.lose_base(r, "gone", now_ms=number, by="x")

    changes = {
        "close": close,
        "part": part,
        "build": build,
        "promote": promote,
        "requeue": requeue,
        "lose": lose,
        "base": base,
    }
    return changes[kind]


def comparable(record: SegmentRecord | None) -> SegmentRecord:
    """What a record says, without where its vectors are and the lines that a page has no room for."""
    assert record is not None
    return msgspec.structs.replace(record, vectors=None, state_history=record.state_history[-1:])


def test_a_view_reads_a_page_when_its_time_is_asked_for_and_keeps_it_fresh(world: World) -> None:
    world.ready(1)
    world.ready(PAGE_SEGMENTS + 1)
    world.staged(PAGE_SEGMENTS + 2, 5, partitions=2, metadata=world.metadata)
    view = SegmentView(world.service(with_files=False), "c", by_page=True)
    assert set(view.known()[1].open) == {hour(PAGE_SEGMENTS + 2).name}
    assert len(view.known()[1].pages) == 2
    assert view.known()[1].loaded == {}
    early = view.records(0, 2 * HOUR_MS)
    assert set(early) == {hour(1).name, hour(PAGE_SEGMENTS + 2).name}
    assert view.records(HOUR_MS, 3 * HOUR_MS) is early, "an unchanged range is the same object"
    assert view.segment(hour(PAGE_SEGMENTS + 1)) is not None
    world.ready(2)
    world.promoted(PAGE_SEGMENTS + 2, world.metadata)
    view.refresh()
    assert view.known()[1].open == {}
    assert {name: record.version for name, record in view.records().items()} == {
        hour(number).name: 1 for number in (1, 2, PAGE_SEGMENTS + 1, PAGE_SEGMENTS + 2)
    }
    with pytest.raises(NotFound):
        SegmentView(world.metadata, "nothing", by_page=True)
    view.close()


def test_a_segment_that_leaves_its_page_while_it_is_read_is_not_missed(world: World) -> None:
    """The page is read after the segment was opened again by a change that the view has not seen."""
    record = world.ready(1)
    view = SegmentView(world.service(), "c", by_page=True)
    other, store = world.service(), view._metadata.store
    opened = []

    def get(path: str, read: Callable[[str], object] = store.get) -> object:
        if path.startswith(paths.history("c")) and not opened:
            opened.append(True)
            other.update_segment("c", hour(1), lambda r: segments.requeue(r, now_ms=1, by="x"))
        return read(path)

    store.get = get  # type: ignore[method-assign, assignment]
    found = view.records()[record.name]
    assert (found.state, found.version) == (SegmentState.REMOTE_PERSISTED, 1)
    assert opened
    view.close()

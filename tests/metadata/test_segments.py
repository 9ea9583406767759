from __future__ import annotations

import random

import pytest
from rtolap.base.errors import Refused
from rtolap.metadata import segment_batches, segments
from rtolap.metadata.records import BuildAttempt, SegmentRecord
from rtolap.model.offsets import PartRange
from rtolap.model.segment import SegmentState, StagedPart

PARTITIONS = (0, 1, 2, 3)
FIRST = {0: 0, 1: 7, 2: 0, 3: 100}
SETS = {"rs1": (0, 2), "rs2": (1, 3)}


class Story:
    """Random receivers, builders and operators on one record. Keeps its own books of what must hold."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.record = SegmentRecord(cube="c", start_ms=0, end_ms=1000)
        self.builds: list[str] = []
        self.serial = 0
        self.ready: dict[int, dict[int, int]] = {}
        self.locations: dict[int, str | None] = {}
        self.planned = self.batch_part()

    def close(self) -> None:
        partitions = SETS[self.chance.choice(list(SETS))]
        vector = {p: self.record.covered.get(p, FIRST[p]) + self.chance.randrange(-1, 20) for p in partitions}
        known = max(0, self.record.version - self.chance.choice((0, 0, 0, 1)))
        before = self.record
        self.record = segments.close(before, vector, version=known, now_ms=1, by="a leader")
        assert known == before.version or self.record is before, "another version is not closed"

    def upload(self) -> None:
        name = self.chance.choice(list(SETS))
        ranges = []
        for p in SETS[name]:
            start = FIRST[p] if self.record.is_rebuilt else self.record.covered.get(p, FIRST[p])
            end = self.record.target.get(p, start + 5) + self.chance.choice((0, 0, 0, 0, 0, 1, -1))
            middle = self.chance.choice((start, (start + end) // 2))
            pieces = [(start, end)] if middle in (start, end) else [(start, middle), (middle, end)]
            ranges += [PartRange(p, low, high) for low, high in pieces]
        self.serial += 1
        part = StagedPart(name, f"staged/{self.serial}", tuple(ranges), rows=1, events=1, bytes=1)
        self.record = segments.add_part(self.record, part, partitions=PARTITIONS, first=FIRST, now_ms=1)

    def start_build(self) -> None:
        self.serial += 1
        build_id = f"b{self.serial}"
        attempt = BuildAttempt(build_id, self.record.version + 1, 1, f"history/{build_id}")
        self.record = segments.start_build(self.record, attempt)
        self.builds.append(build_id)

    def fail_build(self) -> None:
        if self.builds:
            self.record = segments.fail_build(self.record, self.chance.choice(self.builds), "killed")

    def promote(self) -> None:
        if self.builds:
            self.record = segments.promote(self.record, self.chance.choice(self.builds), events=1, now_ms=1)

    def requeue(self) -> None:
        self.record = segments.requeue(self.record, now_ms=1, by="an operator")

    def lose_base(self) -> None:
        if self.chance.random() < 0.3:
            self.record = segments.lose_base(self.record, "missing", now_ms=1, by="a build failed")

    def restore_base(self) -> None:
        if self.chance.random() < 0.3:
            self.record = segments.restore_base(
                self.record, partitions=PARTITIONS, first=FIRST, now_ms=1, by="an operator"
            )

    def replace(self) -> None:
        if self.chance.random() < 0.4:
            self.planned = self.batch_part()
        batch, version, part = self.planned
        self.record = segment_batches.replace_by_batch(
            self.record, batch, part, version=version, first=FIRST, now_ms=1, by="an operator"
        )

    def batch_part(self) -> tuple[str, int, StagedPart]:
        self.serial += 1
        vector = segment_batches.vector_of_batch(self.record, FIRST)
        ranges = tuple(PartRange(p, FIRST[p], end) for p, end in vector.items())
        part = StagedPart("batch", f"batches/{self.serial}", ranges, rows=1, events=1, bytes=1)
        return f"batch-{self.serial}", self.record.version + 1, part

    def purge(self) -> None:
        if self.chance.random() < 0.02:
            self.record = segments.purge(self.record, now_ms=1, by="an operator")

    def step(self) -> None:
        before = self.record
        action = self.chance.choice(
            (
                self.close,
                self.upload,
                self.upload,
                self.start_build,
                self.fail_build,
                self.promote,
                self.requeue,
                self.lose_base,
                self.restore_base,
                self.replace,
                self.purge,
            )
        )
        try:
            action()
        except Refused:
            assert self.record == before, "a refusal changes nothing"
        self.check(before)

    def check(self, before: SegmentRecord) -> None:
        now = self.record
        assert now.version in (before.version, before.version + 1)
        if now.version == before.version:
            assert (now.covered, now.location) == (before.covered, before.location), "they move together"
        else:
            assert before.state is SegmentState.REMOTE_PERSISTED
            assert now.covered == {**before.covered, **before.target}
            assert all(now.covered[p] >= before.covered.get(p, FIRST[p]) for p in PARTITIONS)
            assert (now.target, now.parts) == ({}, ())
            assert before.build is not None
            assert now.location == before.build.location
            began = before.pending_batch or ("" if before.base_lost else before.batch)
            assert (now.batch, now.pending_batch) == (began, ""), (
                "a version knows the batch that it began with"
            )
        known = self.ready.setdefault(now.version, now.covered)
        assert known == now.covered, "a version has one vector for ever"
        assert self.locations.setdefault(now.version, now.location) == now.location, "and one location"
        if now.state is SegmentState.REMOTE_PERSISTED:
            self.check_parts_join_exactly()
        if now.state is SegmentState.IMMUTABLE:
            missing = segments.missing_ranges(now, partitions=PARTITIONS, first=FIRST)
            complete = not missing and set(now.target) == set(PARTITIONS)
            assert complete == segments.joined(now, partitions=PARTITIONS, first=FIRST)
        if now.pending_batch:
            assert now.state is SegmentState.REMOTE_PERSISTED
            assert len(now.parts) == 1, "the batch alone says what the segment holds"
        if before.state is SegmentState.PURGED:
            assert now.state is SegmentState.PURGED

    def check_parts_join_exactly(self) -> None:
        for p in PARTITIONS:
            offsets = [
                n
                for part in self.record.parts
                for r in part.ranges
                if r.partition == p
                for n in range(r.start, r.end)
            ]
            start = FIRST[p] if self.record.is_rebuilt else self.record.covered.get(p, FIRST[p])
            assert sorted(offsets) == list(range(start, self.record.target[p])), "every offset once"


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_the_rule_holds(seed: int) -> None:
    life = Story(seed)
    for _ in range(200):
        life.step()


def test_the_stories_go_through_all_states() -> None:
    states = set()
    versions = rebuilt = replaced = fresh = taken_back = 0
    for seed in range(40):
        life = Story(seed)
        for _ in range(200):
            before = life.record
            life.step()
            states.add(life.record.state)
            replaced += bool(before.pending_batch) and life.record.version > before.version
            fresh += life.record.version == 1 and bool(life.record.batch)
            taken_back += bool(before.pending_batch) and life.record.state is SegmentState.IMMUTABLE
            rebuilt += life.record.base_lost and life.record.state is SegmentState.REMOTE_PERSISTED
        versions = max(versions, life.record.version)
    assert states == set(SegmentState)
    assert versions >= 3
    assert rebuilt
    assert replaced
    assert fresh
    assert taken_back


def closed(vector: dict[int, int]) -> SegmentRecord:
    fresh = SegmentRecord(cube="c", start_ms=0, end_ms=1000)
    return segments.close(fresh, vector, now_ms=1, by="a leader")


def with_part(record: SegmentRecord, path: str, *ranges: PartRange) -> SegmentRecord:
    part = StagedPart("rs1", path, ranges, rows=1, events=1, bytes=1)
    return segments.add_part(record, part, partitions=(0,), first={0: 0}, now_ms=1)


def test_parts_that_overlap_are_refused_and_what_is_missing_is_known() -> None:
    record = with_part(closed({0: 10}), "one", PartRange(0, 0, 4))
    with pytest.raises(Refused, match="no event is held twice"):
        with_part(record, "two", PartRange(0, 2, 10))
    with pytest.raises(Refused, match="no event is held twice"):
        with_part(record, "two", PartRange(0, 4, 8), PartRange(0, 6, 10))
    [missing] = segments.missing_ranges(record, partitions=(0,), first={0: 0})
    assert missing == PartRange(0, 4, 10)
    assert with_part(record, "two", missing).state is SegmentState.REMOTE_PERSISTED


def test_a_rival_upload_after_the_parts_have_joined_changes_nothing() -> None:
    whole = with_part(closed({0: 10}), "one", PartRange(0, 0, 10))
    assert with_part(whole, "rival", PartRange(0, 0, 3), PartRange(0, 3, 10)) == whole


def test_a_partition_without_new_events_joins_by_an_empty_range() -> None:
    record = closed({0: 0})
    assert record.state is SegmentState.IMMUTABLE
    assert with_part(record, "empty", PartRange(0, 0, 0)).state is SegmentState.REMOTE_PERSISTED

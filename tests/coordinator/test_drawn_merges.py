"""Merges among all else that happens to segments, drawn: what a statement chose to read stays readable."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from rtolap.base.errors import Corrupted, NotFound, NotYet, Refused
from rtolap.coordinator.merging import leftovers, states
from rtolap.coordinator.merging.merges import KEPT_MS
from rtolap.coordinator.merging.states import MergeCleanup, MergeState
from rtolap.coordinator.purge import GRACE_MS
from rtolap.metadata.merging import units
from rtolap.metadata.merging.units import HistoryUnit, history_units
from rtolap.metadata.records import MergedSet, SegmentRecord, standing
from rtolap.model.merging.specs import MergeSpec
from rtolap.model.segment import SegmentState
from rtolap.protocols.coordinator.messages import PlannedMerge

from tests.coordinator.test_merges import (
    ALL,
    DAY,
    GROUPS,
    KilledError,
    content,
    cuboids,
    passed,
    plan,
    ready,
    records,
    write,
)
from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster

SEEDS = range(12)
STEPS = 120
DAYS = 3
PAUSES_MS = (1, GRACE_MS // 2, GRACE_MS, GRACE_MS, KEPT_MS)
BASE = "+".join(ALL)
EVERY_CUBOID = sorted((BASE, "_all", "page"))


class Look(NamedTuple):
    """What a statement that began then reads."""

    at_ms: int
    units: tuple[HistoryUnit, ...]


def build_again(cluster: Cluster, record: SegmentRecord) -> None:
    """Build the next version of a segment, and promote it."""
    what = f"{record.name} v{record.version + 1}"
    entries = cuboids(what)
    build_id = cluster.build(record.name, cuboids=entries)
    build = cluster.client.segment(NAME, record.name).build
    assert build is not None
    location = f"history/{NAME}/{cluster.metadata.cube_id(NAME)}/{record.name}/v{build.version}-{build_id}"
    for entry in entries:
        for file in entry.files:
            cluster.files.write(f"{location}/{file.name}", content(what, entry.name))
    cluster.client.promote(NAME, record.name, build_id)


class DrawnMerges:
    """One cube, at which steps are drawn."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.cluster, self.rng = cluster, rng
        self.planned: list[PlannedMerge] = []
        self.written: list[MergeSpec] = []
        self.members: dict[str, set[tuple[str, int]]] = {}  # by the location of their set
        self.looks: list[Look] = []
        self.committed = self.sets_read = 0
        cluster.receiver("r1", "rs1")
        cluster.define(
            retention={}, merge={"to": ["day", "month"], "after_ms": HOUR_MS}, aggregation_groups=GROUPS
        )
        cluster.client.enable_cube(NAME)
        for hour in range(2, DAYS * DAY, 5):
            ready(cluster, hour)
        passed(cluster, 40 * DAY)

    def run(self) -> None:
        steps: dict[Callable[[], None], int] = {
            self.late: 3,
            self.closed_only: 1,
            self.requeue: 1,
            self.finish: 4,
            self.merge: 4,
            self.plan: 4,
            self.write: 8,
            self.commit: 10,
            self.clean: 5,
            self.clean_and_die: 2,
            self.pause: 6,
            self.purge: 1,
        }
        for _ in range(STEPS):
            (step,) = self.rng.choices(list(steps), list(steps.values()))
            with contextlib.suppress(Refused, NotYet):  # which has changed nothing
                step()
            self.look()
            self.check()

    def late(self) -> None:
        """A late event, maybe of an hour that had none."""
        ready(self.cluster, self.rng.randrange(DAYS * DAY))

    def closed_only(self) -> None:
        self.cluster.closed(self.rng.randrange(DAYS * DAY))

    def requeue(self) -> None:
        self.cluster.client.requeue(NAME, self.rng.choice(list(records(self.cluster))))

    def finish(self) -> None:
        """Build what waits for it."""
        for record in list(records(self.cluster).values()):
            if record.state is SegmentState.REMOTE_PERSISTED:
                build_again(self.cluster, record)

    def merge(self) -> None:
        """Merge with nothing between the steps."""
        self.plan()
        while self.planned:
            self.write()
        for spec in self.written[-2:]:
            self.commit(spec)

    def plan(self) -> None:
        self.planned += plan(self.cluster, *self.rng.choice((("day",), ("month",), ())))

    def write(self) -> None:
        if self.planned:
            planned = self.planned.pop(self.rng.randrange(len(self.planned)))
            if not self.cluster.files.exists(f"{planned.spec['folder']}/plan.json"):
                return  # it is cleaned up, and no driver lives for so long
            try:
                spec = write(self.cluster, planned)
            except (NotFound, Corrupted):  # a member's version is gone
                return
            self.written.append(spec)
            self.members[spec.location] = {(each.segment, each.version) for each in spec.members}

    def commit(self, spec: MergeSpec | None = None) -> None:
        """Commit a written merge: maybe one that was committed before, or is cleaned up."""
        if self.written:
            chosen = spec or self.rng.choice(self.written)
            try:
                self.committed += self.cluster.client.commit_merge(NAME, chosen.merge).committed
            except (Refused, NotYet, NotFound):
                self.written.remove(chosen)

    def clean(self) -> None:
        self.cluster.client.cleanup(NAME)

    def clean_and_die(self) -> None:
        purge = self.cluster.coordinator.purge
        left, delete = [self.rng.randrange(6)], purge._store.delete_tree

        def delete_some(path: str) -> None:
            if not left[0]:
                raise KilledError
            left[0] -= 1
            delete(path)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(purge._store, "delete_tree", delete_some)
            try:
                purge.cleanup(NAME)
            except KilledError:
                return

    def pause(self) -> None:
        self.cluster.clock.advance_ms(self.rng.choice(PAUSES_MS))

    def purge(self) -> None:
        self.cluster.client.purge(NAME, self.rng.randrange(DAY // 2) * HOUR_MS)

    def look(self) -> None:
        """Begin a statement over all of history, or over a part of it."""
        known = [each for each in self.readable() if self.rng.random() < 0.9 or self.rng.random() < 0.5]
        chosen = self.readable() if self.rng.random() < 0.5 else known
        now_ms = self.cluster.metadata.clock.now_ms()
        self.looks.append(Look(now_ms, tuple(history_units(chosen))))
        self.looks = [look for look in self.looks if now_ms - look.at_ms < GRACE_MS]

    def readable(self) -> list[SegmentRecord]:
        control = self.cluster.metadata.control(NAME)
        found = standing(control, records(self.cluster))
        return [each for each in sorted(found, key=lambda each: each.start_ms) if each.version]

    def check(self) -> None:
        """Every statement that began within the grace time finds what it chose."""
        files = self.cluster.files
        for look in self.looks:
            for unit in look.units:
                assert files.exists(f"{unit.location}/manifest.json"), unit.title
                found = sorted(files.folders(unit.location))
                if unit.is_base_only:
                    assert BASE in found, unit.title
                else:
                    assert found == EVERY_CUBOID, unit.title
                if unit.level:
                    self.sets_read += 1
                    found_members = {(each.name, each.version) for each in unit.records}
                    assert found_members == self.members[unit.location], unit.title


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_statement_chose_stays_readable_while_it_runs(cluster: Cluster, seed: int) -> None:
    drawn = DrawnMerges(cluster, random.Random(seed))
    drawn.run()
    assert drawn.committed, f"seed {seed}: the draw merges nothing"
    assert drawn.sets_read, f"seed {seed}: no statement reads a set"


@pytest.mark.parametrize("fault", ["trims_at_once", "deletes_at_once", "reads_parts_of_sets"])
def test_the_draw_notices_who_does_not_wait_or_count(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "trims_at_once":
        early = {(MergeState.WHOLE, False): MergeCleanup.TRIM_MEMBERS}
        monkeypatch.setattr(leftovers, "CLEANUPS", {**states.CLEANUPS, **early})
    elif fault == "deletes_at_once":
        early = {(MergeState.WRITTEN, False): MergeCleanup.DELETE}
        monkeypatch.setattr(leftovers, "CLEANUPS", {**states.CLEANUPS, **early})
    else:
        monkeypatch.setattr(units, "_sets", every_named_set)
    drawn = DrawnMerges(cluster, random.Random(1))
    with pytest.raises(AssertionError, match=f"{NAME}/"):
        drawn.run()


def every_named_set(
    records: Sequence[SegmentRecord], level: str
) -> list[tuple[MergedSet, list[SegmentRecord]]]:
    """Return the sets that are named, though a member may be missing."""
    by_set: dict[MergedSet, list[SegmentRecord]] = {}
    for record in records:
        for each in record.merged:
            if each.level == level:
                by_set.setdefault(each, []).append(record)
    return list(by_set.items())

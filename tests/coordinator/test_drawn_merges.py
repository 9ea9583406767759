"""Merges among all else that happens to segments, drawn: what a statement chose to read stays readable."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from rtolap.base.errors import AlreadyExists, Corrupted, NotFound, NotYet, Refused
from rtolap.coordinator.builds.batches import PLANS_KEPT_MS
from rtolap.coordinator.merging import leftovers, states
from rtolap.coordinator.merging.merges import KEPT_MS
from rtolap.coordinator.merging.states import MergeCleanup, MergeState
from rtolap.coordinator.purge import GRACE_MS
from rtolap.cubes.format.history import read_manifest
from rtolap.cubes.format.merge_inputs import read_set
from rtolap.metadata.merging import units
from rtolap.metadata.merging.units import HistoryUnit, history_units
from rtolap.metadata.records import MergedSet, SegmentRecord, WatermarkRecord, standing
from rtolap.model.merging.specs import MergeSpec
from rtolap.model.segment import SegmentState
from rtolap.object_store.store import ObjectStore
from rtolap.protocols.coordinator.messages import (
    AlterRequest,
    PlannedMerge,
)

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
from tests.support.batches.by_hand import stage_empty
from tests.support.batches.drawn import spec_of
from tests.support.cubes.coordinator_harness import CUBE, HOUR_MS, NAME, TABLE, Cluster
from tests.support.seeds import so_many
from tests.support.twins.metadata import MemoryStore

SEEDS = range(so_many(5, 8))
FAULT_SEEDS = range(20, 30)
STEPS = 120
DAYS = 3
KILLED = 0.2  # of the steps are killed, if they write so much
DEFINITION: dict[str, Any] = {
    **CUBE,
    "retention": {},
    "merge": {"to": ["day", "month"], "after_ms": HOUR_MS},
    "aggregation_groups": GROUPS,
}
PAUSES_MS = (1, GRACE_MS // 2, GRACE_MS, GRACE_MS, KEPT_MS)
BASE = "+".join(ALL)
EVERY_CUBOID = sorted((BASE, "_all", "page"))


class Look(NamedTuple):
    """What a statement that began then reads, of the cube of that id."""

    at_ms: int
    cube_id: str
    units: tuple[HistoryUnit, ...]


def build_again(cluster: Cluster, cube: str, record: SegmentRecord) -> None:
    """Build the next version of a segment, and promote it."""
    what = f"{cube} {record.name} v{record.version + 1}"
    entries = cuboids(what)
    build_id = cluster.build(record.name, of=cube, cuboids=entries)
    build = cluster.client.segment(cube, record.name).build
    assert build is not None
    location = f"history/{cube}/{cluster.metadata.cube_id(cube)}/{record.name}/v{build.version}-{build_id}"
    for entry in entries:
        for file in entry.files:
            cluster.files.write(f"{location}/{file.name}", content(what, entry.name))
    cluster.client.promote(cube, record.name, build_id)


class DrawnMerges:
    """One cube, later with a second revision, at which steps are drawn. Any step may be killed."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.cluster, self.rng = cluster, rng
        self.planned: list[PlannedMerge] = []
        self.written: list[MergeSpec] = []
        self.members: dict[str, set[tuple[str, int]]] = {}  # by the location of their set
        self.looks: list[Look] = []
        self.committed = self.sets_read = self.batches = self.killed = 0
        self.done: Counter[str] = Counter()
        cluster.receiver("r1", "rs1")
        with contextlib.suppress(AlreadyExists):  # by an earlier draw
            cluster.client.create_table(TABLE)
        self.create()

    def create(self) -> None:
        self.cluster.client.create_cube(DEFINITION)
        self.cluster.client.enable_cube(NAME)
        for hour in range(2, DAYS * DAY, 5):
            ready(self.cluster, hour)
        passed(self.cluster, 40 * DAY)

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
            self.clean: 7,
            self.pause: 6,
            self.purge: 1,
            self.batch: 3,
            self.revise: 1,
            self.fill: 2,
            self.recreate: 1,
        }
        for _ in range(STEPS):
            (step,) = self.rng.choices(list(steps), list(steps.values()))
            try:
                with self.killed_somewhere() if self.rng.random() < KILLED else contextlib.nullcontext():
                    step()
                self.done[step.__name__] += 1
            except (Refused, NotYet):  # which has changed nothing
                pass
            except KilledError:
                self.killed += 1
                if step == self.recreate:  # the next leader ends the drop, and whoever asked creates it anew
                    self.recreate()
            self.look()
            self.check()
        self.end()

    @contextlib.contextmanager
    def killed_somewhere(self) -> Iterator[None]:
        """Kill the coordinator before or after one of its next writes, wherever they go."""
        left = [self.rng.randrange(8)]
        is_after = self.rng.random() < 0.5

        def mortal(whole: Callable[..., Any]) -> Callable[..., Any]:
            def called(*arguments: Any, **named: Any) -> Any:
                left[0] -= 1
                if left[0] < 0 and not is_after:
                    raise KilledError
                done = whole(*arguments, **named)
                if left[0] < 0:
                    raise KilledError
                return done

            return called

        with pytest.MonkeyPatch.context() as patched:
            for name in ("write", "delete_tree"):
                patched.setattr(ObjectStore, name, mortal(getattr(ObjectStore, name)))
            patched.setattr(MemoryStore, "commit", mortal(MemoryStore.commit))
            yield

    def cubes(self) -> list[str]:
        """Return the revisions, oldest first."""
        return [each.name for each in self.cluster.metadata.revisions(NAME)]

    def bounds_ms(self, cube: str) -> tuple[int | None, int | None]:
        """Return from when and until when statements read a revision."""
        series = self.cluster.metadata.revisions(NAME)
        place = [each.name for each in series].index(cube)
        own = series[place].revision
        following = series[place + 1].revision if place + 1 < len(series) else None
        return (None if own is None else own.since_ms), (None if following is None else following.since_ms)

    def hour_of(self, cube: str) -> int:
        """Draw an hour that the revision takes events of."""
        revision = self.cluster.metadata.cube(cube).revision
        if revision is None or revision.number == 1:
            return self.rng.randrange(DAYS * DAY)
        return self.rng.randrange((revision.reads_from_ms or 0) // HOUR_MS, (DAYS + 1) * DAY)

    def late(self) -> None:
        """A late event, maybe of an hour that had none."""
        cube = self.rng.choice(self.cubes())
        ready(self.cluster, self.hour_of(cube), cube)

    def closed_only(self) -> None:
        cube = self.rng.choice(self.cubes())
        self.cluster.closed(self.hour_of(cube), cube=cube)

    def requeue(self) -> None:
        cube = self.rng.choice(self.cubes())
        if known := list(records(self.cluster, cube)):
            self.cluster.client.requeue(cube, self.rng.choice(known))

    def finish(self) -> None:
        """Build what waits for it."""
        for cube in self.cubes():
            for record in list(records(self.cluster, cube).values()):
                if record.state is SegmentState.REMOTE_PERSISTED:
                    build_again(self.cluster, cube, record)

    def batch(self) -> None:
        """Hand a batch over for some hours, of which parts may be merged, and maybe build it."""
        cube = self.rng.choice(self.cubes())
        first = self.hour_of(cube)
        last = min(first + self.rng.randrange(6), DAYS * DAY - 1)
        if last < first:
            return
        self.batches += 1
        batch = f"b{self.batches}"
        self.cluster.report()
        planned = self.cluster.client.plan_batch(
            cube, batch, first * HOUR_MS, (last + 1) * HOUR_MS, {"format": "parquet", "path": "file:///x/"}
        )
        stage_empty(self.cluster.files, spec_of(planned.spec), 3)
        if self.rng.random() < 0.8:
            self.cluster.client.apply_batch(cube, batch)
        if self.rng.random() < 0.5:
            self.finish()

    def revise(self) -> None:
        """Begin a second revision behind all segments, which is filled with older events."""
        if len(self.cubes()) > 1:
            return
        measures = [*DEFINITION["measures"], {"function": "max", "column": "price"}]
        definition = {**DEFINITION, "measures": measures}
        self.cluster.alter(
            NAME, AlterRequest(definition=definition, table=TABLE, new_revision=True, older="fill")
        )
        second = self.cubes()[-1]
        self.cluster.metadata.publish_watermark(second, WatermarkRecord(40 * DAY * HOUR_MS))

    def fill(self) -> None:
        """Have the second revision build what is left of the newest day that it does not answer for yet."""
        if len(self.cubes()) < 2:
            return
        first, second = self.cubes()
        since_ms, _ = self.bounds_ms(second)
        assert since_ms is not None, "it begins at a moment"
        for record in records(self.cluster, first).values():
            if since_ms - DAY * HOUR_MS <= record.start_ms < since_ms and record.version:
                known = records(self.cluster, second).get(record.name)
                if known is None or not known.version:
                    ready(self.cluster, record.start_ms // HOUR_MS, second)
        self.cluster.report()
        self.cluster.coordinator._filling.run(second)

    def recreate(self) -> None:
        """Drop the cube with its revisions, and make one of the same name. Statements of the old one fail."""
        self.drop()
        self.create()

    def drop(self) -> None:
        self.looks.clear()
        if NAME in self.cluster.metadata.cubes():
            self.cluster.client.disable_cube(NAME)
            self.cluster.client.drop_cube(NAME)

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
        """Commit a written merge: one that was committed before, cleaned up, or dropped."""
        if self.written:
            chosen = spec or self.rng.choice(self.written)
            try:
                self.committed += self.cluster.client.commit_merge(chosen.cube, chosen.merge).committed
            except (Refused, NotYet, NotFound):
                self.written.remove(chosen)

    def clean(self) -> None:
        for cube in self.cubes():
            self.cluster.coordinator.purge.cleanup(cube)

    def pause(self) -> None:
        self.cluster.clock.advance_ms(self.rng.choice(PAUSES_MS))

    def purge(self) -> None:
        self.cluster.client.purge(NAME, self.rng.randrange(DAY // 2) * HOUR_MS)

    def look(self) -> None:
        """Begin a statement over all of history, or over a part of it."""
        now_ms = self.cluster.metadata.clock.now_ms()
        for cube in self.cubes():
            whole = self.readable(cube)
            known = [each for each in whole if self.rng.random() < 0.9 or self.rng.random() < 0.5]
            chosen = whole if self.rng.random() < 0.5 else known
            cube_id = self.cluster.metadata.cube_id(cube)
            self.looks.append(Look(now_ms, cube_id, tuple(history_units(chosen))))
        self.looks = [look for look in self.looks if now_ms - look.at_ms < GRACE_MS]

    def readable(self, cube: str) -> list[SegmentRecord]:
        control = self.cluster.metadata.control(cube)
        since_ms, until_ms = self.bounds_ms(cube)
        found = [
            each
            for each in standing(control, records(self.cluster, cube))
            if each.version
            and (since_ms is None or each.start_ms >= since_ms)
            and (until_ms is None or each.start_ms < until_ms)
        ]
        return sorted(found, key=lambda each: each.start_ms)

    def check(self) -> None:
        """Every statement that began within the grace time finds what it chose, and counts it right."""
        files = self.cluster.files
        for look in self.looks:
            for unit in look.units:
                assert files.exists(f"{unit.location}/manifest.json"), unit.title
                assert f"/{look.cube_id}/" in unit.location, f"{unit.title} is of another creation"
                found = sorted(files.folders(unit.location))
                if unit.is_base_only:
                    assert BASE in found, unit.title
                else:
                    assert found == EVERY_CUBOID, unit.title
                if unit.level:
                    self.sets_read += 1
                    found_members = {(each.name, each.version) for each in unit.records}
                    assert found_members == self.members[unit.location], unit.title
                    events = read_set(files, unit.location).events
                else:
                    events = read_manifest(files, unit.location).events
                assert events == sum(each.events for each in unit.records), f"{unit.title} counts otherwise"

    def end(self) -> None:
        """After a time in which nothing happens, clean-ups leave what records name, and nothing else."""
        self.looks.clear()
        self.finish()
        for _ in range(3):
            self.cluster.clock.advance_ms(PLANS_KEPT_MS)
            self.clean()
        files = self.cluster.files
        for cube in self.cubes():
            known = records(self.cluster, cube)
            named = {each.location for each in known.values()}
            named |= {each.location for record in known.values() for each in record.merged}
            cube_id = self.cluster.metadata.cube_id(cube)
            for level in ("day", "month"):
                for merge in files.folders(f"merged/{cube}/{cube_id}/{level}"):
                    location = f"merged/{cube}/{cube_id}/{level}/{merge}/set"
                    assert location in named, f"{NAME}/{location} is a stray"
            for root in ("history", "merged", "staged"):
                left = set(files.folders(f"{root}/{cube}")) - {cube_id}
                assert not left, f"{NAME}/{root}: creations {left} are strays"
            left = set(files.folders(f"batches/{cube}/{cube_id}"))
            assert not left, f"{NAME}/: batches {left} are strays"


@pytest.mark.seeded
@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_statement_chose_stays_readable_while_it_runs(cluster: Cluster, seed: int) -> None:
    drawn = DrawnMerges(cluster, random.Random(seed))
    drawn.run()
    assert drawn.killed, f"seed {seed}: no step is killed"
    assert drawn.done["batch"], f"seed {seed}: there is no batch"
    assert drawn.done["recreate"] or drawn.committed, f"seed {seed}: the draw merges nothing"


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
    for seed in FAULT_SEEDS:
        drawn = DrawnMerges(cluster, random.Random(seed))
        try:
            drawn.run()
        except AssertionError as error:
            said = str(error)
            break
        drawn.drop()
    else:
        said = "nothing"
    assert f"{NAME}/" in said, f"{len(FAULT_SEEDS)} draws say {said}"


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

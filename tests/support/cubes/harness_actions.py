"""The actions of a seeded run: everything that services, networks, operators and accidents do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import msgspec
from rtolap.base.errors import Corrupted, NotFound, Refused
from rtolap.coordinator.builds.check import lost_base
from rtolap.cubes.format.manifest import MANIFEST_NAME
from rtolap.cubes.receiver.reports import cube_report
from rtolap.metadata.change_log import change_log, logged
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.metadata.store import Operation
from rtolap.model.cube import AggregationGroup, Measure
from rtolap.model.evolution.revision_life import RevisionState
from rtolap.model.segment import SegmentState, parse_segment_name
from rtolap.protocols.coordinator.messages import (
    AlterRequest,
    BatchPlanMessage,
    BatchRequest,
    BuildSpecMessage,
    DrainRequest,
    HeartbeatRequest,
    ReassignRequest,
)

from tests.support.batches.drawn import spec_of, stage
from tests.support.cubes.builders import WINDOW_MS, random_event
from tests.support.cubes.cluster import BASE_FILE, REPLICA_SETS, Cluster
from tests.support.cubes.mortal_coordinator import LOST_AFTER_MS, Killed, MortalCoordinator
from tests.support.cubes.stepped_receiver import Receiver
from tests.support.query.visitors import with_visitor

T = TypeVar("T")

_DAMAGED = b"damaged"
_NOT_READING = (RevisionState.ENDED, RevisionState.RETIRED)

GROUPS = (
    (),
    (AggregationGroup(("kind",)),),
    (AggregationGroup(("kind", "place")),),
    (AggregationGroup(("place", "hour_start")),),
)


class Actions:
    """Each method is one step. Errors of `PASSING` are part of the game; the scheduler counts them."""

    def __init__(self, cluster: Cluster, random_: random.Random, fault_rate: float) -> None:
        self.cluster, self.random = cluster, random_
        self.fault_rate = self.kill_rate = fault_rate
        self.counts: Counter[str] = Counter()
        self.specs: list[BuildSpecMessage] = []
        self.cut_partitions: set[int] = set()
        self.batches: list[str] = []
        self.batches_tried = self.builds_failed = 0
        self.beside = random.Random("who has reported")
        self.reported: set[int] = set()  # starts of segments without history whose events a receiver held
        self.merges: list[tuple[str, str]] = []
        self.held_before: dict[str, set[int]] = {}
        self.drained_before: frozenset[str] = frozenset()
        self.killed_sets: set[str] = set()
        cluster.ensemble.fault = self._fault

    def _fault(self, operations: Sequence[Operation]) -> Literal["before", "after"] | None:
        if self.random.random() >= self.fault_rate:
            return None
        self.counts["broken commits"] += 1
        return self.random.choice(("before", "after"))

    def _any(self) -> Receiver:
        return self.random.choice(self.cluster.alive())

    def _some(self) -> list[Receiver]:
        alive = self.cluster.alive()
        return self.random.sample(alive, min(len(alive), self.random.randrange(1, 6)))

    # -- events and time --------------------------------------------------------------------------------

    def produce(self) -> None:
        now_ms = self.cluster.clock.now_ms()
        for _ in range(self.random.randrange(1, 40)):
            value, event = random_event(self.random, now_ms)
            if value is not None and event is not None:
                value, event = with_visitor(self.random, value, event)
            self.cluster.produce(self.random.randrange(len(self.cluster.log)), value, event)

    def cut_log(self) -> None:
        """Cut the tail of a log, as far as no vector counts it. Mostly it grows again before receivers look,
        which all do within a second."""
        part = self.random.randrange(len(self.cluster.log))
        counted = max(
            (
                max(record.covered.get(part, 0), record.target.get(part, 0))
                for record in self.cluster.records().values()
            ),
            default=0,
        )
        end = len(self.cluster.log[part])
        if counted >= end:
            return
        at = self.random.randrange(max(counted, end - 30), end)
        self.cluster.cut(part, at)
        self.cut_partitions.add(part)
        self.counts["logs cut"] += 1
        if self.random.random() < 0.7:
            self.produce()
        self.cluster.clock.advance_ms(1_000)
        for receiver in self.cluster.receivers:
            receiver.look()
            receiver.consume()
            receiver.core.look_up_log_ends()
            receiver.consume()

    def advance(self) -> None:
        self.cluster.clock.advance_ms(self.random.randrange(1, WINDOW_MS // 4))

    # -- receivers --------------------------------------------------------------------------------------

    def set_clock(self) -> None:
        """A time server sets the wall clock, or the machine has slept."""
        step_ms = self.random.choice((-20, -2, -1, 1, 2, 20)) * self.random.randrange(WINDOW_MS)
        self.cluster.clock.set_by_ms(step_ms)
        self.counts["clock set"] += 1

    def consume(self) -> None:
        for receiver in self._some():
            for _ in range(self.random.randrange(1, 4)):
                receiver.consume()

    def look(self) -> None:
        for receiver in self._some():
            receiver.look()

    def close(self) -> None:
        self._any().close_due()

    def realign(self) -> None:
        for receiver in self._some():
            self.counts["realigned"] += receiver.realign()

    def upload(self) -> None:
        self.counts["uploads"] += self._any().upload(times=self.random.choice((1, 1, 2)))

    def merge(self) -> None:
        self._any().merge()

    def checkpoint(self) -> None:
        self._any().checkpoint()

    def write_out(self) -> None:
        """Write out the checkpoint that is under way, without taking it over."""
        self._any().write_out()

    def crash(self) -> None:
        self.counts["crashes"] += 1
        self._any().crash()

    def lose_disk(self) -> None:
        self.counts["lost disks"] += 1
        self._any().lose_disk()

    def elect(self) -> None:
        """Elect anybody, nobody or both: correctness does not depend on there being one leader."""
        receiver = self._any()
        receiver.leading = not receiver.leading

    def force(self) -> None:
        receiver = self._any()
        receiver.core.force.update(receiver.core.state.segments)

    # -- requests to the coordinator --------------------------------------------------------------------

    def command(self, what: Callable[[MortalCoordinator], T]) -> T | None:
        """Send a request. The leader may be killed at any commit of it, before or after it; the sender, who
        then gets no response, mostly retries at the next leader. Returns None where it does not."""
        while True:
            if self.random.random() < self.kill_rate:
                self.cluster.coordinator.session.die(
                    self.random.randrange(3), self.random.choice(("before", "after"))
                )
            try:
                return what(self.cluster.coordinator)
            except Killed:
                self.counts["coordinators killed"] += 1
                self.cluster.fail_over()
                if self.random.random() < 0.25:
                    return None
            finally:
                self.cluster.coordinator.session.live_on()

    def build(self) -> bool:
        """Run one build from the queue: start, Spark, promote; the job or its task may end in between."""
        queue = self.command(lambda leader: leader.builds.queue())
        waiting = [entry for entry in queue.entries if entry.waits_for is None] if queue else []
        if not waiting:
            return False
        entry = waiting[self.builds_failed % len(waiting)]  # each is built by a task of its own
        spec = self.command(lambda leader: leader.builds.start(entry.cube, entry.segment))
        if spec is None:
            return True
        self.specs.append(spec)
        if self.random.random() < self.kill_rate / 2:
            self.counts["builds killed"] += 1
            return True
        try:
            self.cluster.build(spec)
        except (Corrupted, NotFound) as error:
            why = str(error)
            self.command(lambda leader: leader.builds.fail(spec.cube, spec.segment, spec.build_id, why))
            self.counts["builds failed"] += 1
            self.builds_failed += 1
            return True
        self.promote(spec)
        self.counts["builds"] += 1
        self.counts["versions rebuilt"] += spec.base_lost
        self.counts["versions of a batch"] += bool(spec.batch)
        return True

    def promote(self, spec: BuildSpecMessage | None = None) -> None:
        """Promote the build, else any that there ever was: a task lived on, or was cleared."""
        if spec is None and not self.specs:
            return
        chosen = spec or self.random.choice(self.specs)
        self.command(lambda leader: leader.builds.promote(chosen.cube, chosen.segment, chosen.build_id))

    def requeue(self) -> None:
        ready = [name for name, r in self.cluster.records().items() if r.state is SegmentState.READY]
        if ready:
            self._requeue(self.random.choice(ready))

    def plan_batch(self) -> None:
        """Plan a batch of some windows and stage it, or be killed before that is done. The leader may have
        just begun to lead; else the receivers have reported to it.

        Raises AssertionError where a segment is planned whose events a receiver holds that nothing covers.
        """
        first = self.cluster.clock.now_ms() // WINDOW_MS - self.random.randrange(1, 30)
        ready = SegmentState.READY
        built = [each.start_ms for each in self.cluster.records().values() if each.state is ready]
        if built and self.random.random() < 0.7:
            first = self.random.choice(built) // WINDOW_MS
        is_fresh = self.beside.random() < 0.25
        held = sorted(self.reported - {record.start_ms for record in self.cluster.records().values()})
        if is_fresh and held:
            first = self.beside.choice(held) // WINDOW_MS
        request = self._request(first, self.random.choice((1, 1, 2, 3)))
        if is_fresh:
            self.cluster.fail_over()
        else:
            self.report(self.cluster.alive())
        plan = self.command(lambda leader: leader.batches.plan(self.cluster.cube, request))
        self.batches.append(request.batch)
        if plan is not None:
            self._check_planned(request)
        if plan is not None and self.random.random() >= self.kill_rate / 2:
            self._stage(plan)

    def replace_lost_batches(self) -> None:
        """Segments wait for rows of a batch that are lost: it is withdrawn if it is not READY yet and there
        is a version before it. Else another batch is applied: nobody else can bring these rows."""
        for name, record in self.cluster.records().items():
            if not self._has_lost_rows_of_batch(record):
                continue
            self.counts["batches lost"] += 1
            if record.pending_batch and record.version:
                self._requeue(name)
            else:
                self._replace(record)

    def _requeue(self, name: str) -> None:
        self.command(lambda leader: leader.builds.requeue(self.cluster.cube, name))

    def _replace(self, record: SegmentRecord) -> None:
        request = self._request(record.start_ms // WINDOW_MS, 1)
        plan = self.command(lambda leader: leader.batches.plan(self.cluster.cube, request))
        if plan is not None:
            self._stage(plan)
            self.command(lambda leader: leader.batches.apply(self.cluster.cube, request.batch))

    def _has_lost_rows_of_batch(self, record: SegmentRecord) -> bool:
        if record.state is SegmentState.READY:
            return False
        if record.pending_batch:
            return not all(self._is_whole(part.path) for part in record.parts)
        return bool(record.batch) and lost_base(self.cluster.store, record, read_all=True) is not None

    def _is_whole(self, path: str) -> bool:
        manifest = f"{path}/{MANIFEST_NAME}"
        return self.cluster.store.exists(manifest) and self.cluster.store.read(manifest) != _DAMAGED

    def _request(self, first: int, windows: int) -> BatchRequest:
        """Return a request for so many windows, with an id of its own."""
        self.batches_tried += 1
        return BatchRequest(
            batch=f"b{self.batches_tried - 1}",
            start_ms=first * WINDOW_MS,
            end_ms=(first + windows) * WINDOW_MS,
            source={"format": "parquet", "path": "drawn"},
        )

    def _stage(self, plan: BatchPlanMessage) -> None:
        staged = stage(self.cluster.store, self.cluster.schema, spec_of(plan.spec), self.random)
        self.cluster.staged_batches.update(staged)
        self.counts["batches staged"] += 1

    def _check_planned(self, request: BatchRequest) -> None:
        """Whatever was held of a segment is held until the segment has a record. What receivers have read
        since they reported, to this leader or another, comes after the plan."""
        known = {record.start_ms for record in self.cluster.records().values()}
        logs = self.cluster.log.values()  # which may have lost what was reported
        there = {event.segment_ms for events in logs for event in events if event is not None}
        held = self.reported & there & set(range(request.start_ms, request.end_ms, WINDOW_MS)) - known
        assert not held, f"a batch of {sorted(held)}, of which a receiver has reported that it holds events"

    def apply_batch(self) -> None:
        """Apply a batch, mostly one of the newest."""
        if self.batches:
            batch = self.random.choice(self.batches[-3:] if self.random.random() < 0.8 else self.batches)
            self.command(lambda leader: leader.batches.apply(self.cluster.cube, batch))
            self.counts["batches applied"] += 1

    def alter(self) -> None:
        """Alter groups and what receivers close and merge by, sometimes with what has to be refused beside
        them; a receiver may start again."""
        running = self.cluster.metadata.cube(self.cluster.cube)
        late = msgspec.structs.replace(running.late, merge_after_ms=self.random.choice((0, 1_000, 60_000)))
        segment = msgspec.structs.replace(
            running.segment, allowed_lateness_ms=self.random.choice((0, 1_000, WINDOW_MS))
        )
        is_refused = self.random.random() < 0.3
        if is_refused:
            policy: Literal["merge", "drop"] = "drop" if late.policy == "merge" else "merge"
            late = msgspec.structs.replace(late, policy=policy)
        cube = msgspec.structs.replace(
            running,
            aggregation_groups=self.random.choice(GROUPS),
            late=late,
            segment=segment,
            revision=None,
        )
        request = AlterRequest(definition=msgspec.to_builtins(cube), dry_run=self.random.random() < 0.2)
        try:
            done = self.command(lambda leader: leader.alterations.alter(self.cluster.cube, request))
        except Refused:
            self.counts["alterations refused"] += is_refused
            raise
        self.counts["alterations"] += done is not None and done.applied
        if self.random.random() < 0.5:
            self._any().crash()

    def report_replay(self) -> None:
        """Leaders report from where on history may need the log."""
        for receiver in self.cluster.receivers:
            if receiver.leading and (offsets := receiver.core.replay_from()):
                self.cluster.metadata.set_replay_from(self.cluster.cube, receiver.replica_set, offsets)

    def revise(self) -> None:
        """Have a revision with one more measure follow the cube, once. A receiver may start again."""
        if self.cluster.until_ms() is not None or not self.cluster.records():
            return
        self.counts["revisions tried"] += 1
        running = self.cluster.metadata.cube(self.cluster.cube)
        cube = msgspec.structs.replace(running, measures=(*running.measures, Measure("max", "price")))
        request = AlterRequest(definition=msgspec.to_builtins(cube), new_revision=True)
        self.command(lambda leader: leader.alterations.alter(self.cluster.cube, request))
        self.counts["revisions"] += self.cluster.until_ms() is not None
        if self.random.random() < 0.5:
            self._any().crash()

    def end_revision(self) -> None:
        """The leader looks whether the older revision may end, or has to be read again; it may be killed."""
        before = self.cluster.metadata.control(self.cluster.cube).ended
        state = self.command(lambda leader: leader.end_revision(self.cluster.cube))
        self.counts["revisions ended"] += not before and state in _NOT_READING
        self.counts["revisions resumed"] += before and state is RevisionState.READING

    def lose_part(self) -> None:
        """Lose a staged part, or damage a file of it; a person may request a build, or not."""
        staged = [record for record in self.cluster.records().values() if record.parts]
        if not staged:
            return
        record = self.random.choice(staged)
        part = self.random.choice(record.parts)
        if self.random.random() < 0.5:
            self.cluster.store.delete_tree(part.path)
        else:
            self.cluster.store.write(f"{part.path}/{MANIFEST_NAME}", _DAMAGED)
        self.counts["parts lost"] += 1
        if self.random.random() < 0.3:
            self._requeue(record.name)

    def lose_base(self) -> None:
        """Lose the base cuboid of a version, or damage it with its length kept, which only a build sees; a
        person may request a build, or not."""
        built = [
            record
            for record in self.cluster.records().values()
            if record.location and self.cluster.store.exists(f"{record.location}/{BASE_FILE}")
        ]
        if not built:
            return
        record = self.random.choice(built)
        path = f"{record.location}/{BASE_FILE}"
        if self.random.random() < 0.5:
            self.cluster.store.delete_tree(f"{record.location}/base")
        else:
            self.cluster.store.write(path, bytes(self.cluster.store.size_bytes(path)))
        self.counts["bases lost"] += 1
        if self.random.random() < 0.5:
            self._requeue(record.name)

    def age(self) -> None:
        """A record stands again as an earlier version has left it: in a node of its own, vectors inside."""
        ready = [r for r in self.cluster.records().values() if r.state is SegmentState.READY]
        if not ready:
            return
        record, cube = self.random.choice(ready), self.cluster.cube
        nodes, store = self.cluster.metadata.nodes, self.cluster.metadata.store
        place = nodes._place(cube, record.range)
        if place.own is not None:
            return
        old = msgspec.structs.replace(record, vectors=None)
        log = change_log(store, cube, None)
        store.commit([*nodes._opens(cube, record.range, place, old), logged(cube, record.name, log, None)])
        self.counts["records aged"] += 1

    def settle(self) -> None:
        """The leader moves what an earlier version has left, and may be killed at it."""
        moved = self.command(lambda leader: leader.settle(self.cluster.cube))
        self.counts["records settled"] += moved or 0

    def purge(self) -> None:
        before_ms = self.cluster.clock.now_ms() - self.random.randrange(1, 4) * WINDOW_MS
        self.command(lambda leader: leader.purge.purge(self.cluster.cube, before_ms))
        self.counts["purges"] += 1

    def cleanup(self) -> None:
        self.command(lambda leader: leader.purge.cleanup(self.cluster.cube))

    def reassign(self) -> None:
        """Reassign by a level plan over some replica sets, or by any assignment at all."""
        done = self.command(lambda leader: leader.reassignments.reassign(self.cluster.cube, self._wanted()))
        self.counts["moved partitions"] += len(done.moves) if done is not None else 0

    def plan_move(self) -> None:
        """Begin a move that is to go unnoticed."""
        wanted = self._wanted().model_copy(update={"warm_up": True})
        done = self.command(lambda leader: leader.reassignments.reassign(self.cluster.cube, wanted))
        self.counts["moves planned"] += done is not None and done.planned_epoch is not None

    def cancel_move(self) -> None:
        self.command(lambda leader: leader.moves.cancel(self.cluster.cube))
        self.counts["moves cancelled"] += 1

    # -- replica sets that are drained and lost ---------------------------------------------------------

    def drain_set(self) -> None:
        """Somebody has a replica set drained, or repeats it with another bound."""
        owners = [name for name, owned in self._control().assignment.items() if owned]
        if not owners:
            return  # of a revision that has ended
        name = self.random.choice(sorted(REPLICA_SETS) if self.random.random() < 0.3 else sorted(owners))
        request = DrainRequest(cubes_max=self.random.choice((1, 2)))
        self._caught_up()
        self.command(lambda leader: leader.drains.drain(name, request))
        self.counts["drains"] += 1

    def undo_drain(self) -> None:
        drained, planned = sorted(self.cluster.metadata.drained()), self._control().next
        if planned is not None and planned.relieves in drained:
            drained = [planned.relieves]
        if drained:
            name = self.random.choice(drained)
            self.command(lambda leader: leader.drains.drain(name, DrainRequest(undo=True)))
            self.counts["drains undone"] += 1

    def kill_set(self) -> None:
        """All receivers of a replica set are killed; of the three, at least one lives on."""
        living = sorted({receiver.replica_set for receiver in self.cluster.alive()})
        if len(living) > 1:
            name = self.random.choice(living)
            self.cluster.kill_set(name)
            self.killed_sets.add(name)
            self.counts["replica sets killed"] += 1

    def revive_set(self) -> None:
        """They start again; disks may be lost with them."""
        if self.killed_sets:
            name = self.random.choice(sorted(self.killed_sets))
            self.killed_sets.remove(name)
            if self.random.random() < 0.3:
                for receiver in self.cluster.receivers:
                    if receiver.replica_set == name:
                        receiver.lose_disk()
            self.cluster.revive_set(name)
            self.counts["replica sets revived"] += 1

    def relieve(self) -> None:
        """All that live report, the leader looks at replica sets, and may be killed at it. Some time passes.

        Raises AssertionError where it plans what nobody has asked for, or does not keep what lives again.
        """
        cluster = self.cluster
        if self.random.random() < 0.5:
            self._caught_up()
        self.report(cluster.alive())
        before, noted = cluster.metadata.control(cluster.cube), cluster.metadata.replica_sets()
        alive = {receiver.replica_set for receiver in cluster.alive()}
        broken, killed = self.counts["broken commits"], self.counts["coordinators killed"]
        self.command(lambda leader: leader.relief.tick())
        after = cluster.metadata.control(cluster.cube)
        drained, now_ms = cluster.metadata.drained(), cluster.clock.now_ms()
        given = {
            name
            for name, owned in before.assignment.items()
            if set(owned) - set(after.assignment.get(name, ()))
        }
        for name in sorted(given):
            assert name not in alive, f"{name} loses partitions though it lives"
            missing_ms = now_ms - (noted[name].missing_since_ms or now_ms)
            assert missing_ms >= LOST_AFTER_MS, f"{name} loses partitions {missing_ms} ms after it was killed"
            self.counts["lost sets relieved"] += 1
        if after.next is None or not after.next.relieves:
            return
        name = after.next.relieves
        if after.next != before.next:
            assert name in drained, f"{name} loses partitions that nobody has moved"
            self.counts["drained sets relieved"] += 1
        if (broken, killed) == (self.counts["broken commits"], self.counts["coordinators killed"]):
            assert name in drained, f"{name} does not keep what it has"

    def _control(self) -> CubeControl:
        return self.cluster.metadata.control(self.cluster.cube)

    def _caught_up(self) -> None:
        """All that live read what there is, as far as nothing holds them, and report."""
        for receiver in self.cluster.alive():
            receiver.look()
            receiver.core.look_up_log_ends()
            receiver.consume_all()
        self.report(self.cluster.alive())

    def check_drained(self) -> None:
        """Raises AssertionError where a drained replica set has been given partitions."""
        cluster = self.cluster
        control, drained = cluster.metadata.control(cluster.cube), cluster.metadata.drained()
        planned = control.next.assignment if control.next is not None else {}
        held = {
            name: {*control.assignment.get(name, ()), *planned.get(name, ())} for name in sorted(REPLICA_SETS)
        }
        for name in sorted(drained & self.drained_before):
            given = held[name] - self.held_before.get(name, set())
            assert not given, f"{name} is drained, and was given {sorted(given)}"
        self.held_before, self.drained_before = held, drained

    def end_relief(self) -> None:
        """The leader lets a move stand whose new owners have caught up, though no old one answers."""
        cluster = self.cluster
        planned = cluster.metadata.control(cluster.cube).next
        if planned is None or not planned.relieves:
            return
        for _ in range(2):
            for receiver in cluster.alive():
                receiver.look()
                receiver.consume_all()
            self.report(cluster.alive())
            ended = self.command(lambda leader: leader.tick_move(cluster.cube))
            self.counts["reliefs ended"] += bool(ended)

    def tick_move(self) -> None:
        """Some receivers report, and the leader looks whether a move can end."""
        self.report(self._some())
        self.counts["moves ended"] += bool(self.command(lambda leader: leader.tick_move(self.cluster.cube)))

    def report(self, receivers: Sequence[Receiver]) -> None:
        """Send heartbeats to the leader."""
        cube, clock = self.cluster.cube, self.cluster.clock
        for receiver in receivers:
            ahead = receiver.ahead
            report = cube_report(receiver.core, clock)
            self.reported |= {parse_segment_name(name).start_ms for name in report.active}
            self.cluster.coordinator.heartbeats.record(
                HeartbeatRequest(
                    receiver_id=receiver.name,
                    replica_set=receiver.replica_set,
                    cubes={cube: report},
                    warming={cube: cube_report(ahead.core, clock)} if ahead is not None else {},
                )
            )

    def _wanted(self) -> ReassignRequest:
        names = self.random.sample(sorted(REPLICA_SETS), self.random.randrange(1, len(REPLICA_SETS) + 1))
        request = ReassignRequest(replica_sets=tuple(names), warm_up=False)
        if self.random.random() < 0.5:
            owners = {part: self.random.choice(names) for part in self.cluster.log}
            assignment = {name: tuple(p for p, owner in owners.items() if owner == name) for name in names}
            request = ReassignRequest(assignment=assignment, warm_up=False)
        return request

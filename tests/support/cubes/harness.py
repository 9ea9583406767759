"""Seeded runs of a whole cluster in one process, held against a plain recount at every answer.

Several clients ask two query services, now one, now the other, and send the token of what they were answered.
One scheduler owns all order: it produces, consumes, closes, uploads, builds, realigns, reassigns, purges,
crashes, loses disks, moves leadership, kills coordinators and builds, breaks commits, and queries.
`python -m tests.support.cubes.harness --seed 7 --with batches merging` replays a seed with two features.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import msgspec
from rtolap.base.errors import CommitConflict, CommitUnknown, NotFound, Refused, Unavailable
from rtolap.cubes.receiver.local.align import vectors_of
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.metadata.records import CubeControl
from rtolap.model.cube import AggregationGroup, LatePolicy, MergePolicy
from rtolap.model.segment import SegmentState

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.cubes.cluster import REPLICA_SETS, Cluster
from tests.support.cubes.harness_actions import Actions
from tests.support.cubes.harness_features import ALONE, Feature, Features, weights_of
from tests.support.cubes.recount import Answer, counted, from_table, merge_into
from tests.support.cubes.stepped_receiver import Receiver, assert_apart
from tests.support.merging.actions import check_units, commit_merge, plan_merges, short_merges
from tests.support.query.asking import Asker, Client, Found, Span, chooser, members
from tests.support.query.visitors import engine_estimates, with_visitors
from tests.support.restores.actions import Restores
from tests.support.seeds import replay

STEPS = 400
DRAIN_ROUNDS_MAX = 400
# NotFound: of a build whose segment was purged and cleaned up meanwhile.
PASSING = (CommitConflict, CommitUnknown, NotFound, Refused, Unavailable)

ASK_WEIGHT = 20.0
CLIENTS = 3  # that ask now one, now the other of SERVICES
SERVICES = 2
BATCH_ROUNDS = 12
MERGE_ROUNDS, MERGE_STEPS = 3, 40  # of a run that merges, behind its other steps
SPANS = 6  # of event time, about which a run asks again and again, as people do
LOOK_SHARE = 0.8  # of questions for which the query service has seen all changes
LOSING = {
    Feature.LOSING_FILES,
    Feature.REVISING,
    Feature.RESTORING,
}  # files of READY versions, without a trace
UNNOTICED_WEIGHT = 4.0
BACKUP_WEIGHT, LOSS_WEIGHT = 3.0, 2.0


class Run:
    def __init__(
        self,
        seed: int,
        folder: Path,
        steps: int = STEPS,
        features: Features = ALONE,
    ) -> None:
        self.random = random.Random(seed)
        self.beside = random.Random(f"{seed}, who asks whom, and what may wait for history")
        self.features = features
        self.seed, self.steps = seed, steps
        settings = ReceiverSettings(
            batch_records_max=self.random.choice((5, 20, 80, 500)),
            flush_rows=self.random.choice((10, 60, 400)),
            checkpoint_interval_s=self.random.choice((5.0, 60.0)),
            fragments_max=2,
            disk_free_bytes_min=0,
            idle_after_s=3.0,
            unbuilt_segments_max=self.beside.choice((1, 3, 100)),
        )
        late = LatePolicy(policy=self.random.choice(("merge", "merge", "drop")), merge_after_ms=10_000)
        schema = with_visitors(
            small_schema(
                late=late,
                aggregation_groups=(AggregationGroup(("kind", "place")),),
                truncation="drop" if Feature.CUTTING_LOGS in features else "stop",
                merge=MergePolicy(("day", "month"), 0),
            )
        )
        self.cluster = Cluster(schema, folder, settings, start_ms=START_MS)
        self.actions = Actions(self.cluster, self.random, self.random.choice((0.0, 0.1, 0.3)))
        self.counts = self.actions.counts
        self.askers = [Asker(self.cluster) for _ in range(SERVICES)]
        self.clients = [Client() for _ in range(CLIENTS)]
        self.spans = [self._span() for _ in range(SPANS)]
        self.choose = chooser(self.cluster, self.random)
        self.restores = Restores(self.actions)
        self.of_batches: set[int] = set()  # starts of segments whose rows are a batch's

    def _span(self) -> Span:
        first = START_MS + self.random.randrange(-5, 10) * WINDOW_MS
        return first, first + self.random.randrange(1, 5) * WINDOW_MS

    def _of_revision(self, span: Span | None = None) -> Span | None:
        """Return the part of the time that is this revision's of the cube; None for all time."""
        until_ms = self.cluster.until_ms()
        if until_ms is None:
            return span
        first_ms, last_ms = span or (START_MS - 1_000 * WINDOW_MS, until_ms)
        return min(first_ms, until_ms - WINDOW_MS), min(last_ms, until_ms)

    def ask(self) -> None:
        span: Span | None = None
        if self.random.random() < 0.4:
            span = self.random.choice(self.spans)
        span = self._of_revision(span)
        for receiver in self.cluster.alive():
            assert_apart(receiver, f"seed {self.seed}")
        self._check_batches_stay()
        asker, client = self.beside.choice(self.askers), self.beside.choice(self.clients)
        by_service, by_client = dict(asker.seen), dict(client.seen)
        if self.random.random() < LOOK_SHARE:
            asker.look()
        found = asker.ask(self.choose, span, client)
        if found is None:
            self.counts["not ready"] += 1
            return
        self.counts["answers"] += 1
        positions = found.positions
        assert positions.keys() == self.cluster.log.keys(), f"seed {self.seed}: a partition is missing"
        cut = self.actions.cut_partitions
        for who, before in (("", by_service), (" for a client", by_client)):
            went_on = all(positions[p] >= at for p, at in before.items() if p not in cut)
            assert went_on, f"seed {self.seed}: went backwards{who}"
        self._equal(found.answer, asker.expected(found, span), f"answer at {positions}, {span}")

    def lose_metadata(self) -> None:
        """Lose all metadata, restore the newest backup, and start the query services again."""
        if self.restores.lose_and_restore():
            for asker in self.askers:
                asker.close()
            self.askers = [Asker(self.cluster) for _ in range(SERVICES)]
            self.of_batches.clear()  # the backup may be older than a batch

    def _check_batches_stay(self) -> None:
        """Once a batch says what a segment holds, the topic never does again: only another batch."""
        for record in self.cluster.records().values():
            if record.location in self.cluster.said_by_batches:
                self.of_batches.add(record.start_ms)
            elif record.location is not None and record.start_ms in self.of_batches:
                raise AssertionError(
                    f"seed {self.seed}: rows of a batch gave way to the topic's: {record.name}"
                )

    def end_move(self) -> None:
        """End a move, with nothing else in the way: there is an answer right before, and right after.

        All have read what there is before that, and nothing is realigned; who owned what does not matter.
        """
        cluster, asker = self.cluster, self.beside.choice(self.askers)
        planned = cluster.metadata.control(cluster.cube).next
        if planned is None:
            return
        for _ in range(2):  # one that is held reads, the second time, what the others have answered
            for receiver in cluster.alive():
                receiver.look()
                receiver.consume_all()
                while receiver.realign():
                    pass
            asker.look()
            all_answer = self._all_answer(asker) and self._all_answer(asker)  # all as far as all
        if not all_answer:
            self.counts["moves in somebody's way"] += 1
            return  # history, or a consumer that has failed, is in the way, and not the move
        for _ in range(2):  # the leader compares with what it has heard at its last look
            self.actions.report(cluster.alive())
            if cluster.coordinator.tick_move(cluster.cube):
                break
            assert self._all_answer(asker), f"seed {self.seed}: the owners do not answer on"
            for receiver in cluster.alive():
                if receiver.ahead is not None:
                    receiver.ahead.core.look_up_log_ends()
                    receiver.ahead.consume()
        else:
            self.counts["moves that wait"] += 1
            return
        for _ in range(2):  # the second look is that at which the one ahead serves
            for receiver in cluster.alive():
                receiver.look()
                receiver.core.step(receiver.view)
            asker.look()
            assert self._all_answer(asker), f"seed {self.seed}: the move is noticed {self._state()}"
        self.counts["moves unnoticed"] += 1

    def _all_answer(self, asker: Asker) -> bool:
        """Return True if each receiver of each replica set can be asked."""

        def member(number: int) -> Callable[[str], Receiver]:
            def choose(replica_set: str) -> Receiver:
                known = members(self.cluster, replica_set)
                return known[number % len(known)]

            return choose

        span = self._of_revision()
        return all(asker.ask(member(number), span) is not None for number in range(2))

    def _equal(self, found: Answer, expected: Answer, what: str) -> None:
        if found != expected:
            keys = sorted({*found, *expected}, key=str)
            lines = [
                f"{k}: {found.get(k)} for {expected.get(k)}" for k in keys if found.get(k) != expected.get(k)
            ]
            raise AssertionError(f"seed {self.seed}: {what} differs from the recount\n" + "\n".join(lines))

    def run(self) -> Counter[str]:
        asks: tuple[Callable[[], object], float] = (self.ask, ASK_WEIGHT)
        steps = [
            (lambda act=action: act(self.actions), weight) for action, weight in weights_of(self.features)
        ]
        beside: list[tuple[Callable[[], object], float]] = [asks]
        if self.features & {Feature.MOVING, Feature.RETIRING}:
            beside.append((self.end_move, UNNOTICED_WEIGHT))
        if Feature.RESTORING in self.features:
            beside += [(self.restores.take, BACKUP_WEIGHT), (self.lose_metadata, LOSS_WEIGHT)]
        chosen = self.random.choices(*zip(*steps, *beside, strict=True), k=self.steps)
        for step in chosen:
            self._passing(step)
            if Feature.RETIRING in self.features:
                self._seeded(self.actions.check_drained)
        if Feature.RETIRING in self.features:
            self._seeded(self._settle_sets)
        self.drain()
        if Feature.BATCHES in self.features:
            self._replace_history()
        if Feature.LOSING_FILES in self.features:
            self._lose_history()
        if Feature.MERGING in self.features:
            self._merge_history()
        if Feature.UPGRADING in self.features:
            self._upgrade_history()
        if Feature.RESTORING in self.features and self.counts["backups"]:
            self.lose_metadata()
            if Feature.RETIRING in self.features:
                self._seeded(self._settle_sets)  # what the backup does not know
            self.drain()
        self.counts["asked_ahead"] = sum(asker.asked_ahead for asker in self.askers)
        return self.counts

    def _upgrade_history(self) -> None:
        """All is history of an earlier version, late events come, and leaders are killed at moving it."""
        for _ in range(2 * len(self.cluster.records())):
            self._passing(self.actions.age)
        self.actions.kill_rate = 0.5
        for step in (self.actions.produce, self.actions.settle, self.actions.consume, self.actions.settle):
            self._passing(step)
            self._passing(self.ask)
        self.drain()
        self.actions.settle()
        assert not self.cluster.metadata.nodes.open_names(self.cluster.cube), (
            f"seed {self.seed}: all is settled"
        )

    def _merge_history(self) -> None:
        """All is history; it merges while events come, late ones too, and leaders are killed."""
        merging = (plan_merges, commit_merge, commit_merge, Actions.cleanup, Actions.build, Actions.build)
        moving = (Actions.produce, Actions.consume, Actions.look, Actions.close, Actions.upload)
        for _ in range(MERGE_ROUNDS):
            self.actions.fault_rate = self.actions.kill_rate = 0.1
            for action in (plan_merges, *self.random.choices((*merging, *moving), k=MERGE_STEPS)):
                self._passing(partial(action, self.actions))
                if self.random.random() < 0.3:
                    self._passing(self.ask)
            self.drain()
        self._merge_rest()

    def _replace_history(self) -> None:
        """All is history; batches replace some of it, and begin windows without an event."""
        for _ in range(BATCH_ROUNDS):
            self._passing(self.actions.plan_batch)
            self._passing(self.actions.apply_batch)
        self.drain()

    def _lose_history(self) -> None:
        """Lose much of what builds start from, once everything is history, and produce late events."""
        for _ in range(len(self.cluster.records())):
            self._passing(self.actions.lose_base)
        self.actions.produce()
        self.drain()

    def _passing(self, step: Callable[[], object]) -> None:
        try:
            self._seeded(step)
        except PASSING as error:
            self.counts[f"passing {type(error).__name__}"] += 1

    def _seeded(self, step: Callable[[], object]) -> None:
        """Raise AssertionErrors of a step with the seed."""
        try:
            step()
        except AssertionError as error:
            if str(error).startswith(f"seed {self.seed}"):
                raise
            raise AssertionError(f"seed {self.seed}: {error}") from error

    def _settle_sets(self) -> None:
        """The end of a run with drains and losses: one replica set is drained or gone for good, the others
        are open and live."""
        cluster, actions = self.cluster, self.actions
        actions.fault_rate = actions.kill_rate = 0.0
        self.leaving = self.random.choice(sorted(REPLICA_SETS))
        for name in sorted(REPLICA_SETS):
            if name != self.leaving:
                cluster.revive_set(name)
                cluster.metadata.drain_replica_set(name, draining=False)
        if self.random.random() < 0.5:
            cluster.kill_set(self.leaving)
            cluster.metadata.drain_replica_set(self.leaving, draining=False)
            self.counts["replica sets gone for good"] += 1
        else:
            cluster.revive_set(self.leaving)
            cluster.metadata.drain_replica_set(self.leaving, draining=True)
            self.counts["replica sets drained in the end"] += 1

    def drain(self) -> None:
        """Send no more events: everything becomes history, and history equals the recount."""
        cluster = self.cluster
        self.actions.fault_rate = self.actions.kill_rate = 0.0
        for receiver in cluster.alive():
            receiver.leading = receiver.name.endswith("-0")
        ends = {part: len(events) for part, events in cluster.log.items()}
        if Feature.REVISING in self.features:
            for receiver in cluster.receivers:
                receiver.crash()  # whoever has not started again by the cube's end does so now
        self.actions.cleanup()  # ends what a killed purge has left
        for _ in range(DRAIN_ROUNDS_MAX):
            cluster.clock.advance_ms(2_000)
            if self.features & {Feature.MOVING, Feature.RETIRING}:
                self._passing(self.end_move)
            if Feature.RETIRING in self.features:
                self._passing(self.actions.relieve)
                self._passing(self.actions.end_relief)
            for receiver in cluster.alive():
                receiver.look()
                receiver.consume_all()
                receiver.core.force.update(receiver.core.state.segments)
                for step in (receiver.close_due, receiver.look, receiver.realign, receiver.upload):
                    self._passing(step)
            self._close_rest()
            self._passing(self.actions.build)
            self._passing(self.actions.replace_lost_batches)
            if Feature.REVISING in self.features:
                self._passing(self.actions.end_revision)
            self.ask()
            if self._drained(ends):
                break
        else:
            raise AssertionError(f"seed {self.seed}: not drained: {self._state()}")
        self._history_is_exact(ends)
        self._revision_reads_all()
        for receiver in cluster.alive():
            receiver.checkpoint()
        missing = cluster.malformed() ^ cluster.dead_letters()
        if cluster.metadata.control(cluster.cube).ended:  # the newest revision refuses what comes
            missing &= cluster.dead_letters()
        if self.actions.cut_partitions:  # what a log has lost stays among the dead letters
            missing &= cluster.malformed()
        assert not missing, f"seed {self.seed}: dead letters differ: {sorted(missing)[:5]}"

    def _merge_rest(self) -> None:
        """Merge what there is, with nothing in the way: answers stay, and what statements open is there."""
        plan_merges(self.actions)
        for cube, merge in self.actions.merges:
            self._passing(partial(self.cluster.coordinator.merges.commit, cube, merge))
        self.cluster.clock.advance_ms(3_600_000)
        self.actions.cleanup()
        if not self.features & LOSING:
            self.counts["sets that answer"] += check_units(self.cluster)
        for asker in self.askers:
            asker.look()
        self.ask()

    def _revision_reads_all(self) -> None:
        """The revision, if there is one, begins before every event of its time."""
        until_ms = self.cluster.until_ms()
        if until_ms is None:
            return
        self.counts["runs with a revision"] += 1
        *_, revision = self.cluster.metadata.revisions(self.cluster.cube)
        first = self.cluster.metadata.control(revision.name).first_offsets
        for part, events in self.cluster.log.items():
            below = [event for event in events[: first[part]] if event is not None]
            lost = [event for event in below if event.event_ms >= until_ms]
            assert not lost, f"seed {self.seed}: lost for the revision: {len(lost)} of partition {part}"

    def _history_is_exact(self, ends: dict[int, int]) -> None:
        cluster = self.cluster
        history: Answer = {}
        vectors = {}
        until_ms = cluster.until_ms()
        for record in cluster.records().values():
            if until_ms is not None and record.start_ms >= until_ms:
                continue
            vectors[record.start_ms] = vectors_of(record, drop_late=False)
            if record.state is SegmentState.READY:
                assert record.location is not None, "a version has its place"
                merge_into(history, from_table(cluster.history[record.location]))
        horizon_ms = cluster.metadata.control(cluster.cube).horizon_ms
        locations = {
            record.start_ms: record.location for record in cluster.records().values() if record.location
        }
        whole = Found(history, ends, horizon_ms, dict.fromkeys(ends, vectors), locations)
        span = None if until_ms is None else (START_MS - 1_000 * WINDOW_MS, until_ms)
        self._equal(engine_estimates(counted(history)), self.askers[0].expected(whole, span), "final history")

    def _close_rest(self) -> None:
        """Close segments for replica sets without data of them, by the coordinator's forced closing."""
        before_ms = self.cluster.clock.now_ms() + WINDOW_MS

        def closing(control: CubeControl) -> CubeControl:
            return msgspec.structs.replace(
                control, close_before_ms=max(before_ms, control.close_before_ms or before_ms)
            )

        self.cluster.metadata.update_control(self.cluster.cube, closing)

    def _drained(self, ends: dict[int, int]) -> bool:
        ended = (SegmentState.READY, SegmentState.PURGED)
        records = list(self.cluster.records().values())
        until_ms = self.cluster.until_ms()
        if until_ms is not None and self.cluster.metadata.control(self.cluster.cube).ended:
            records = [record for record in records if record.start_ms < until_ms]  # others are nobody's
        return (
            all(record.state in ended for record in records)
            and all(
                not receiver.core.state.segments
                and all(receiver.core.state.positions.get(p) == ends[p] for p in receiver.core.owned)
                for receiver in self.cluster.alive()
            )
            and not self._leaves()
        )

    def _leaves(self) -> bool:
        """Return True while the replica set that goes has partitions."""
        return Feature.RETIRING in self.features and self.cluster.metadata.control(
            self.cluster.cube
        ).has_partitions_in(self.leaving)

    def _state(self) -> str:
        records = {n: (r.state.value, r.version, r.target) for n, r in self.cluster.records().items()}
        return "\n".join([str(records), *(receiver.describe() for receiver in self.cluster.receivers)])


def run_seed(seed: int, features: Collection[Feature] = ALONE, *, steps: int = STEPS) -> Counter[str]:
    """Run once in a folder of its own, with these features beside what every cube has.

    Raises AssertionError, naming the seed, where an answer is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="rtolap-harness-") as folder:
        run = Run(seed, Path(folder), steps, frozenset(features))
        try:
            with short_merges():
                return run.run()
        finally:
            for asker in run.askers:
                asker.close()
            run.cluster.close()


if __name__ == "__main__":
    replay(__doc__, run_seed, STEPS, Feature)

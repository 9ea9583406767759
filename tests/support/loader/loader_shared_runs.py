"""Seeded lives of a job that several processes share, over twins of Kafka and the sink and a real ledger.

    python -m tests.support.loader.loader_shared_runs --seed N

As `loader_runs`, which has one process at a time and its predecessor. Here up to four processes join, leave,
die and stand still at the points of `interleaving`; shares move between them meanwhile, and the owner before
goes on, in the middle of its call, in the belief that they are its own. A run may begin with an undivided job
that has batches of every kind. Every record must be in the table once, and the table equal a recount.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rtolap.base.errors import CommitUnknown, NotLeader, NotYet, RtolapError, Unavailable
from rtolap.model.loader import LoaderBatch, LoaderProcesses
from rtolap.stored.loader.commit import CLOCKS_APART_MS_MAX
from rtolap.stored.loader.job import LEASE_MS, JobConfig, JobResources, SharedResources, write_config
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.stored.loader.settle import Settler
from rtolap.stored.loader.shares.leader import Leader, TopicView, loaded_offsets
from rtolap.stored.loader.shares.member import Member
from rtolap.stored.loader.shares.share_run import begin_share
from rtolap.stored.loader.sink import Sink
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.metastore.load_jobs import LoadJobEvent, LoadJobState
from rtolap.stored.metastore.load_shares import LoadShare, LoadShares
from rtolap.stored.metastore.offsets import OffsetsRecords

from tests.support.loader.interleaving import (
    BATCH_STEPS,
    CRASH_STEPS,
    PointedLedger,
    PointedSink,
    points_of,
)
from tests.support.loader.loader_runs import LATE_MS_MAX, TIMEOUT_MS, CountingBox, Run, World, answer_of
from tests.support.seeds import replay
from tests.support.stored.transaction_runs import Crash

STEPS = 90
PROCESSES = 4
ROUNDS_MAX = 400
DEPTH_MAX = 2  # processes that stand still at once
LONG_MS = TIMEOUT_MS + CLOCKS_APART_MS_MAX + 4 * LEASE_MS  # labels are given back meanwhile
TRIES_MAX = 3  # of standing still at a point until the share is lost meanwhile
BEFORE_A_REQUEST = ("after state", "before note a request")
CHANCE_PLANNED, CHANCE_OTHER, CHANCE_RIPE = 0.35, 0.01, 0.6


def world() -> World:
    """Return a world whose ledger has points."""
    return World(PointedLedger)


class SteppedRuns:
    """The runs of the shares of one process, each driven by the caller."""

    def __init__(self) -> None:
        self.waiting: dict[int, LoadShare] = {}
        self.loading: dict[int, tuple[LoadJobRun, Settler]] = {}
        self.leaving: set[int] = set()
        self.over: set[int] = set()

    def take(self, share: LoadShare) -> None:
        self.waiting[share.number] = share

    def give_up(self, number: int) -> None:
        self.leaving.add(number)
        if self.waiting.pop(number, None) is not None:
            self.over.add(number)

    def ended(self) -> set[int]:
        return set(self.over)

    def forget(self, number: int) -> None:
        self.over.discard(number)
        self.leaving.discard(number)

    def lose(self, number: int) -> None:
        """End a run whose share is another process's."""
        del self.loading[number]
        self.over.add(number)


class SharedProcess:
    def __init__(self, run: SharedRun, number: int, owner: str) -> None:
        self.resources = run.shared_resources()
        self.runs = SteppedRuns()
        self.owner = owner
        topic = TopicView(self.resources, run.loader)
        leader = Leader(run.job, owner, self.resources, topic.log)
        self.member = Member(run.job, number, owner, self.resources, leader, self.runs)
        self.stands_still = False


class SharedRun(Run):
    """`goes_on`: a person starts a job again that has stopped, so that only the recount judges."""

    def __init__(self, world: World, seed: int, steps: int = STEPS, *, goes_on: bool = False) -> None:
        self.eventful = False
        self.acting: tuple[SharedProcess, LoadJobRun | None] | None = None
        self.depth = 0
        self.ripe_label_lost = False
        self.contested: int | None = None  # the share whose owner stands still
        # half of the points each, so that two runs have all; how often a stand is tried
        self.planned_deaths = set(points_of(CRASH_STEPS)[seed % 2 :: 2])
        self.planned_stands = dict.fromkeys(points_of(BATCH_STEPS)[(seed + 1) % 2 :: 2], TRIES_MAX)
        self.goes_on = goes_on
        assert isinstance(world.ledger, PointedLedger)
        world.ledger.point = self.point
        super().__init__(world, seed, steps)
        logs = self.broker.logs(self.topic)
        logs += [type(logs[0])() for _ in range(self.random.randrange(1, 4))]
        low = self.random.choice((1, 2, 2, 3))
        policy = LoaderProcesses(
            min=low,
            max=self.random.randrange(max(2, low), PROCESSES + 1),
            shares=self.random.choice((None, 2, 3, 5)),
            lag_records=self.random.choice((5, 20, 60)),
            up_after_ms=1_000,
            down_after_ms=3_000,
        )
        self.undivided_loader = self.loader
        # a share gets a part of a batch: a batch of one record each would be hundreds of batches
        batch = LoaderBatch(rows=self.random.choice((20, 60, 150)), interval_ms=2_000)
        sink = msgspec.structs.replace(self.loader.sink, two_phase=self.random.random() < 0.5)
        self.loader = msgspec.structs.replace(self.loader, processes=policy, batch=batch, sink=sink)
        self.shares = LoadShares(world.ledger)
        self.share_records = OffsetsRecords(world.ledger, of_shares=True)
        self.members: list[SharedProcess | None] = [None] * PROCESSES
        self.wanted = low  # processes, as whoever starts them has read it last
        self.is_shared = False
        self.begins_undivided = self.random.random() < 0.4

    def create_table(self, *, keeps_labels: bool) -> None:
        super().create_table(keeps_labels=True)

    def open_sink(self) -> Sink:
        return PointedSink(self, self.sink, self.point)

    # --- steps ----------------------------------------------------------------------------------------

    def run(self) -> Counter[str]:
        if self.begins_undivided:
            for _ in range(self.steps // 4):
                self.step()
            self.counts["began undivided"] += 1
        self.share()
        self.eventful = True
        for _ in range(self.steps):
            self.step()
        self.eventful = False
        self.finish()
        return self.counts

    def share(self) -> None:
        """Declare the processes, once the process of the undivided job is surely gone."""
        self.processes = [None, None]
        self.advance_ms(LEASE_MS + 1)
        self.jobs.reconfigure(self.job, write_config(JobConfig(self.loader)))
        self.is_shared = True

    def acts(self) -> tuple[tuple[Callable[[], object], int], ...]:
        if not self.is_shared:
            return super().acts()
        return (
            (self.produce, 6),
            (self.tick, 8),
            (self.consume, 14),
            (self.settle, 18),
            (self.commit, 8),
            (self.pass_time, 1),
            (self.kill, 1),
            (self.restart_sink, 1),
            (self.add_partition, 1),
            (self.publish, 2),
        )

    def tick(self, by_ms: int | None = None) -> None:
        """Let a few seconds pass, in which each process that does not stand still has its round."""
        self.advance_ms(self.random.choice((500, 2_500, 5_000)) if by_ms is None else by_ms)
        self.keep()
        self.rounds()
        for place in range(PROCESSES):
            self.of_member(place, self._begin_shares)
            if self.random.random() < 0.6:
                self.of_member(place, self._end_shares)

    def rounds(self) -> None:
        sharing = self.loader.sharing
        assert sharing is not None
        self.wanted = self.jobs.get(self.job).processes or sharing.min
        for place in self.random.sample(range(PROCESSES), PROCESSES):
            self.of_member(place, self._round)

    def _round(self, process: SharedProcess) -> None:
        led = process.member.leader.ownership is not None
        if not process.member.round():
            process.member.leave()
            self.members[self.members.index(process)] = None
            self.counts["left"] += 1
        elif not led and process.member.leader.ownership is not None:
            self.counts["leads"] += 1

    def _begin_shares(self, process: SharedProcess) -> None:
        for number, share in list(process.runs.waiting.items()):
            try:
                shares = len(process.member.division.shares)
                work = begin_share(share, shares, process.owner, process.resources)
            except NotYet:
                self.counts["share not free"] += 1
                continue
            del process.runs.waiting[number]
            process.runs.loading[number] = work, work.settler()
            self.counts["share taken"] += 1

    def _end_shares(self, process: SharedProcess) -> None:
        """End runs that are given up, as `LoaderProcess` does: requests may still be under way."""
        for number in sorted(process.runs.leaving & process.runs.loading.keys()):
            work, _ = process.runs.loading[number]
            try:
                work.committer.run_once(self.world.clock.now_ms())
                work.ownership.release()
            except NotLeader:
                self.counts["fenced at the end"] += 1
            process.runs.lose(number)
            self.counts["share given up"] += 1

    def consume(self) -> None:
        if not self.is_shared:
            super().consume()
            return
        self.of_share(lambda work, settler: work.source.step(0.0))

    def settle(self) -> None:
        if not self.is_shared:
            super().settle()
            return
        self.of_share(lambda work, settler: work.settle_once(settler, 0.0, self.random.choice))

    def commit(self) -> None:
        if not self.is_shared:
            super().commit()
            return
        self.of_share(lambda work, settler: work.committer.run_once(self.world.clock.now_ms()))

    def keep(self) -> None:
        if not self.is_shared:
            super().keep()
            return
        for place in range(PROCESSES):
            self.of_member(place, self._keep)

    def _keep(self, process: SharedProcess) -> None:
        for number in list(process.runs.loading):
            self._of_run(process, number, lambda work, _: work.ownership.renew())

    def pass_time(self) -> None:
        if not self.is_shared:
            super().pass_time()
            return
        self.advance_ms(self.random.choice((500, LEASE_MS + 1, LATE_MS_MAX)))

    def kill(self) -> None:
        if not self.is_shared:
            super().kill()
            return
        self.members[self.random.randrange(PROCESSES)] = None
        self.counts["killed"] += 1

    # --- points ---------------------------------------------------------------------------------------

    def point(self, name: str) -> None:
        """Let the process that acts go on, die, or stand still."""
        if not self.eventful or self.acting is None:
            return
        # a label that was given back, and whose record is still there, is what an owner before could use
        is_ripe = self.depth > 0 and name == "after acknowledge"
        if (is_ripe and self.random.random() < CHANCE_RIPE) or self._is_drawn(name in self.planned_deaths):
            self.planned_deaths.discard(name)
            self.counts[f"died {name}"] += 1
            self.ripe_label_lost |= is_ripe
            raise Crash
        if self.depth < DEPTH_MAX and self._is_drawn(name in self.planned_stands):
            self._stand_still(name)

    def _is_drawn(self, is_planned: bool) -> bool:
        return self.random.random() < (CHANCE_PLANNED if is_planned else CHANCE_OTHER)

    def _stand_still(self, name: str) -> None:
        """Let the process that acts stand still, often for longer than its leases, while the others go on."""
        assert self.acting is not None
        process, work = self.acting
        before = None if work is None else work.ownership.lease
        left = self.planned_stands.pop(name, 0) - 1
        short_ms = LEASE_MS + 10_000 if left >= 0 else LEASE_MS // 2
        # the owner's next write is that it sends: by then a successor may have given the label back
        long = (LONG_MS, LONG_MS) if name in BEFORE_A_REQUEST else ()
        for_ms = self.random.choice((short_ms, 2 * LEASE_MS, LONG_MS, *long))
        self.counts[f"stood still {name}"] += 1
        with self._others_act(process, None if work is None else work.portion.number):
            self._act_for(for_ms)
        if process not in self.members:
            self.counts["died while it stood still"] += 1
            raise Crash
        if before is not None:
            now = self.shares.leases.current(before.name)
            assert now is not None
            if now.epoch != before.epoch:
                self.counts[f"overtaken {name}"] += 1
                return
        if left > 0:
            self.planned_stands[name] = left

    def _act_for(self, for_ms: int) -> None:
        """Let the others act, and until a label is given back whose record is still there, by chance."""
        until_ms = self.world.clock.now_ms() + for_ms
        self.ripe_label_lost = False
        while self.world.clock.now_ms() < until_ms and not (
            self.ripe_label_lost and self.random.random() < 0.7
        ):
            self.tick(LEASE_MS - 5_000 if for_ms == LONG_MS else 5_000)
            acts = (self.produce, self.consume, self.settle, self.commit)
            for act in self.random.choices(acts, (1, 3, 4, 2), k=8):
                act()

    @contextmanager
    def _others_act(self, process: SharedProcess, share: int | None) -> Iterator[None]:
        saved = self.acting, self.faults_on
        contested, self.contested = self.contested, share
        self.acting, self.faults_on = None, False
        process.stands_still = True
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            self.contested = contested
            process.stands_still = False
            self.acting, self.faults_on = saved

    # --- processes ------------------------------------------------------------------------------------

    def of_share(self, act: Callable[[LoadJobRun, Settler], object]) -> None:
        """Let a process that has shares do something with one; where none has, let time pass."""
        loading = [
            place
            for place, process in enumerate(self.members)
            if process is not None and process.runs.loading and not process.stands_still
        ]
        if not loading:
            if not self.depth:
                self.tick()
            return

        place = self.random.choice(loading)
        share: int | None = None
        if self.contested is not None and self.random.random() < 0.6:
            for each in loading:
                process = self.members[each]
                if process is not None and self.contested in process.runs.loading:
                    place, share = each, self.contested

        def one(process: SharedProcess) -> None:
            number = self.random.choice(sorted(process.runs.loading)) if share is None else share
            self._of_run(process, number, act)

        self.of_member(place, one, faulty=True)

    def _of_run(
        self, process: SharedProcess, number: int, act: Callable[[LoadJobRun, Settler], object]
    ) -> None:
        work, settler = process.runs.loading[number]
        assert self.acting is not None
        self.acting = process, work
        try:
            act(work, settler)
        except NotLeader:
            self._lose(process, number, "share lost")
        except (Unavailable, CommitUnknown, NotYet):
            raise
        except RtolapError as error:
            stopped = error if isinstance(error, Stopped) else Stopped(StopCause.BROKEN, str(error))
            self._report_share(process, number, stopped)

    def _lose(self, process: SharedProcess, number: int, how: str) -> None:
        work, _ = process.runs.loading[number]
        process.runs.lose(number)
        self.counts[how] += 1
        if len(work.window):
            self.counts["share lost with a batch under way"] += 1

    def _report_share(self, process: SharedProcess, number: int, stopped: Stopped) -> None:
        """Report where a run stopped, as `LoaderProcess` does. A process that has lost its share may see what
        it cannot understand."""
        work, _ = process.runs.loading[number]
        with self._undisturbed():
            try:
                work.fail(stopped)
            except NotLeader:
                self._lose(process, number, "stopped by a successor's work")
                return
        if not self.goes_on:
            raise AssertionError(f"seed {self.seed}: stopped: {stopped}") from stopped
        self._lose(process, number, "stopped, and started by a person")
        self._start_again()

    def _start_again(self) -> None:
        if self.jobs.get(self.job).state is LoadJobState.FAILED:
            with self._undisturbed():
                self.jobs.change_state(self.job, LoadJobEvent.START, "")

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        saved = self.eventful, self.faults_on
        self.eventful = self.faults_on = False
        try:
            yield
        finally:
            self.eventful, self.faults_on = saved

    def of_member(self, place: int, act: Callable[[SharedProcess], object], *, faulty: bool = False) -> None:
        """Let a process do something; start it where it is not there."""
        process = self.members[place]
        if process is not None and process.stands_still:
            return
        saved = self.acting, self.faults_on
        # a round writes and reads often: with faults in each, no process would live for long
        self.faults_on = faulty or self.random.random() < 0.08
        try:
            if process is None:
                process = self._started(place)
            if process is not None:
                self.acting = process, None
                act(process)
        except Crash:
            self.counts["crash"] += 1
            self._remove(process)
        except NotYet:
            self.counts["not yet"] += 1
        except (Unavailable, CommitUnknown) as error:
            self.counts[type(error).__name__] += 1
            if isinstance(error, NotLeader):
                self._remove(process)
        except Stopped as stopped:  # no share has begun: the job says it already
            if not self.goes_on:
                raise AssertionError(f"seed {self.seed}: stopped: {stopped}") from stopped
            self.counts["stopped, and started by a person"] += 1
            self._start_again()
        finally:
            self.acting, self.faults_on = saved

    def _started(self, place: int) -> SharedProcess | None:
        if place >= self.wanted:
            return None
        self.starts += 1
        process = self.members[place] = SharedProcess(self, place, f"p{self.starts}")
        self.counts["joined"] += 1
        return process

    def _remove(self, process: SharedProcess | None) -> None:
        """Remove a process, if it has not been removed while it stood still."""
        if process is not None and process in self.members:
            self.members[self.members.index(process)] = None

    def shared_resources(self) -> SharedResources:
        job = JobResources(
            self.jobs,
            self.records,
            self.open_sink(),
            self._open_consumer,
            CountingBox(self.kept, self.topic_number),
            self.world.clock,
        )
        return SharedResources(job, self.shares, self.share_records)

    # --- judgement ------------------------------------------------------------------------------------

    def drain(self) -> None:
        self.advance_ms(LEASE_MS + 1)
        for _ in range(ROUNDS_MAX):
            self.rounds()
            for place in range(PROCESSES):
                self.of_member(place, self._drain)
            self.advance_ms(2_000)
            if self._is_loaded():
                return
        if not self.goes_on:
            raise AssertionError(f"seed {self.seed}: not all is loaded after {ROUNDS_MAX} rounds")

    def _drain(self, process: SharedProcess) -> None:
        self._end_shares(process)
        self._begin_shares(process)
        for number in list(process.runs.loading):
            for act in (
                lambda work, settler: work.ownership.renew(),
                lambda work, settler: work.source.step(0.0),
                lambda work, settler: work.settle_once(settler),
                lambda work, settler: work.committer.run_once(self.world.clock.now_ms()),
            ):
                if number in process.runs.loading:
                    self._of_run(process, number, act)

    def _is_loaded(self) -> bool:
        if not self.is_shared:
            return super()._is_loaded()
        division = self.shares.division(self.job)
        loaded = loaded_offsets(self.shared_resources(), division)
        logs = self.broker.logs(self.topic)
        return bool(division.shares) and all(
            loaded.get(partition, 0) >= log.end for partition, log in enumerate(logs)
        )

    def judge(self) -> None:
        where = f"seed {self.seed}, {self.model}"
        self.advance_ms(LATE_MS_MAX + 1)
        in_table = Counter(row["src"] for row in self.sink.rows("d", self.job))
        missing = sorted({row["src"] for row in self.produced} - in_table.keys())
        doubled = sorted(src for src, times in in_table.items() if times > 1)
        assert not doubled, f"{where}: the table differs from a recount: twice in it: {doubled}"
        assert not missing, f"{where}: the table differs from a recount: not in it: {missing}"
        found, expected = self.found(), answer_of(self.model, self.produced)
        assert found == expected, (
            f"{where}: the table differs from a recount of the topic\n{found}\n{expected}"
        )
        assert self.kept == self.bad, f"{where}: refused records are kept: {self.kept} for {self.bad}"
        self.check_kept()

    def check_kept(self) -> None:
        """Check that nothing but the newest record of each share is left, and no label but its own."""
        for _ in range(ROUNDS_MAX):
            self.rounds()
            for place in range(PROCESSES):
                self.of_member(place, self._drain)
            division = self.shares.division(self.job)
            records = [self.share_records.all(share.share_id) for share in division.shares]
            labels = self.labels() - {each[0].label for each in records}
            if all(len(each) == 1 and each[0].committed for each in records) and not labels:
                return
            self.advance_ms(LEASE_MS)
        raise AssertionError(f"seed {self.seed}: records or labels are left: {records}, {sorted(labels)}")


def run_seed(seed: int, steps: int = STEPS) -> Counter[str]:
    return SharedRun(world(), seed, steps).run()


if __name__ == "__main__":
    replay(__doc__, run_seed, STEPS)

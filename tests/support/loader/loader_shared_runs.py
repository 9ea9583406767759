"""Seeded lives of a job that several processes share, over twins of Kafka and the sink and a real ledger.

    python -m tests.support.loader.loader_shared_runs --seed N

As `loader_runs`, which has one process at a time and its predecessor. Here up to four processes join, leave,
die and stand still; shares move between them while requests are under way, and the owner before goes on in
the belief that they are its own. A run may begin with an undivided job that has batches of every kind. The
table must equal a recount of the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
from rtolap.base.errors import CommitUnknown, NotLeader, NotYet, Unavailable
from rtolap.model.loader import LoaderProcesses
from rtolap.stored.loader.job import LEASE_MS, JobConfig, JobResources, SharedResources, write_config
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.stored.loader.settle import Settler
from rtolap.stored.loader.shares.leader import Leader, TopicView, loaded_offsets
from rtolap.stored.loader.shares.member import Member
from rtolap.stored.loader.shares.share_run import begin_share
from rtolap.stored.loader.states import Stopped
from rtolap.stored.metastore.load_shares import LoadShare, LoadShares
from rtolap.stored.metastore.offsets import OffsetsRecords

from tests.support.loader.loader_runs import DRAIN_ROUNDS_MAX, LATE_MS_MAX, CountingBox, Run, World, answer_of
from tests.support.seeds import replay
from tests.support.stored.transaction_runs import Crash

STEPS = 90
PROCESSES = 4


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
        self.still_until_ms = 0


class SharedRun(Run):
    def __init__(self, world: World, seed: int, steps: int = STEPS) -> None:
        super().__init__(world, seed, steps)
        logs = self.broker.logs(self.topic)
        logs += [type(logs[0])() for _ in range(self.random.randrange(1, 4))]
        low = self.random.randrange(1, 3)
        policy = LoaderProcesses(
            min=low,
            max=self.random.randrange(2, PROCESSES + 1),
            shares=self.random.choice((None, 2, 3, 5)),
            lag_records=self.random.choice((5, 20, 60)),
            up_after_ms=1_000,
            down_after_ms=3_000,
        )
        self.undivided_loader = self.loader
        self.loader = msgspec.structs.replace(self.loader, processes=policy)
        self.shares = LoadShares(world.ledger)
        self.share_records = OffsetsRecords(world.ledger, of_shares=True)
        self.members: list[SharedProcess | None] = [None] * PROCESSES
        self.is_shared = False
        self.begins_undivided = self.random.random() < 0.4

    def create_table(self, *, keeps_labels: bool) -> None:
        super().create_table(keeps_labels=True)

    # --- steps ----------------------------------------------------------------------------------------

    def run(self) -> Counter[str]:
        if self.begins_undivided:
            for _ in range(self.steps // 4):
                self.step()
            self.counts["began undivided"] += 1
        self.share()
        for _ in range(self.steps):
            self.step()
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
            (self.tick, 10),
            (self.consume, 14),
            (self.settle, 18),
            (self.commit, 4),
            (self.pass_time, 1),
            (self.kill, 1),
            (self.stand_still, 2),
            (self.restart_sink, 1),
            (self.add_partition, 1),
            (self.publish, 2),
        )

    def tick(self) -> None:
        """Let a few seconds pass, in which each process that does not stand still has its round."""
        self.advance_ms(self.random.choice((500, 2_500, 5_000)))
        self.keep()
        self.rounds()
        for place in range(PROCESSES):
            self.of_member(place, self._begin_shares)
            if self.random.random() < 0.6:
                self.of_member(place, self._end_shares)

    def rounds(self) -> None:
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

    def stand_still(self) -> None:
        """Let a process stand still, often for longer than its leases, while the others go on."""
        process = self.members[self.random.randrange(PROCESSES)]
        if process is None:
            return
        for_ms = self.random.choice((LEASE_MS // 2, LEASE_MS + 5_000, 2 * LEASE_MS))
        until_ms = self.world.clock.now_ms() + for_ms
        process.still_until_ms = until_ms
        self.counts["stood still"] += 1
        while self.world.clock.now_ms() < until_ms:
            self.tick()
            for act in self.random.choices((self.produce, self.consume, self.settle), k=6):
                act()

    # --- processes ------------------------------------------------------------------------------------

    def of_share(self, act: Callable[[LoadJobRun, Settler], object]) -> None:
        """Let a process that has shares do something with one; where none has, let time pass."""
        loading = [
            place
            for place, process in enumerate(self.members)
            if process is not None and process.runs.loading
        ]
        if not loading:
            self.tick()
            return

        def one(process: SharedProcess) -> None:
            self._of_run(process, self.random.choice(sorted(process.runs.loading)), act)

        self.of_member(self.random.choice(loading), one, faulty=True)

    def _of_run(
        self, process: SharedProcess, number: int, act: Callable[[LoadJobRun, Settler], object]
    ) -> None:
        work, settler = process.runs.loading[number]
        try:
            act(work, settler)
        except NotLeader:
            process.runs.lose(number)
            self.counts["share lost"] += 1
        except Stopped as stopped:
            self.faults_on = False
            try:
                work.fail(stopped)
            except NotLeader:
                process.runs.lose(number)
                self.counts["stopped by a successor's work"] += 1
                return
            raise AssertionError(f"seed {self.seed}: stopped: {stopped}") from stopped

    def of_member(self, place: int, act: Callable[[SharedProcess], object], *, faulty: bool = False) -> None:
        """Let a process do something; start it where it is not there."""
        # a round writes and reads often: with faults in each, no process would live for long
        self.faults_on = faulty or self.random.random() < 0.08
        try:
            process = self.members[place]
            if process is None:
                wanted = self.jobs.get(self.job).processes or self.loader.sharing.min  # type: ignore[union-attr]
                if place >= wanted:
                    return
                self.starts += 1
                process = self.members[place] = SharedProcess(self, place, f"p{self.starts}")
            if process.still_until_ms <= self.world.clock.now_ms():
                act(process)
        except Crash:
            self.counts["crash"] += 1
            self.members[place] = None
        except NotYet:
            self.counts["not yet"] += 1
        except (Unavailable, CommitUnknown) as error:
            self.counts[type(error).__name__] += 1
            if isinstance(error, NotLeader):
                self.members[place] = None
        finally:
            self.faults_on = False

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
        for process in self.members:
            if process is not None:
                process.still_until_ms = 0
        self.advance_ms(LEASE_MS + 1)
        for _ in range(DRAIN_ROUNDS_MAX):
            self.rounds()
            for place in range(PROCESSES):
                self.of_member(place, self._drain)
            self.advance_ms(1_000)
            if self._is_loaded():
                return
        raise AssertionError(f"seed {self.seed}: not all is loaded after {DRAIN_ROUNDS_MAX} rounds")

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
        found, expected = self.found(), answer_of(self.model, self.produced)
        assert found == expected, (
            f"{where}: the table differs from a recount of the topic\n{found}\n{expected}"
        )
        assert self.kept == self.bad, f"{where}: refused records are kept: {self.kept} for {self.bad}"
        self.check_kept()

    def check_kept(self) -> None:
        """Check that nothing but the newest record of each share is left, and no label but its own."""
        for _ in range(DRAIN_ROUNDS_MAX):
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
    return SharedRun(World(), seed, steps).run()


if __name__ == "__main__":
    replay(__doc__, run_seed, STEPS)

"""Seeded runs of a loader over a ledger, a broker and a sink in memory, held against a recount of the topic.

    python -m tests.support.loader.loader_runs --seed N

Two processes take turns, and each may believe for a while that the job is still its own. A process dies at a
write of the ledger, before or after it is durable, or around a request; acknowledgements of commits are lost;
requests and answers are lost, doubled, or come late; loads stay under way and are aborted by a restart of the
sink; some sinks forget finished labels by time and by number, and others load into their database; what is
committed becomes visible later; partitions and columns are added; offsets have gaps; some
records are no rows. At the end all is well, and the table must hold each record's effect exactly once.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from rtolap.base.errors import CommitUnknown, NotLeader, NotYet, Unavailable
from rtolap.events.rejects import Rejects, SentBatch
from rtolap.kafka.interfaces import Batch, OutRecord, StreamConsumer
from rtolap.model.loader import Loader, LoaderApplication, LoaderBatch, LoaderRejects, LoaderSink
from rtolap.protocols.stream_load.messages import (
    LoadAnswer,
    LoadState,
    SchemaColumn,
    SendOptions,
    TableSchema,
    TwoPhaseAnswer,
)
from rtolap.stored.loader.commit import CLOCKS_APART_MS_MAX
from rtolap.stored.loader.job import LEASE_MS, JobConfig, JobResources, write_config
from rtolap.stored.loader.job_run import LoadJobRun, begin
from rtolap.stored.loader.label_retention import witness_of_all
from rtolap.stored.loader.preparing import FILTERED_UNKNOWN
from rtolap.stored.loader.reset import settle_batch
from rtolap.stored.loader.settle import Settler
from rtolap.stored.loader.sink import Sink
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.metastore.load_jobs import LoadJobEvent, LoadJobs
from rtolap.stored.metastore.offsets import OffsetsRecords

from tests.support.loader.loaded_offsets import loaded_offsets
from tests.support.stored.transaction_runs import Crash, FaultyLedger
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.loader_sink import MemorySink, Row, Transaction

T = TypeVar("T")
STEPS = 60
DRAIN_ROUNDS_MAX = 3_000
TIMEOUT_MS = 60_000
LATE_MS_MAX = 3 * (TIMEOUT_MS + CLOCKS_APART_MS_MAX)
MODELS = ("duplicate", "aggregate", "replace", "unique", "sequence")


def table_schema(model: str, extra: int = 0) -> TableSchema:
    """Return a schema with k: the key, v: a number, n: counts up over the whole topic, src: where the record
    stands."""
    merged = {"aggregate": ("SUM", "MAX", "MAX"), "replace": ("SUM", "REPLACE", "REPLACE")}
    v, n, src = merged.get(model, ("", "", ""))
    kinds = {"duplicate": "DUP_KEYS", "unique": "UNIQUE_KEYS", "sequence": "UNIQUE_KEYS"}
    return TableSchema(
        keys_type=kinds.get(model, "AGG_KEYS"),
        sequence_column="n" if model == "sequence" else None,
        properties=(
            SchemaColumn("k", "BIGINT", is_nullable="No"),
            SchemaColumn("v", "BIGINT", aggregation_type=v, is_nullable="No"),
            SchemaColumn("n", "BIGINT", aggregation_type=n),
            SchemaColumn("src", "VARCHAR", aggregation_type=src),
            *(SchemaColumn(f"x{at}", "BIGINT", aggregation_type=v and "MAX") for at in range(extra)),
        ),
    )


def answer_of(model: str, rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Return the rows of a table of that model after these rows, by the obvious slow way."""
    if model == "duplicate":
        return sorted((row["k"], row["v"], row["n"], row["src"]) for row in rows)
    found: dict[int, tuple[Any, ...]] = {}
    for row in rows:
        k, new = row["k"], (row["v"], row["n"], row["src"])
        old = found.get(k)
        if old is None:
            found[k] = new
        elif model == "aggregate":
            found[k] = (old[0] + new[0], max(old[1], new[1]), max(old[2], new[2]))
        elif model == "replace":
            found[k] = (old[0] + new[0], *new[1:])
        elif model == "unique" or new[1] > old[1]:
            found[k] = new
    return sorted((k, *values) for k, values in found.items())


class World:
    """A ledger and its clock; runs use jobs of their own in it."""

    def __init__(self, ledger: type[FaultyLedger] = FaultyLedger) -> None:
        self.clock = ManualClock(1_000_000)
        self.ledger = ledger.open("sqlite://", clock=self.clock, sleep=lambda _: None)


class FaultySink:
    """Between a process and `server`, the twin of a sink or a real one: requests and answers go astray."""

    def __init__(self, run: Run, server: Sink) -> None:
        self._run, self._server = run, server
        self.requests_may_join = server.requests_may_join

    def load(
        self, db: str, table: str, label: str, body: bytes, options: SendOptions, *, two_phase: bool = False
    ) -> LoadAnswer:
        run = self._run

        def request() -> LoadAnswer:
            return self._server.load(db, table, label, body, options, two_phase=two_phase)

        # often: it holds nothing up. A sink whose labels others use up takes one that comes again as new: no
        # loader can help that, and real ones remember for longer than a request is under way.
        if run.chance("comes late as well", often=4.0) and run.labels_max is None:
            run.later(request)
        match run.chance("fails", "under way", "under way", often=1.5):
            case "fails":
                return run.failed_load(db, table, label, body, options, two_phase=two_phase)
            case "under way":
                run.load_under_way(db, table, label, body, options, two_phase=two_phase)
                raise Unavailable("the answer took too long")
        return run.around(request)

    def commit_label(self, db: str, label: str) -> TwoPhaseAnswer:
        if self._run.chance("late commit") == "late commit":
            self._run.later(lambda: self._server.commit_label(db, label))
        return self._run.around(lambda: self._server.commit_label(db, label))

    def roll_back(self, db: str, label: str) -> TwoPhaseAnswer:
        return self._run.around(lambda: self._server.roll_back(db, label))

    def mark(self, db: str, table: str, label: str) -> bool:
        return self._run.around(lambda: self._server.mark(db, table, label))

    def state(self, db: str, label: str) -> LoadState:
        return self._run.around(lambda: self._server.state(db, label))

    def close_label(self, db: str, label: str) -> LoadState:
        return self._run.around(lambda: self._server.close_label(db, label))

    def schema(self, db: str, table: str) -> TableSchema:
        return self._run.around(lambda: self._server.schema(db, table))

    def keeps_labels(self) -> bool:
        return self._run.around(self._server.keeps_labels)

    def error_log(self, url: str) -> str:
        return self._run.around(lambda: self._server.error_log(url))

    def acknowledge(self, db: str, labels: Iterable[str]) -> None:
        kept = tuple(labels)
        self._run.around(lambda: self._server.acknowledge(db, kept))


class CountingBox:
    """`topic_number`: of the topics of the run's name, the latest when it was opened."""

    def __init__(self, kept: set[tuple[int, int, int]], topic_number: int) -> None:
        self._kept, self._topic_number = kept, topic_number

    def keep(self, topic: str, batch: Batch, rejects: Rejects, sent: SentBatch | None = None) -> None:
        for place, reason in zip(rejects.index.tolist(), rejects.reason, strict=True):
            if reason == FILTERED_UNKNOWN:  # of a batch whose answer was lost, not of a record
                continue
            self._kept.add((self._topic_number, int(batch.partitions[place]), int(batch.offsets[place])))

    def close(self) -> None:
        return


class Process:
    def __init__(self, work: LoadJobRun) -> None:
        self.work = work
        self.settlers: list[Settler] = [work.settler()]


class Run:
    models: Sequence[str] = MODELS

    def __init__(
        self,
        world: World,
        seed: int,
        steps: int = STEPS,
        *,
        application: LoaderApplication | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.seed, self.world, self.steps = seed, world, steps
        self.counts: Counter[str] = Counter()
        self.model = self.random.choice(self.models)
        self.faulty = self.random.choice((0.0, 0.1, 0.25))
        self.faults_on = False
        self.db, self.topic, self.job = "d", f"t{seed}", f"job{seed}"
        self.broker = MemoryBroker()
        self.broker.create(self.topic, self.random.choice((1, 2, 3)))
        self.labels_max: int | None = None
        self.create_table(keeps_labels=self.random.random() < 0.7)
        self.columns = 0
        self.loader = Loader(
            name=self.job,
            topic=self.topic,
            database="d",
            table=self.job,
            batch=LoaderBatch(rows=self.random.choice((3, 8, 20)), interval_ms=2_000),
            parallel=self.random.choice((1, 2, 4)),
            rejects=LoaderRejects(tolerance_percent=100),
            sink=LoaderSink(
                format=self.random.choice(("arrow", "json")),
                two_phase=self.random.random() < 0.4,
                timeout_ms=TIMEOUT_MS,
                label_kept_count=self.labels_max or 2_000,
            ),
            application=application,
        )
        self.jobs, self.records = LoadJobs(world.ledger), OffsetsRecords(world.ledger)
        world.ledger.fault = lambda: None
        config = write_config(JobConfig(self.loader))
        self.jobs.create(self.job, "d", self.job, self.topic, config)
        self.jobs.change_state(self.job, LoadJobEvent.START, "")
        world.ledger.fault = self._ledger_fault
        self.produced: list[Row] = []
        self.bad: set[tuple[int, int, int]] = set()  # the topic's number, partition, offset
        self.kept: set[tuple[int, int, int]] = set()
        self.topic_number = 0
        self.number = 0
        self.starts = 0
        self.late: list[tuple[int, Callable[[], object]]] = []
        self.processes: list[Process | None] = [None, None]

    # --- the sink -------------------------------------------------------------------------------------

    def create_table(self, *, keeps_labels: bool) -> None:
        self.labels_max = None if keeps_labels else self.random.choice((3, 8, 40))
        self.sink = MemorySink(
            keeps_labels=keeps_labels,
            now_ms=self.world.clock.now_ms if keeps_labels else None,
            labels_max=self.labels_max,
        )
        self.sink.tables["d", self.job] = table_schema(self.model)

    def open_sink(self) -> Sink:
        """Open the sink as a process has it."""
        return FaultySink(self, self.sink)

    def failed_load(
        self, db: str, table: str, label: str, body: bytes, options: SendOptions, *, two_phase: bool
    ) -> LoadAnswer:
        begun = self.sink.begin(db, table, label, options, two_phase=two_phase)
        if isinstance(begun, Transaction):
            self.sink.abort(begun)
            return LoadAnswer(label=label, message="no backend")
        return begun

    def load_under_way(
        self, db: str, table: str, label: str, body: bytes, options: SendOptions, *, two_phase: bool
    ) -> None:
        """Note a load that goes on later."""
        begun = self.sink.begin(db, table, label, options, two_phase=two_phase)
        if isinstance(begun, Transaction):
            self.later(lambda: self.sink.finish(begun, body, options))

    def late_ms_max(self) -> int:
        """Return how late a request may come. A sink that looks at a request's time may get it even when its
        label was given back, for its sender may have stood still; another gets it within its time-out."""
        return LATE_MS_MAX if self.sink.keeps_labels() else TIMEOUT_MS

    def deliver(self, request: Callable[[], object]) -> None:
        """Deliver a request that comes late; a sink that is down does not hear it."""
        if not self.sink.down:
            with suppress(Unavailable):  # broken off in its turn: nobody waits for its answer any more
                request()
            self.counts["came late"] += 1

    def heal(self) -> None:
        """End the faults: what the sink has begun, it ends."""
        self.sink.down = False
        self.sink.publishes_late = False
        self.sink.abort_running()
        self.sink.publish()

    def found(self) -> list[tuple[Any, ...]]:
        """Return the rows that the table holds, as `answer_of` gives them."""
        return answer_of(self.model, self.sink.rows("d", self.job))

    def labels(self) -> set[str]:
        """Return the labels that the sink keeps until they are given back."""
        return set(self.sink.labels("d")) if self.sink.keeps_labels() else set()

    # --- faults ---------------------------------------------------------------------------------------

    def chance(self, *kinds: str, often: float = 1.0) -> str | None:
        if self.faults_on and self.random.random() < self.faulty * often:
            kind = self.random.choice(kinds)
            self.counts[kind] += 1
            return kind
        return None

    def later(self, request: Callable[[], object]) -> None:
        """Keep a request that comes once more, or late."""
        late_ms = self.late_ms_max()
        self.late.append((self.world.clock.now_ms() + self.random.randrange(late_ms), request))

    def advance_ms(self, by_ms: int) -> None:
        """Advance the clock; requests that are due meanwhile arrive, each at its moment."""
        clock = self.world.clock
        until_ms = clock.now_ms() + by_ms
        while self.late and min(due_ms for due_ms, _ in self.late) <= until_ms:
            first = min(range(len(self.late)), key=lambda at: self.late[at][0])
            due_ms, request = self.late.pop(first)
            clock.advance_ms(max(0, due_ms - clock.now_ms()))
            self.deliver(request)
        clock.advance_ms(until_ms - clock.now_ms())

    def around(self, call: Callable[[], T]) -> T:
        fault = self.chance("request lost", "answer lost", "crash before a request", "crash after a request",
                            "request twice")  # fmt: skip
        if fault == "request lost":
            raise Unavailable("lost")
        if fault == "crash before a request":
            raise Crash
        answer = call()
        if fault == "request twice":
            answer = call()
        if fault == "answer lost":
            raise Unavailable("no answer")
        if fault == "crash after a request":
            raise Crash
        return answer

    def _ledger_fault(self) -> str | None:
        return self.chance("crash before", "crash after", "unacknowledged")

    # --- steps ----------------------------------------------------------------------------------------

    def run(self) -> Counter[str]:
        for _ in range(self.steps):
            self.step()
        self.finish()
        return self.counts

    def step(self) -> None:
        acts = self.acts()
        self.random.choices([act for act, _ in acts], [weight for _, weight in acts])[0]()

    def acts(self) -> tuple[tuple[Callable[[], object], int], ...]:
        """Return the actions that may come next, each with its weight."""
        return (
            (self.produce, 6),
            (self.consume, 10),
            (self.settle, 12),
            (self.commit, 3),
            (self.keep, 3),
            (self.pass_time, 5),
            (self.kill, 1),
            (self.take_over, 1),
            (self.restart_sink, 2),
            (self.add_partition, 1),
            (self.add_column, 1),
            (self.publish, 2),
            *(((self.others_load, 8),) if self.labels_max is not None else ()),
        )

    def produce(self) -> None:
        partitions = len(self.broker.logs(self.topic))
        for _ in range(self.random.randrange(1, 12)):
            partition = self.random.randrange(partitions)
            if self.random.random() < 0.05:
                self.broker.skip(self.topic, partition, self.random.randrange(1, 4))
                self.counts["gaps"] += 1
            self.number += 1
            # a key's records are in one partition: their order is its order
            row = {"k": partition * 100 + self.random.randrange(4), "v": self.random.randrange(100)}
            row |= {"n": self.number if self.model != "sequence" else self._unique_number()}
            value = row | {"src": f"s{self.number:05}", "x0": self.number, "left": "out"}
            is_bad = self.random.random() < 0.03
            text = b'{"k": "none"}' if is_bad else msgspec.json.encode(value)
            _, offset = self.broker.append(self.topic, OutRecord(text, partition=partition))
            if is_bad:
                self.bad.add((self.topic_number, partition, offset))
            else:
                self.produced.append(value)

    def _unique_number(self) -> int:
        """Return numbers in no order: the sequence column says which row is the latest."""
        return (self.number * 7_919) % 1_000_003

    def consume(self) -> None:
        self.of_any(lambda process: process.work.source.step(0.0))

    def settle(self) -> None:
        def one(process: Process) -> None:
            outcome = process.work.settle_once(process.settlers[0], 0.0, self.choose)
            self.counts[f"settle {outcome}"] += 1

        self.of_any(one)

    def choose(self, sequences: list[int]) -> int:
        """Choose which of the batches that are due is settled next."""
        return self.random.choice(sequences)

    def commit(self) -> None:
        self.of_any(lambda process: process.work.committer.run_once(self.world.clock.now_ms()))

    def keep(self) -> None:
        def one(process: Process) -> None:
            process.work.ownership.renew()
            process.work.columns.refresh()

        self.of_any(one)

    def pass_time(self) -> None:
        self.advance_ms(self.random.choice((500, 2_500, LEASE_MS + 1, TIMEOUT_MS + CLOCKS_APART_MS_MAX + 1)))
        all_loaded = all(record.loaded for record in self.records.all(self.job))
        if self.random.random() < 0.3 and (all_loaded or self.labels_max is not None):
            # long enough for a sink that forgets labels by time
            if not all_loaded:
                self.processes = [None, None]  # a silent sink would stop a loader meanwhile
            self.advance_ms(self.loader.sink.label_kept_ms + 1)
            self.forget_labels()

    def forget_labels(self) -> None:
        self.sink.forget_labels()

    def others_load(self) -> None:
        """Let others use labels of the database up, however many at once."""
        assert self.labels_max is not None
        number = self.random.randrange(1, 2 * self.labels_max)
        self.advance_ms(self.random.choice((0, 100, 5_000)))
        self.sink.use_labels(self.db, number)
        self.counts["others' labels"] += number

    def kill(self) -> None:
        self.processes[self.random.randrange(2)] = None

    def take_over(self) -> None:
        """Let another process take the job; the one before may go on in the belief that it is its own."""
        self.advance_ms(LEASE_MS + 1)
        self.processes.reverse()
        self.processes[0] = None
        self.counts["taken over"] += 1

    def restart_sink(self) -> None:
        self.sink.abort_running()
        self.sink.down = not self.sink.down
        self.sink.publishes_late = self.random.random() < 0.3

    def publish(self) -> None:
        self.sink.publish()

    def add_partition(self) -> None:
        logs = self.broker.logs(self.topic)
        if len(logs) < 6:
            logs.append(type(logs[0])())
            self.counts["partitions added"] += 1

    def add_column(self) -> None:
        if self.columns == 0 and self.random.random() < 0.5:
            self.columns = 1
            self.sink.tables["d", self.job] = table_schema(self.model, 1)

    def of_any(self, act: Callable[[Process], object]) -> None:
        place = 1 if self.processes[1] is not None and self.random.random() < 0.2 else 0
        self.faults_on = True
        try:
            process = self.processes[place]
            if process is None:
                process = self.processes[place] = self.started()
            act(process)
        except Crash:
            self.counts["crash"] += 1
            self.processes[place] = None
        except NotYet:
            self.counts["not yet"] += 1
            self.advance_ms(LEASE_MS // 2)
        except Stopped as stopped:
            self._report(place, stopped)
        except (Unavailable, CommitUnknown) as error:  # NotLeader among them: it has lost the job
            self.counts[type(error).__name__] += 1
            if isinstance(error, NotLeader):
                self.processes[place] = None
        finally:
            self.faults_on = False

    def _report(self, place: int, stopped: Stopped) -> None:
        """Report where a run stopped. A process that has lost the job may see what it cannot understand; its
        word does not count."""
        process, self.processes[place] = self.processes[place], None
        self.faults_on = False
        assert process is not None, f"seed {self.seed}: does not start: {stopped}"
        try:
            process.work.fail(stopped)
        except NotLeader:
            self.counts["stopped by a successor's work"] += 1
            return
        if stopped.cause is StopCause.LABEL_FORGOTTEN:
            self.find_out()
        else:
            raise AssertionError(f"seed {self.seed}: stopped: {stopped}") from stopped

    def find_out(self) -> None:
        """Let a person wait for the last request, and look up which of the batches sent are in the table."""
        self.advance_ms(LATE_MS_MAX + LEASE_MS + 1)
        self.processes = [None, None]
        loaded = self.loaded_labels()
        for record in self.records.all(self.job):
            if record.attempts and not record.loaded:
                if record.label in loaded:
                    settle_batch(self.jobs.leases, self.records, self.job, record.sequence_id, loaded=True)
                    self.counts["a person: loaded"] += 1
                elif self.sink.state(self.db, record.label) is LoadState.UNKNOWN:
                    settle_batch(self.jobs.leases, self.records, self.job, record.sequence_id, loaded=False)
                    self.counts["a person: not loaded"] += 1
        self.jobs.change_state(self.job, LoadJobEvent.START, "")

    def loaded_labels(self) -> set[str]:
        return {each.label for each in self.sink.committed if each.rows}

    def started(self) -> Process:
        self.starts += 1
        owner = f"p{self.starts}"
        return Process(
            begin(
                self.job,
                owner,
                JobResources(
                    self.jobs,
                    self.records,
                    self.open_sink(),
                    self._open_consumer,
                    CountingBox(self.kept, self.topic_number),
                    self.world.clock,
                ),
            )
        )

    def _open_consumer(self, loader: Loader) -> StreamConsumer:
        return MemoryConsumer(self.broker, loader.topic)

    # --- judgement ------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Finish when all is well again: one process brings the rest in."""
        self.faulty = 0.0
        self.heal()
        self.drain()
        self.judge()

    def drain(self) -> None:
        """Let a new process load all that is in the topic."""
        self.advance_ms(LEASE_MS + 1)
        self.processes = [None, None]
        for _ in range(DRAIN_ROUNDS_MAX):
            self.consume()
            self.settle()
            self.commit()
            self.advance_ms(300)
            self.keep()
            if self._is_loaded():
                return
        raise AssertionError(f"seed {self.seed}: not all is loaded after {DRAIN_ROUNDS_MAX} rounds")

    def _is_loaded(self) -> bool:
        process = self.processes[0]
        if process is None or len(process.work.window):
            return False
        loaded = loaded_offsets(self.records, self.job)
        logs = self.broker.logs(self.topic)
        return all(loaded.get(partition, 0) >= log.end for partition, log in enumerate(logs))

    def judge(self) -> None:
        """Judge after the last late request has come."""
        where = f"seed {self.seed}, {self.model}"
        self.advance_ms(LATE_MS_MAX + 1)
        found = self.found()
        expected = answer_of(self.model, self.produced)
        assert found == expected, (
            f"{where}: the table differs from a recount of the topic\n{found}\n{expected}"
        )
        assert self.kept == self.bad, f"{where}: refused records are kept: {self.kept} for {self.bad}"
        process = self.processes[0]
        assert process is not None
        process.work.ownership.renew()
        try:
            process.work.committer.run_once(self.world.clock.now_ms())
        except Unavailable as error:
            raise AssertionError(f"{where}: {error}") from error
        records = self.records.all(self.job)
        witness = None if self.labels_max is None else witness_of_all(records)
        left = [
            record for record in records[:-1] if witness is None or record.sequence_id < witness.sequence_id
        ]
        assert (records[-1].committed, left) == (True, []), f"{where}: records are left: {records}"
        labels = self.labels() - {records[0].label}
        assert not labels, f"{where}: labels are left: {sorted(labels)}"


class ForgetfulRun(Run):
    """The sink forgets labels by time and by number, and others load into its database.

    Several batches are under way at once, answers are lost more often than elsewhere, and others often use
    up just so many labels that one of a batch is dropped whose outcome the loader does not know yet: what
    finished after it, perhaps in the millisecond of its first request, is remembered.
    """

    # most of them show rows that are in it twice, and take several batches at once
    models = (*MODELS, *("duplicate", "aggregate") * 4)

    def __init__(self, world: World, seed: int, steps: int = 2 * STEPS) -> None:
        super().__init__(world, seed, steps)
        self.faulty = self.random.choice((0.1, 0.25))
        parallel = self.random.choice((1, 2, 4, 4))
        batch = LoaderBatch(rows=self.random.choice((3, 8)), interval_ms=2_000)
        self.loader = msgspec.structs.replace(self.loader, parallel=parallel, batch=batch)
        self.jobs.reconfigure(self.job, write_config(JobConfig(self.loader)))

    def create_table(self, *, keeps_labels: bool) -> None:
        super().create_table(keeps_labels=False)

    def acts(self) -> tuple[tuple[Callable[[], object], int], ...]:
        """Return the actions of every run, of which more bring batches under way and end them."""
        weights = {"produce": 10, "consume": 24, "settle": 30, "pass_time": 2, "others_load": 24}
        return tuple((act, weights.get(act.__name__, weight)) for act, weight in super().acts())

    def chance(self, *kinds: str, often: float = 1.0) -> str | None:
        if "answer lost" in kinds:
            return super().chance(*kinds, *("answer lost",) * 5, often=often)
        return super().chance(*kinds, often=often / 3)

    def choose(self, sequences: list[int]) -> int:
        return max(sequences) if self.random.random() < 0.7 else super().choose(sequences)

    def restart_sink(self) -> None:
        if self.sink.down or self.random.random() < 0.3:
            super().restart_sink()

    def others_load(self) -> None:
        unknown = {each.label for each in self.records.all(self.job) if each.attempts and not each.loaded}
        just_enough = self.sink.labels_before_dropped(self.db, unknown)
        if not just_enough or self.random.random() < 0.1:
            if self.random.random() < 0.1:
                super().others_load()
            return
        number = self.random.choice(just_enough)
        self.sink.use_labels(self.db, number)
        self.counts["others' labels"] += number
        self.counts["dropped while its outcome is unknown"] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--runs", type=int, default=1, help="this many seeds, from the first")
    options = parser.parse_args()
    world = World()
    total: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.runs):
        total += Run(world, seed).run()
    for name, count in sorted(total.items()):
        print(f"{count:8} {name}")


if __name__ == "__main__":
    main()

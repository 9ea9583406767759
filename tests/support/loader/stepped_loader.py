"""A loader driven step by step in this thread: Kafka, sink and refused records in memory, a clock by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from rtolap.base.errors import Unavailable
from rtolap.events.rejects import Rejects, SentBatch, dead_letter_records
from rtolap.kafka.dead_letters import KeptLetter
from rtolap.kafka.interfaces import Batch, OutRecord
from rtolap.model.loader import Loader, LoaderBatch
from rtolap.protocols.stream_load.messages import LoadAnswer, SchemaColumn, TableSchema
from rtolap.stored.loader.job import LEASE_MS, JobConfig, JobResources, write_config
from rtolap.stored.loader.job_run import LoadJobRun, begin
from rtolap.stored.loader.reset import settle_batch
from rtolap.stored.loader.settle import AttemptOutcome, Settler
from rtolap.stored.loader.states import TOPIC_MISSING_ANSWERS, TOPIC_MISSING_S, StopCause, Stopped
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.load_jobs import LoadJobEvent, LoadJobs
from rtolap.stored.metastore.offsets import OffsetsRecords

from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.loader_sink import MemorySink

COLUMNS = (SchemaColumn("k", "BIGINT", is_nullable="No"), SchemaColumn("v", "BIGINT"))


class Box:
    """Refused records in memory. `letters` are as a topic would have them."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, int, str]] = []
        self.letters: list[KeptLetter] = []
        self.error: Exception | None = None

    def keep(self, topic: str, batch: Batch, rejects: Rejects, sent: SentBatch | None = None) -> None:
        if self.error is not None:
            raise self.error
        for record in dead_letter_records(topic, batch, rejects, sent):
            partition, offset = int(record.headers["partition"]), int(record.headers["offset"])
            self.letters.append(KeptLetter(partition, offset, record.value, record.headers))
        for place, reason in zip(rejects.index.tolist(), rejects.reason, strict=True):
            self.kept.append((int(batch.partitions[place]), int(batch.offsets[place]), reason))

    def close(self) -> None:
        return


class World:
    """A topic `t` of two partitions, a table d.t, a job j; batches of two records."""

    def __init__(self, ledger: Ledger, clock: ManualClock) -> None:
        self.clock = clock
        self.box: Any = Box()
        self.jobs, self.records = LoadJobs(ledger), OffsetsRecords(ledger)
        self.broker = MemoryBroker()
        self.broker.create("t", 2)
        self.sink: Any = MemorySink()
        self.sink.tables["d", "t"] = TableSchema(properties=COLUMNS)
        self.owner = 0

    def create(self, **changes: Any) -> None:
        plain = Loader(name="j", topic="t", database="d", table="t", batch=LoaderBatch(rows=2))
        loader = msgspec.structs.replace(plain, **changes)
        self.jobs.create("j", "d", "t", "t", write_config(JobConfig(loader)))
        self.jobs.change_state("j", LoadJobEvent.START, "")

    def start(self) -> LoadJobRun:
        """Start a new process, after the one before is surely gone."""
        self.clock.advance_ms(LEASE_MS + 1)
        self.owner += 1
        return self.begin(f"p{self.owner}")

    def begin(self, owner: str) -> LoadJobRun:
        return begin("j", owner, self.resources())

    def resources(self) -> JobResources:
        """Return the resources of one process."""

        def open_consumer(loader: Loader) -> MemoryConsumer:
            with_statements = loader.watermark_records == "header"
            return MemoryConsumer(self.broker, loader.topic, with_statements=with_statements)

        return JobResources(self.jobs, self.records, self.sink, open_consumer, self.box, self.clock)

    def settle(self, batch: int, *, loaded: bool) -> None:
        """Settle a batch as a person has found it, as `rtolap loader settle` records it."""
        self.clock.advance_ms(LEASE_MS + 1)
        settle_batch(self.jobs.leases, self.records, "j", batch, loaded=loaded)

    def produce(self, *values: bytes | int, partition: int = 0) -> None:
        for value in values:
            text = value if isinstance(value, bytes) else b'{"k": %d, "v": 1}' % value
            self.broker.append("t", OutRecord(text, partition=partition))

    def keys(self) -> list[int]:
        return sorted(row["k"] for row in self.sink.rows("d", "t"))


def load_all(work: LoadJobRun, rounds: int = 20) -> Settler:
    settler = work.settler()
    for _ in range(rounds):
        work.source.step(0.0)
        work.settle_once(settler)
    return settler


def sent_and_unanswered(world: World, work: LoadJobRun) -> None:
    """Note the batch as sent, with an unknown outcome."""

    def lost(*_: object, **__: object) -> LoadAnswer:
        raise Unavailable("no answer")

    world.sink.load = lost
    assert work.settle_once(work.settler()) is AttemptOutcome.AGAIN
    del world.sink.load
    assert world.records.all("j")[-1].attempts == 1


def stopped_by(act: Callable[[], object]) -> StopCause:
    with pytest.raises(Stopped) as stopped:
        act()
    assert str(stopped.value).startswith(f"{stopped.value.cause}: ")
    return stopped.value.cause


def gone_after_a_while(world: World, ask: Callable[[], object]) -> None:
    """Assert that a missing topic stops the loader once it was asked for often enough, and for long enough:
    neither alone does."""
    for _ in range(2 * TOPIC_MISSING_ANSWERS):
        with pytest.raises(Unavailable, match="missing: waiting"):
            ask()
    world.clock.advance_ms(int(TOPIC_MISSING_S * 1000))
    assert stopped_by(ask) is StopCause.TOPIC_GONE

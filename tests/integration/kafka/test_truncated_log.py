"""Logs on real brokers that lose their tail in an unclean election, and are filled again."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import NotYet, RtolapError, Unavailable
from rtolap.cubes.receiver.answers.query_service import NotReady, answer
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local.checkpoint import NAME
from rtolap.cubes.receiver.local.realign import RangeReader, realign_job
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import LogTruncated
from rtolap.kafka.truncation import TruncationCheck
from rtolap.metadata.records import CubeControl
from rtolap.model.leader_epochs import continued
from rtolap.model.loader import Loader, LoaderBatch
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery
from rtolap.protocols.stream_load.messages import TableSchema
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stored.loader.job import JobConfig, JobResources, write_config
from rtolap.stored.loader.job_run import LoadJobRun, begin
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.load_jobs import LoadJobEvent, LoadJobs
from rtolap.stored.metastore.offsets import OffsetsRecords

from tests.support.cubes.builders import START_MS, small_schema
from tests.support.cut_topic import CUT, WHOLE, CutTopic
from tests.support.fleet.brokers import Brokers
from tests.support.loader.stepped_loader import COLUMNS, Box
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_producer import MemoryProducer
from tests.support.twins.loader_sink import MemorySink
from tests.support.waiting import result_of, until

Policy = Literal["stop", "drop"]


@pytest.fixture(scope="module")
def fleet(java: JavaArtifacts) -> Iterator[Brokers]:
    with tempfile.TemporaryDirectory(prefix="rtolap-cut-") as folder, Brokers(Path(folder), java) as started:
        yield started


@pytest.fixture
def brokers(fleet: Brokers) -> Brokers:
    """Three, which all run: a test that fails leaves those dead that it has killed."""
    for server in fleet.servers.values():
        if server.pid() is None:
            server.start()
    fleet.wait_alive(fleet.ids)
    return fleet


def body(kind: str) -> bytes:
    return json.dumps({"ts": START_MS, "kind": kind, "place": 1, "amount": 1}).encode()


class Receiver:
    """A core on real brokers, stepped by the test."""

    def __init__(self, topic: CutTopic, folder: Path, policy: Policy) -> None:
        schema = small_schema()
        cube = msgspec.structs.replace(schema.cube, truncation=policy)
        self.schema = msgspec.structs.replace(schema, cube=cube)
        self.topic, self.folder = topic, folder
        partitions = tuple(topic.partitions)
        control = CubeControl(
            enabled=True,
            assignment={"rs": partitions},
            assignment_epoch=1,
            first_offsets=dict.fromkeys(partitions, 0),
        )
        self.view = CubeView(control=control, start_offsets=dict.fromkeys(partitions, 0))
        self.core = self._core()

    def _core(self) -> CubeReceiver:
        return CubeReceiver(
            self.schema,
            replica_set="rs",
            consumer=self._consumer(),
            producer=MemoryProducer(MemoryBroker()),
            folder=self.folder,
            clock=SystemClock(),
            settings=ReceiverSettings(disk_free_bytes_min=0),
        )

    def _consumer(self) -> KafkaConsumer:
        return KafkaConsumer(self.topic.brokers.cluster, self.topic.name, with_create_ms=True)

    def restarted(self) -> None:
        self.core = self._core()

    def step(self) -> None:
        with suppress(RtolapError):  # a broker that is away
            self.core.step(self.view, 0.2)
        with suppress(RtolapError):
            self._realign()

    def _realign(self) -> None:
        job = realign_job(self.core.state, self.core.valid_partitions)
        if job is not None:
            reader = RangeReader(self.schema, self._consumer, SystemClock(), 1000, self.core.confirm_topic)
            self.core.apply_realigned(job.start_ms, (job.table,), reader.read(job.start_ms, job.pieces))

    def has_read(self, end: int) -> bool:
        self.step()
        return self.core.state.positions == dict.fromkeys(self.topic.partitions, end)

    def has_stopped_for_a_cut(self) -> bool:
        """A broker that has just started may not know the topic yet: that is waited for, and is no cut."""
        self.step()
        return self.core.consumer_state is ConsumerState.FAILED and self.core.reason.startswith(
            "log_truncated: "
        )

    def answered(self) -> Counter[str] | None:
        """None while it cannot answer yet."""
        wanted = PartialQuery("sales_by_kind", ("kind",), ("__rows",), HistorySnapshot())
        core = self.core
        try:
            table = answer(
                self.schema, core.state, wanted, owned=core.owned, receiver_id="r", progress=core.progress
            )
        except NotReady:
            return None
        kinds, rows = table.column("kind").to_pylist(), table.column("__rows").to_pylist()
        return Counter(dict(zip(kinds, rows, strict=True)))

    def close(self) -> None:
        self.core.close()


def recounted(topic: CutTopic) -> Counter[str]:
    held = topic.held()
    return Counter(json.loads(value or b"{}")["kind"] for log in held.values() for _, value in log)


@pytest.mark.parametrize("replicas", [(CUT, CUT), (CUT, WHOLE)], ids=["all cut", "some cut"])
def test_receivers_notice_a_log_that_was_cut_and_filled_again(
    brokers: Brokers, unique_name: str, tmp_path: Path, replicas: tuple[tuple[int, ...], ...]
) -> None:
    topic = CutTopic(brokers, unique_name, replicas)
    cut = [partition for partition, of_it in enumerate(replicas) if of_it == CUT]
    policies: tuple[Policy, ...] = ("stop", "drop")
    running = {policy: Receiver(topic, tmp_path / f"running-{policy}", policy) for policy in policies}
    later = {policy: Receiver(topic, tmp_path / f"later-{policy}", policy) for policy in policies}
    everybody = [*running.values(), *later.values()]
    topic.fill([body("kept")] * 60)
    for receiver in everybody:
        until(lambda receiver=receiver: receiver.has_read(60), "the first events to be read")
    topic.lose_follower()
    topic.fill([body("lost")] * 20)
    for receiver in everybody:
        until(lambda receiver=receiver: receiver.has_read(80), "the tail to be read")
        result_of(receiver.core.checkpoint, RtolapError)
        epochs = json.loads((receiver.folder / NAME).read_text())["epochs"]
        assert [known[0][-1][2] for known in epochs.values()] == [80] * len(replicas)
    for receiver in later.values():
        receiver.close()
    topic.cut()
    topic.fill([body("other")] * 100)
    for receiver in later.values():
        receiver.restarted()

    for receiver in (running["stop"], later["stop"]):
        until(
            receiver.has_stopped_for_a_cut,
            lambda receiver=receiver: f"the receiver to stop: {receiver.core.reason}",
        )
        for partition in cut:
            assert f"partition {partition} diverges at offset 60, before " in receiver.core.reason
        assert json.loads((receiver.folder / NAME).read_text())["positions"] == {
            str(partition): 80 for partition in topic.partitions
        }
    expected = recounted(topic)
    assert expected == Counter(kept=60 * len(replicas), other=100 * len(replicas)) + Counter(
        lost=20 * (len(replicas) - len(cut))
    )
    for receiver in (running["drop"], later["drop"]):
        until(
            is_exact_of(receiver, expected),
            lambda receiver=receiver: f"{receiver.answered()}, {receiver.core.reason}",
        )
        result_of(receiver.core.checkpoint, RtolapError)
        assert receiver.core.consumer_state is not ConsumerState.FAILED
    topic.bring_leader_back()
    topic.fill([body("more")] * 10)
    expected = recounted(topic)
    for receiver in (running["drop"], later["drop"]):
        until(is_exact_of(receiver, expected), "the old leader's return to be read over")
    for receiver in everybody:
        receiver.close()
    topic.close()


def is_exact_of(receiver: Receiver, expected: Counter[str]) -> Callable[[], bool]:
    def is_exact() -> bool:
        receiver.step()
        return receiver.answered() == expected

    return is_exact


def test_epochs_of_what_was_read_tell_a_cut_from_an_election(brokers: Brokers, unique_name: str) -> None:
    topic = CutTopic(brokers, unique_name, (CUT, WHOLE))
    consumer = KafkaConsumer(brokers.cluster, topic.name)
    consumer.assign({0: 0, 1: 0})
    check = TruncationCheck(topic.name, consumer.epoch_ends, action="look")
    epochs = {}
    topic.fill([b"kept"] * 5)

    def read_to(end: int) -> bool:
        nonlocal epochs
        epochs = continued(epochs, consumer.poll(100, 0.2).epochs)
        return [epochs[p].end for p in sorted(epochs)] == [end, end]

    until(lambda: read_to(5), "the first records")
    topic.lose_follower()
    topic.fill([b"lost"] * 5)
    until(lambda: read_to(10), "the tail")

    def compared() -> bool:
        with suppress(RtolapError):
            check.check(epochs)
            return True
        return False

    until(compared, "leaders to answer")
    brokers.servers[2].kill()
    with pytest.raises(RtolapError) as unavailable:
        check.check(epochs)
    assert not isinstance(unavailable.value, LogTruncated)
    brokers.servers[2].start()  # the same log, under another leader's epoch
    topic.fill([b"more"] * 5)
    until(lambda: read_to(15), "the records of the next epoch")
    until(compared, "leaders to answer")
    assert [len(epochs[p].ranges) > 1 for p in (0, 1)] == [True, False]

    topic.cut()
    topic.fill([b"other"] * 40)
    cuts: list[tuple[int, ...]] = []

    def found() -> bool:
        try:
            check.check(epochs)
        except LogTruncated as error:
            cuts.extend(map(tuple, error.cuts))
        except RtolapError:
            return False
        return bool(cuts)

    until(found, "the cut to be found")
    assert cuts == [(0, 15, 5)]
    consumer.close()
    topic.bring_leader_back()
    topic.close()


class LoaderJob:
    """A job on a ledger of its own and a sink in memory, driven by the test."""

    def __init__(self, topic: CutTopic, folder: Path, name: str) -> None:
        self.topic, self.name, self.sink = topic, name, MemorySink()
        self.ledger = Ledger.open(f"sqlite:///{folder / f'{name}.db'}")
        self.records, jobs = OffsetsRecords(self.ledger), LoadJobs(self.ledger)
        self.sink.tables["d", "t"] = TableSchema(properties=COLUMNS)
        loader = Loader(
            name=name,
            topic=topic.name,
            database="d",
            table="t",
            truncation="drop",
            batch=LoaderBatch(rows=20, interval_ms=500),
            parallel=8,
        )
        jobs.create(name, "d", "t", topic.name, write_config(JobConfig(loader)))
        jobs.change_state(name, LoadJobEvent.START, "")
        self.resources = JobResources(jobs, self.records, self.sink, self._consumer, Box(), SystemClock())
        self.work = self._begun("first")
        self.settler = self.work.settler()

    def _consumer(self, loader: Loader) -> KafkaConsumer:
        return KafkaConsumer(self.topic.brokers.cluster, loader.topic)

    def _begun(self, owner: str) -> LoadJobRun:
        return result_of(lambda: begin(self.name, owner, self.resources), (Unavailable, NotYet))

    def restarted(self) -> None:
        """By another process, once the lease of the one before is over."""
        self.work.source.close()
        self.work = self._begun("second")
        self.settler = self.work.settler()

    def step(self, *, settle: bool = True) -> None:
        with suppress(Unavailable):
            self.work.ownership.renew()
            self.work.source.step(0.2)
        if settle:
            with suppress(Unavailable):
                self.work.settle_once(self.settler)

    def recorded(self) -> Counter[int]:
        return Counter(self.records.all(self.name)[-1].end_offsets)

    def keys(self) -> list[int]:
        return sorted(row["k"] for row in self.sink.rows("d", "t"))

    def close(self) -> None:
        self.work.source.close()
        self.ledger.close()


def test_a_loader_takes_back_what_it_has_not_sent_and_stops_for_what_it_has_loaded(
    brokers: Brokers, unique_name: str, tmp_path: Path
) -> None:
    topic = CutTopic(brokers, unique_name, (CUT, WHOLE))
    unsent, loaded = LoaderJob(topic, tmp_path, "unsent"), LoaderJob(topic, tmp_path, "loaded")
    topic.fill([b'{"k": %d}' % key for key in range(60)])

    for job in (unsent, loaded):
        until(steps_to(job, {0: 60, 1: 60}), "the first records to be loaded")
    topic.lose_follower()
    topic.fill([b'{"k": %d}' % key for key in range(60, 80)])
    until(steps_to(unsent, {0: 80, 1: 80}, settle=False), "the tail to be recorded")
    until(steps_to(loaded, {0: 80, 1: 80}), "the tail to be loaded")
    topic.cut()
    topic.fill([b'{"k": %d}' % key for key in range(1000, 1100)])
    for job in (unsent, loaded):
        job.restarted()

    until(steps_to(unsent, {0: 160, 1: 180}), "what the log holds to be loaded")
    expected = sorted(json.loads(value or b"{}")["k"] for log in topic.held().values() for _, value in log)
    assert unsent.keys() == expected
    stopped: list[Stopped] = []

    def has_stopped() -> bool:
        try:
            loaded.step()
        except Stopped as error:
            stopped.append(error)
        return bool(stopped)

    until(has_stopped, "the other to stop")
    assert stopped[0].cause is StopCause.LOG_TRUNCATED
    assert "partition 0 diverges at offset 60, before 80" in str(stopped[0])
    assert loaded.keys() == sorted([*range(80), *range(80)])
    for job in (unsent, loaded):
        job.close()
    topic.bring_leader_back()
    topic.close()


def steps_to(job: LoaderJob, ends: dict[int, int], *, settle: bool = True) -> Callable[[], bool]:
    def is_loaded() -> bool:
        job.step(settle=settle)
        return job.recorded() == Counter(ends) and not (settle and len(job.work.window))

    return is_loaded

"""A log that was cut and grew again under its topic: a receiver counts nothing that is no longer there."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from rtolap.base.errors import Unavailable
from rtolap.cubes.receiver.answers.query_service import NotReady, answer
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.core.topic_watch import LOG_END_EVERY_S
from rtolap.cubes.receiver.local.checkpoint import NAME
from rtolap.cubes.receiver.local.realign import RangeReader, realign_job
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import LogTruncated, OutRecord
from rtolap.kafka.truncation import TruncationCheck
from rtolap.metadata import segments
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.protocols.receiver.messages import ANSWER_KEY, HistorySnapshot, PartialAnswer, PartialQuery

from tests.support.cubes.builders import START_MS, small_schema
from tests.support.seeds import notices, so_many
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer

CONTROL = CubeControl(enabled=True, assignment={"rs": (0, 1)}, assignment_epoch=1, first_offsets={0: 0, 1: 0})
WINDOW_MS = small_schema().cube.segment.window_ms


class Bench:
    def __init__(self, folder: Path, policy: Literal["stop", "drop"]) -> None:
        schema = small_schema()
        cube = msgspec.structs.replace(schema.cube, truncation=policy)
        self.schema = msgspec.structs.replace(schema, cube=cube)
        self.folder, self.clock = folder, ManualClock(START_MS)
        self.broker = MemoryBroker()
        self.broker.create("sales", 2)
        self.broker.create("sales.dead-letters", 1)
        self.records: dict[int, SegmentRecord] = {}
        self.start_offsets = {0: 0, 1: 0}
        self.core = self.started()

    def started(self) -> CubeReceiver:
        self.core = CubeReceiver(
            self.schema,
            replica_set="rs",
            consumer=self.consumer(),
            producer=MemoryProducer(self.broker),
            folder=self.folder,
            clock=self.clock,
            settings=ReceiverSettings(disk_free_bytes_min=0),
        )
        return self.core

    def consumer(self) -> MemoryConsumer:
        return MemoryConsumer(self.broker, "sales", with_create_ms=True)

    def send(
        self, count: int, kind: str = "a", *, partitions: tuple[int, ...] = (0, 1), window: int = 0
    ) -> None:
        ts = START_MS + window * WINDOW_MS
        body = json.dumps({"ts": ts, "kind": kind, "place": 1, "amount": 1}).encode()
        for _ in range(count):
            for partition in partitions:
                self.broker.append("sales", OutRecord(body, partition=partition, timestamp_ms=ts))

    def step(self) -> None:
        view = CubeView(control=CONTROL, records=self.records, start_offsets=self.start_offsets, leading=True)
        while self.core.step(view):
            pass

    def look(self) -> None:
        """What a receiver does within a second: looks at the logs, follows what it finds, realigns."""
        self.clock.advance_ms(int(LOG_END_EVERY_S * 1000) + 1)
        for _ in range(4):
            self.step()
            with suppress(LogTruncated):  # the core finds it, too
                self.realign()

    def realign(self) -> None:
        reader = RangeReader(self.schema, self.consumer, self.clock, 100, self.core.confirm_topic)
        while (job := realign_job(self.core.state, self.core.valid_partitions)) is not None:
            fresh = reader.read(job.start_ms, job.pieces)
            assert self.core.apply_realigned(job.start_ms, (job.table,), fresh)

    def answered(self, at_least: dict[int, int] | None = None) -> dict[str, int]:
        wanted = PartialQuery(
            "sales_by_kind", ("kind",), ("__rows",), HistorySnapshot(), at_least=at_least or {}
        )
        core = self.core
        table = answer(
            self.schema, core.state, wanted, owned=core.owned, receiver_id="r", progress=core.progress
        )
        self.meta = msgspec.json.decode(table.schema.metadata[ANSWER_KEY], type=PartialAnswer)
        counts: dict[str, int] = {}
        for kind, rows in zip(
            table.column("kind").to_pylist(), table.column("__rows").to_pylist(), strict=True
        ):
            counts[kind] = counts.get(kind, 0) + rows
        return counts

    def recounted(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for log in self.broker.logs("sales"):
            for record in log.records:
                kind = json.loads(record.value or b"{}")["kind"]
                counts[kind] = counts.get(kind, 0) + 1
        return counts

    def saved(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.folder / NAME).read_text())
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """It has read and saved ten events of each partition; it stops where a log was cut."""
    return read(Bench(tmp_path, "stop"))


@pytest.fixture
def dropping(tmp_path: Path) -> Bench:
    return read(Bench(tmp_path, "drop"))


def read(bench: Bench) -> Bench:
    bench.send(10)
    bench.step()
    bench.core.checkpoint()
    return bench


def assert_stopped(bench: Bench, *named: str) -> None:
    assert bench.core.consumer_state is ConsumerState.FAILED, bench.core.reason
    assert bench.core.reason.startswith("log_truncated: ")
    for text in named:
        assert text in bench.core.reason


def test_a_checkpoint_keeps_the_leader_epochs_of_what_was_read(bench: Bench) -> None:
    assert bench.saved()["epochs"] == {"0": [[[0, 0, 10]]], "1": [[[0, 0, 10]]]}


def test_a_receiver_that_starts_behind_a_cut_stops_and_names_it(bench: Bench) -> None:
    bench.broker.cut("sales", 0, 6)
    bench.send(20, "b")
    bench.started()
    bench.step()
    assert_stopped(bench, "partition 0 diverges at offset 6, before 10", "up to offset 10 of partition 0")
    assert bench.answered() == {"a": 20}


def test_a_receiver_that_is_running_stops_too_and_stores_nothing_of_it(bench: Bench) -> None:
    bench.broker.cut("sales", 1, 3)
    bench.send(20, "b")
    bench.step()
    with pytest.raises(LogTruncated):
        bench.core.checkpoint()
    bench.step()
    assert_stopped(bench, "partition 1 diverges at offset 3")
    assert bench.saved()["positions"] == {"0": 10, "1": 10}


def test_it_is_found_by_the_next_look_at_the_logs(bench: Bench) -> None:
    bench.broker.cut("sales", 0, 6)
    bench.send(20, "b")
    bench.look()
    assert_stopped(bench)


def test_a_log_that_is_still_shorter_is_named_by_its_cut(bench: Bench) -> None:
    bench.broker.cut("sales", 0, 6)
    bench.send(1, "b")
    bench.step()
    assert_stopped(bench, "partition 0 diverges at offset 6")


def test_nothing_is_closed_by_offsets_behind_a_cut(bench: Bench) -> None:
    bench.broker.cut("sales", 0, 6)
    bench.send(20, "b")
    bench.step()
    bench.core.force.add(START_MS)
    assert bench.core.closings() == ()


def test_a_person_who_starts_it_again_changes_nothing_while_the_log_is_as_it_is(bench: Bench) -> None:
    bench.broker.cut("sales", 0, 6)
    bench.send(20, "b")
    bench.look()
    bench.core.restart()
    bench.step()
    assert_stopped(bench)


def test_an_election_without_loss_is_read_over(bench: Bench) -> None:
    bench.broker.elect("sales", 0)
    bench.send(5, "b")
    bench.started()
    bench.look()
    assert bench.core.consumer_state is not ConsumerState.FAILED
    assert bench.answered() == bench.recounted()
    bench.core.checkpoint()
    assert bench.saved()["epochs"] == {"0": [[[0, 0, 10], [1, 10, 15]]], "1": [[[0, 0, 15]]]}


def test_a_broker_that_is_down_or_behind_is_waited_for(bench: Bench) -> None:
    bench.send(5, "b")
    log = bench.broker.logs("sales")[0]
    bench.started()
    ahead, log.epochs = log.epochs, [log.epochs[0]._replace(epoch=-1)]
    bench.step()
    assert bench.core.consumer_state is not ConsumerState.FAILED
    assert bench.core.state.positions == {0: 10, 1: 10}
    with pytest.raises(Unavailable):
        bench.core.confirm_topic()
    log.epochs = ahead
    bench.step()
    assert bench.answered() == bench.recounted()


def test_a_checkpoint_without_epochs_is_taken_and_upgraded(bench: Bench) -> None:
    saved = bench.saved()
    del saved["epochs"], saved["void"]
    (bench.folder / NAME).write_text(json.dumps(saved))
    bench.started()
    bench.send(2)
    bench.step()
    bench.core.checkpoint()
    assert bench.saved()["epochs"] == {"0": [[[0, 10, 12]]], "1": [[[0, 10, 12]]]}
    bench.broker.cut("sales", 0, 11)
    bench.send(20, "b")
    bench.started()
    bench.step()
    assert_stopped(bench, "partition 0 diverges at offset 11")


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("cuts", [{0: 6}, {0: 6, 1: 0}, {0: 9, 1: 9}, {1: 0}])
def test_by_policy_what_the_log_lost_is_dropped_and_the_rest_read_again(
    dropping: Bench, cuts: dict[int, int], restarted: bool
) -> None:
    for partition, at in cuts.items():
        dropping.broker.cut("sales", partition, at)
    dropping.send(20, "b")
    if restarted:
        dropping.started()
    dropping.look()
    assert dropping.core.consumer_state is not ConsumerState.FAILED
    assert dropping.answered() == dropping.recounted()
    dropping.core.checkpoint()
    dropping.started()
    dropping.look()
    assert dropping.answered() == dropping.recounted()


def test_nobody_is_answered_out_of_a_table_that_holds_lost_events(dropping: Bench) -> None:
    dropping.broker.cut("sales", 0, 6)
    dropping.clock.advance_ms(int(LOG_END_EVERY_S * 1000) + 1)
    for _ in range(3):
        dropping.step()
    with pytest.raises(NotReady, match="realigned"):
        dropping.answered()
    dropping.core.checkpoint()
    dropping.started()
    dropping.step()
    with pytest.raises(NotReady, match="realigned"):
        dropping.answered()
    dropping.realign()
    assert dropping.answered() == {"a": 16}


def test_an_answer_that_held_lost_events_is_not_waited_for(dropping: Bench) -> None:
    dropping.broker.cut("sales", 0, 6)
    dropping.look()
    assert dropping.answered({0: 10, 1: 10}) == {"a": 16}
    assert dropping.meta.void == {0: 10}
    with pytest.raises(NotReady):
        dropping.answered({0: 11})
    dropping.send(4, "b", partitions=(0,))
    dropping.step()
    assert dropping.answered({0: 10}) == {"a": 16, "b": 4}
    assert dropping.meta.void == {}


@pytest.mark.parametrize("covered", [True, False], ids=["history", "closing vector"])
def test_what_history_or_a_closing_vector_counts_is_never_dropped(dropping: Bench, covered: bool) -> None:
    record = SegmentRecord(cube="sales_by_kind", start_ms=START_MS, end_ms=START_MS + WINDOW_MS)
    closed = segments.close(record, {0: 8, 1: 8}, now_ms=0, by="test")
    changed = {"covered": closed.target, "target": {}, "version": 1} if covered else {}
    dropping.records = {START_MS: msgspec.structs.replace(closed, **changed)}
    dropping.broker.cut("sales", 0, 6)
    dropping.send(20, "b")
    dropping.look()
    assert_stopped(dropping, f"segments {record.name} count offsets beyond that")


@pytest.mark.parametrize("cut_again", [False, True], ids=["its log stands", "its log was cut, too"])
def test_a_vector_of_the_log_after_the_cut_forbids_nothing_while_that_log_stands(
    dropping: Bench, cut_again: bool
) -> None:
    """Another receiver had settled the cut and closed a segment; this one begins with what it read before."""
    record = SegmentRecord(cube="sales_by_kind", start_ms=START_MS, end_ms=START_MS + WINDOW_MS)
    dropping.broker.cut("sales", 0, 6)
    dropping.send(20, "b")
    if cut_again:
        dropping.broker.cut("sales", 0, 5)
        dropping.send(20, "c")
    vector, epochs = {0: 8, 1: 8}, {0: 1, 1: 0}
    dropping.records = {START_MS: segments.close(record, vector, now_ms=0, by="test", epochs=epochs)}
    dropping.look()
    if cut_again:
        assert_stopped(dropping, f"segments {record.name} count offsets beyond that")
    else:
        assert dropping.core.consumer_state is not ConsumerState.FAILED
        assert dropping.answered() == dropping.recounted()


def test_a_vector_below_the_cut_forbids_nothing(dropping: Bench) -> None:
    record = SegmentRecord(cube="sales_by_kind", start_ms=START_MS, end_ms=START_MS + WINDOW_MS)
    dropping.records = {START_MS: segments.close(record, {0: 6, 1: 10}, now_ms=0, by="test")}
    dropping.broker.cut("sales", 0, 6)
    dropping.send(20, "b")
    dropping.look()
    assert dropping.core.consumer_state is not ConsumerState.FAILED
    assert dropping.answered() == dropping.recounted()


def test_a_closing_tells_the_epoch_below_its_vector_and_a_fresh_receiver_compares_it(
    bench: Bench, tmp_path: Path
) -> None:
    bench.broker.elect("sales", 0)
    bench.send(1)
    bench.step()
    bench.core.force.add(START_MS)
    (closing,) = bench.core.closings()
    assert (closing.vector, closing.epochs) == ({0: 11, 1: 11}, {0: 1, 1: 0})
    record = SegmentRecord(cube="sales_by_kind", start_ms=START_MS, end_ms=START_MS + WINDOW_MS)
    closed = segments.close(record, closing.vector, now_ms=0, by="test", epochs=closing.epochs)
    assert closed.target_epochs == {0: 1, 1: 0}
    bench.broker.cut("sales", 0, 9)
    bench.send(20, "b")
    bench.folder = tmp_path / "fresh"
    bench.records = {START_MS: closed}
    bench.started()
    bench.step()
    assert_stopped(bench, "partition 0 diverges at offset 9, before 11", "count offsets beyond that")


def test_a_start_that_was_told_beyond_the_cut_is_taken_back(dropping: Bench) -> None:
    dropping.start_offsets = {0: 10, 1: 10}
    dropping.broker.cut("sales", 0, 6)
    dropping.send(20, "b")
    dropping.look()
    assert dropping.answered() == dropping.recounted()
    assert dropping.core.lowered == {0: 6}


def live(folder: Path, seed: int) -> None:
    """A random life under `drop`, held against a recount of the logs."""
    rng = random.Random(seed)
    bench = Bench(folder, "drop")
    seen: list[str] = []
    for step in range(40):
        partition = rng.randrange(2)
        action = rng.choice(("send", "send", "send", "step", "look", "cut", "elect", "save", "crash", "skip"))
        seen.append(action)
        match action:
            case "send":
                bench.send(rng.randrange(1, 6), f"k{step}", partitions=(partition,), window=rng.randrange(3))
            case "step":
                bench.step()
            case "look":
                bench.look()
            case "elect":
                bench.broker.elect("sales", partition)
            case "skip":
                bench.broker.skip("sales", partition, 1)
                bench.look()  # which epoch a marker has is only told by the log
            case "cut":
                end = bench.broker.logs("sales")[partition].end
                bench.broker.cut("sales", partition, rng.randrange(max(0, end - 6), end + 1))
            case "save":
                with suppress(LogTruncated):
                    bench.core.checkpoint()
            case "crash":
                bench.started()
        assert bench.core.consumer_state is not ConsumerState.FAILED, f"seed {seed}: {bench.core.reason}"
    bench.look()
    bench.look()
    assert bench.answered() == bench.recounted(), f"seed {seed} differs from a recount: {seen}"


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(40)))
def test_random_lives_end_with_what_the_logs_hold(tmp_path: Path, seed: int) -> None:
    live(tmp_path, seed)


def test_the_lives_notice_a_receiver_that_reads_on_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TruncationCheck, "check", lambda self, *positions: {})
    assert notices(lambda seed: live(tmp_path / str(seed), seed), 14, "differs from a recount")

"""The core of a receiver, stepped by hand on the memory broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rtolap.base.errors import StaleSnapshot, Unavailable
from rtolap.cubes.receiver import reports
from rtolap.cubes.receiver.answers.query_service import NotReady, answer
from rtolap.cubes.receiver.core import intake, limits
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local.batch import LATE_SAMPLES
from rtolap.cubes.receiver.local.checkpoint import NAME
from rtolap.cubes.receiver.local.realign import RangeReader, realign_job
from rtolap.cubes.receiver.reports import cube_report
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.cubes.receiver.views import CubeView
from rtolap.events.rejects import VALUE_BYTES_MAX
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.cube import LatePolicy, Schema
from rtolap.model.predicate import Compare
from rtolap.model.segment import SegmentRange, SegmentState
from rtolap.protocols.receiver.messages import ANSWER_KEY, HistorySnapshot, PartialAnswer, PartialQuery

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryProducer

CONTROL = CubeControl(enabled=True, assignment={"rs": (0, 1)}, assignment_epoch=1, first_offsets={0: 0, 1: 0})
SEGMENT = SegmentRecord(cube="sales_by_kind", start_ms=START_MS, end_ms=START_MS + WINDOW_MS)


class Bench:
    def __init__(self, folder: Path, schema: Schema | None = None, **settings: Any) -> None:
        self.schema = schema or small_schema()
        self.folder = folder
        self.clock = ManualClock(START_MS)
        self.broker = MemoryBroker()
        self.admin = MemoryAdmin(self.broker)
        self.admin.create_topic("sales", 2)
        self.admin.create_topic("sales.dead-letters", 1)
        self.producer = MemoryProducer(self.broker)
        self.settings = ReceiverSettings(**{"disk_free_bytes_min": 0, **settings})
        self.view = CubeView(control=CONTROL, start_offsets={0: 0, 1: 0})
        self.core = self.restarted()

    def restarted(self) -> CubeReceiver:
        self.core = CubeReceiver(
            self.schema,
            replica_set="rs",
            consumer=MemoryConsumer(self.broker, "sales"),
            producer=self.producer,
            folder=self.folder,
            clock=self.clock,
            settings=self.settings,
        )
        return self.core

    def send(self, count: int, *, at_ms: int = START_MS, partition: int = 0, kind: str = "a") -> None:
        body = json.dumps({"ts": at_ms, "kind": kind, "place": 1, "amount": 1}).encode()
        self.producer.produce("sales", [OutRecord(body, partition=partition) for _ in range(count)])

    def step(self, **view: Any) -> None:
        for name, value in view.items():
            self.view = CubeView(
                **{**{f: getattr(self.view, f) for f in CubeView.__dataclass_fields__}, name: value}
            )
        while self.core.step(self.view):
            pass
        self.core.step(self.view)

    def record(self, **changes: Any) -> None:
        self.step(records={START_MS: msgspec.structs.replace(SEGMENT, **changes)})

    def realign(self) -> None:
        reader = RangeReader(
            self.schema,
            lambda: MemoryConsumer(self.broker, "sales"),
            self.clock,
            100,
            self.core.confirm_topic,
        )
        while (job := realign_job(self.core.state, self.core.valid_partitions)) is not None:
            assert self.core.apply_realigned(
                job.start_ms, (job.table,), reader.read(job.start_ms, job.pieces)
            )

    def ask(self, snapshot: HistorySnapshot | None = None, **query: Any) -> tuple[int, PartialAnswer]:
        wanted = PartialQuery("sales_by_kind", (), ("__rows",), snapshot or HistorySnapshot(), **query)
        table = answer(
            self.schema,
            self.core.state,
            wanted,
            owned=self.core.owned,
            receiver_id="r",
            progress=self.core.progress,
        )
        said = msgspec.json.decode(table.schema.metadata[ANSWER_KEY], type=PartialAnswer)
        return sum(table.column("__rows").to_pylist()), said

    def rows(self, *args: Any, **query: Any) -> int:
        return self.ask(*args, **query)[0]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_what_has_arrived_is_answered_with_its_positions(bench: Bench) -> None:
    bench.send(5)
    bench.send(2, partition=1, kind="b")
    bench.step()
    assert bench.ask()[1].positions == {0: 5, 1: 2}
    assert bench.rows() == 7
    assert bench.rows(filter=Compare("kind", "eq", "b")) == 2


def test_an_answer_waits_for_what_an_earlier_one_held(bench: Bench) -> None:
    bench.step()
    with pytest.raises(NotReady, match="offset 3"):
        bench.rows(at_least={0: 3})
    bench.send(3)
    bench.step()
    assert bench.rows(at_least={0: 3}) == 3


def test_nothing_is_answered_before_the_first_step(bench: Bench) -> None:
    with pytest.raises(NotReady, match="any assignment"):
        bench.rows()


def test_nothing_is_answered_before_all_partitions_are_started(bench: Bench) -> None:
    bench.core.step(CubeView(control=CONTROL))
    with pytest.raises(NotReady):
        bench.rows()


def test_ready_versions_are_dropped_and_an_older_snapshot_is_stale(bench: Bench) -> None:
    bench.send(4)
    bench.step()
    bench.record(state=SegmentState.READY, version=1, covered={0: 4, 1: 0})
    assert not bench.core.state.segments
    assert bench.rows(HistorySnapshot({SEGMENT.name: 1})) == 0
    with pytest.raises(StaleSnapshot):
        bench.rows(HistorySnapshot())
    with pytest.raises(NotReady, match="version 2"):
        bench.rows(HistorySnapshot({SEGMENT.name: 2}))


def test_a_table_that_straddles_history_is_realigned_before_it_answers(bench: Bench) -> None:
    bench.send(10)
    bench.step()
    bench.record(state=SegmentState.READY, version=1, covered={0: 6, 1: 0})
    snapshot = HistorySnapshot({SEGMENT.name: 1})
    with pytest.raises(NotReady, match="realigned"):
        bench.rows(snapshot)
    bench.realign()
    assert bench.rows(snapshot) == 4


def test_a_closing_vector_does_not_stop_answers(bench: Bench) -> None:
    bench.send(10)
    bench.step()
    bench.record(state=SegmentState.IMMUTABLE, target={0: 6, 1: 0})
    assert bench.rows() == 10
    bench.realign()
    assert bench.rows() == 10
    assert {t.versions for s in bench.core.state.segments.values() for t in s.tables} == {(1,), (2,)}


def test_an_answer_waits_until_history_is_caught_up_with(bench: Bench) -> None:
    bench.send(2)
    bench.step()
    bench.record(state=SegmentState.READY, version=1, covered={0: 5, 1: 0})
    with pytest.raises(NotReady, match="history holds"):
        bench.rows(HistorySnapshot({SEGMENT.name: 1}))
    bench.send(4)
    bench.step()
    assert bench.rows(HistorySnapshot({SEGMENT.name: 1})) == 1


def test_late_events_are_counted_and_under_the_drop_policy_dropped(tmp_path: Path) -> None:
    bench = Bench(tmp_path, small_schema(late=LatePolicy("drop")))
    bench.send(3)
    bench.step()
    bench.record(state=SegmentState.IMMUTABLE, target={0: 3, 1: 0})
    bench.send(2)
    bench.step()
    assert bench.rows() == 3
    assert (bench.core.progress.counters[0].late, bench.core.progress.counters[0].dropped) == (2, 2)
    assert [(each.partition, each.offset) for each in bench.core.progress.late] == [(0, 3), (0, 4)]
    assert all(START_MS <= each.event_ms < START_MS + WINDOW_MS for each in bench.core.progress.late)
    bench.send(LATE_SAMPLES + 5)
    bench.step()
    last = [each.offset for each in bench.core.progress.late]
    assert last == list(range(10, 10 + LATE_SAMPLES)), "the last ones"


def test_purged_segments_stay_purged(bench: Bench) -> None:
    bench.send(3)
    bench.step()
    horizon = msgspec.structs.replace(CONTROL, horizon_ms=START_MS + WINDOW_MS)
    bench.step(control=horizon)
    bench.send(2)
    bench.step()
    assert not bench.core.state.segments
    assert bench.core.progress.counters[0].dropped == 2
    with pytest.raises(StaleSnapshot):
        bench.rows(HistorySnapshot())
    assert bench.rows(HistorySnapshot(horizon_ms=START_MS + WINDOW_MS)) == 0


def test_a_restart_goes_on_at_the_checkpoint(bench: Bench) -> None:
    bench.send(6)
    bench.step()
    bench.core.checkpoint()
    bench.send(3)
    bench.step()
    bench.restarted()
    bench.step()
    assert bench.rows() == 9
    assert bench.core.progress.counters[0].events == 9
    assert sum(not t.in_memory for t in bench.core.state.tables()) == 1


def test_files_that_no_checkpoint_names_are_deleted(bench: Bench) -> None:
    bench.send(6)
    bench.step()
    bench.core.checkpoint()
    stray = bench.folder / "fragments" / "stray.arrow"
    stray.write_bytes(b"half a fragment")
    bench.restarted()
    bench.step()
    assert not stray.exists()
    assert bench.rows() == 6


@pytest.mark.parametrize("victim", [NAME, "fragments/*.arrow"])
def test_broken_local_files_are_a_visible_failure(bench: Bench, victim: str) -> None:
    bench.send(6)
    bench.step()
    bench.core.checkpoint()
    (path,) = bench.folder.glob(victim)
    path.write_bytes(path.read_bytes()[:-7] + b"garbage")
    bench.restarted()
    bench.step()
    assert bench.core.consumer_state is ConsumerState.FAILED
    assert bench.core.reason


def test_rows_make_a_checkpoint(tmp_path: Path) -> None:
    bench = Bench(tmp_path, flush_rows=3)
    for kind in "abcd":
        bench.send(1, kind=kind)
    bench.step()
    assert bench.core.checkpointed == {0: 4, 1: 0}
    assert not any(t.in_memory for t in bench.core.state.tables())


def test_too_many_closed_segments_pause_and_their_history_resumes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, unbuilt_segments_max=1)
    bench.send(2)
    bench.step()
    bench.clock.advance_ms(2000)
    bench.record(state=SegmentState.IMMUTABLE, target={0: 2, 1: 0})
    bench.clock.advance_ms(2000)
    bench.step()
    assert bench.core.consumer_state is ConsumerState.PAUSED
    assert "wait for history" in bench.core.reason
    bench.clock.advance_ms(2000)
    bench.record(state=SegmentState.READY, version=1, covered={0: 2, 1: 0})
    assert bench.core.consumer_state is ConsumerState.CONSUMING


def test_a_full_disk_pauses_and_space_resumes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 10

    def usage(_: object) -> tuple[int, int, int]:
        return limits.shutil._ntuple_diskusage(100, 100 - free, free)  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setattr(limits.shutil, "disk_usage", usage)
    bench.settings = ReceiverSettings(disk_free_bytes_min=20)
    bench.restarted()
    bench.step()
    assert bench.core.consumer_state is ConsumerState.PAUSED
    assert "disk" in bench.core.reason
    free = 50
    bench.clock.advance_ms(2000)
    bench.step()
    assert bench.core.consumer_state is ConsumerState.CONSUMING


def test_a_flush_that_fails_stops_ingestion_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, flush_rows=1, retry_s=1.0)
    works = bench.core.file.save

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.core.file, "save", full)
    bench.send(1)
    bench.step()
    assert bench.core.consumer_state is ConsumerState.PAUSED
    assert "No space" in bench.core.reason
    bench.send(1)
    bench.step()
    assert bench.rows() == 1
    monkeypatch.setattr(bench.core.file, "save", works)
    bench.clock.advance_ms(2000)
    bench.step()
    assert bench.core.consumer_state is ConsumerState.CONSUMING
    assert bench.rows() == 2


def _topic_deleted(bench: Bench) -> None:
    bench.admin.delete_topic("sales")


def _retention(bench: Bench) -> None:
    bench.send(5)
    bench.admin.delete_records("sales", {0: 5})


@pytest.mark.parametrize("disaster", [_topic_deleted, _retention])
def test_a_gap_in_the_log_is_a_failure_and_never_skipped(
    bench: Bench, disaster: Callable[[Bench], None]
) -> None:
    bench.send(2)
    bench.step()
    disaster(bench)
    bench.step()
    assert bench.core.consumer_state is ConsumerState.FAILED
    assert bench.rows() == 2, "it still answers for what it holds"


def test_a_new_partition_is_read_from_its_first_offset(bench: Bench) -> None:
    bench.send(1)
    bench.step()
    bench.admin.add_partitions("sales", 3)
    bench.send(4, partition=2)
    wider = msgspec.structs.replace(CONTROL, assignment={"rs": (0, 1, 2)}, assignment_epoch=2)
    bench.step(control=wider)
    with pytest.raises(NotReady):
        bench.rows()
    bench.step(start_offsets={0: 0, 1: 0, 2: 1})
    assert bench.ask()[1].positions == {0: 1, 1: 0, 2: 4}
    assert bench.rows() == 4


def test_refused_records_reach_the_dead_letter_topic_before_the_checkpoint(bench: Bench) -> None:
    bench.producer.produce("sales", [OutRecord(b"{", partition=1), OutRecord(None, partition=1)])
    bench.step()
    bench.core.checkpoint()
    (log,) = bench.broker.logs("sales.dead-letters")
    assert [record.key for record in log.records] == [b"sales/1/0", b"sales/1/1"]
    assert sum(bench.core.progress.counters[1].rejected.values()) == 2


def test_an_answer_states_what_was_refused_and_why(bench: Bench) -> None:
    rounded = b'{"ts": %d, "kind": "a", "price": 1.23456}' % START_MS
    bench.producer.produce("sales", [OutRecord(rounded, partition=1), OutRecord(None, partition=0)])
    bench.send(1)
    bench.step()
    rows, said = bench.ask()
    assert rows == 1
    assert said.refused == {0: {"tombstone": 1}, 1: {"wrong_type": 1}}
    assert said.refused_example["wrong_type"] == "column price: expected decimal(10,2), found 1.23456"
    report = cube_report(bench.core, bench.clock)
    assert report.partitions[1].refused == {"wrong_type": 1}
    assert report.refused_example == said.refused_example
    bench.core.checkpoint()
    bench.restarted()
    bench.step()
    assert bench.ask()[1].refused == said.refused, "the checkpoint keeps them"


def test_a_batch_that_raises_is_read_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.send(2)
    bench.producer.produce("sales", [OutRecord(b"{", partition=0)])

    def broken(*_: object) -> None:
        raise Unavailable("out of order for a moment")

    with monkeypatch.context() as patch:
        patch.setattr(intake, "batch_tables", broken)
        with pytest.raises(Unavailable):
            bench.core.step(bench.view)
        assert "out of order" in bench.core.reason
    bench.step()
    assert bench.core.reason == ""
    assert bench.ask()[1].positions == {0: 3, 1: 0}
    assert bench.rows() == 2
    assert sum(bench.core.progress.counters[0].rejected.values()) == 1


def test_of_an_enormous_record_the_beginning_and_the_size_are_kept(bench: Bench) -> None:
    value = b"x" * (VALUE_BYTES_MAX + 1)
    bench.producer.produce("sales", [OutRecord(value, partition=0), OutRecord(value[:-1], partition=0)])
    bench.step()
    (log,) = bench.broker.logs("sales.dead-letters")
    cut, whole = log.records
    assert cut.value == whole.value == value[:-1]
    assert cut.headers["value_bytes"] == str(len(value)).encode()
    assert "value_bytes" not in whole.headers


def test_a_heartbeat_names_the_segments_that_are_open(bench: Bench) -> None:
    first, second = (
        SegmentRange(START_MS + at_ms, START_MS + at_ms + WINDOW_MS).name for at_ms in (0, WINDOW_MS)
    )
    bench.send(2)
    bench.send(1, at_ms=START_MS + WINDOW_MS)
    bench.step()
    assert cube_report(bench.core, bench.clock).active == (first, second)
    bench.record(state=SegmentState.IMMUTABLE, target={0: 3, 1: 0})
    assert cube_report(bench.core, bench.clock).active == (second,)


def test_a_heartbeat_that_cannot_name_all_open_segments_names_the_oldest_and_the_newest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "ACTIVE_MAX", 3)
    starts = [START_MS + number * WINDOW_MS for number in range(5)]
    names = [SegmentRange(start, start + WINDOW_MS).name for start in starts]
    for number, start in enumerate(starts):
        bench.send(1, at_ms=start)
        bench.step()
        report = cube_report(bench.core, bench.clock)
        expected = names[: number + 1] if number < 3 else [*names[:2], names[number]]
        assert (list(report.active), report.more_active) == (expected, number >= 3)

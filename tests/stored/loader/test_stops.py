"""What a loader cannot decide by itself stops it, under a name; and what it can, does not."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rtolap.base.errors import NotLeader, NotYet, Refused, RtolapError, Unauthorized, Unavailable
from rtolap.kafka.interfaces import OutRecord
from rtolap.model.loader import LoaderRejects, LoaderSink
from rtolap.protocols.stream_load import messages as wire
from rtolap.stored.loader.commit import CLOCKS_APART_MS_MAX
from rtolap.stored.loader.job import LEASE_MS, JobConfig, write_config
from rtolap.stored.loader.job_run import LoadJobRun, begin
from rtolap.stored.loader.preparing import FILTERED_BY_SINK, FILTERED_UNKNOWN
from rtolap.stored.loader.records.rejects import FileBox
from rtolap.stored.loader.settle import LOG_TRIES_MAX, AttemptOutcome, Settler
from rtolap.stored.loader.states import TOPIC_MISSING_S, StopCause, Stopped
from rtolap.stored.loader.window import FAILING_S, FAILS_MAX, SILENT_S
from rtolap.stored.metastore.load_jobs import LoadJobState

from tests.support.loader.loaded_offsets import loaded_offsets
from tests.support.loader.stepped_loader import (
    COLUMNS,
    World,
    gone_after_a_while,
    load_all,
    sent_and_unanswered,
    stopped_by,
)
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.loader_sink import MemorySink

# --- the topic ----------------------------------------------------------------------------------------


def test_what_retention_took_before_it_was_read_is_not_skipped(world: World) -> None:
    world.create()
    world.produce(1, 2, 3, 4)
    work = world.start()
    world.broker.logs("t")[0].start = 2
    assert stopped_by(lambda: work.source.step(0.0)) is StopCause.OFFSETS_GONE


def loaded_and_recreated(world: World) -> None:
    """All of the topic is loaded; then it is dropped, and another one of its name is there."""
    world.create()
    world.produce(1, 2, 3, 4)
    load_all(world.start())
    world.broker.delete("t")
    world.broker.create("t", 2)


def test_a_topic_that_was_recreated_is_not_read_from_where_the_old_one_was(world: World) -> None:
    loaded_and_recreated(world)
    assert stopped_by(lambda: world.start().source.step(0.0)) is StopCause.TOPIC_RECREATED


def test_a_position_beyond_the_log_of_a_broker_that_gives_neither_ids_nor_epochs_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.broker, "topic_id", lambda topic: "")
    monkeypatch.setattr(MemoryConsumer, "epoch_ends", lambda self, epochs, timeout_s=5.0: {})
    loaded_and_recreated(world)
    assert stopped_by(lambda: world.start().source.step(0.0)) is StopCause.OFFSETS_BEYOND


def test_a_recorded_range_that_retention_took_is_named(world: World) -> None:
    world.create()
    world.produce(1, 2)
    world.start().source.step(0.0)  # recorded, never sent
    log = world.broker.logs("t")[0]
    log.start = 1
    del log.offsets[:1], log.records[:1]
    work = world.start()
    assert stopped_by(lambda: work.settle_once(work.settler())) is StopCause.RANGE_GONE
    assert world.keys() == []


def test_a_recorded_range_waits_for_a_topic_that_its_broker_may_not_know_yet(world: World) -> None:
    world.create()
    world.produce(1, 2)
    world.start().source.step(0.0)  # recorded, never sent
    work = world.start()
    settler = work.settler()
    with world.broker.not_known_yet("t"), pytest.raises(Unavailable, match="missing: waiting"):
        work.settle_once(settler)
    work.settle_once(settler)
    assert world.keys() == [1, 2]


def test_a_recorded_range_of_a_topic_that_stays_away_is_named(world: World) -> None:
    world.create()
    world.produce(1, 2)
    world.start().source.step(0.0)
    work = world.start()
    settler = work.settler()
    world.broker.delete("t")
    gone_after_a_while(world, lambda: work.settle_once(settler))


def recorded_and_sent(world: World) -> None:
    """A batch of two records that the sink has taken, and whose loader has heard nothing of that."""
    world.create()
    world.produce(1, 2)
    work = world.start()
    work.source.step(0.0)
    sent_and_unanswered(world, work)


def assert_range_changed(world: World) -> None:
    again = world.start()
    assert stopped_by(lambda: again.settle_once(again.settler())) is StopCause.RANGE_CHANGED


def test_a_recorded_range_that_reads_otherwise_is_not_sent_again(world: World) -> None:
    recorded_and_sent(world)
    log = world.broker.logs("t")[0]
    del log.offsets[:1], log.records[:1]  # compaction
    assert_range_changed(world)


def test_a_range_of_the_same_offsets_with_other_values_is_not_sent_again(world: World) -> None:
    recorded_and_sent(world)
    log = world.broker.logs("t")[0]
    ends = log.start, log.end, list(log.offsets)
    log.records[1] = OutRecord(b'{"k": 3, "v": 1}', partition=0)
    assert (log.start, log.end, log.offsets) == ends
    assert_range_changed(world)
    assert world.keys() == []


def test_gaps_of_compaction_and_transactions_are_no_rows_and_no_hole(world: World) -> None:
    world.create()
    world.produce(1)
    world.broker.skip("t", 0, 3)
    world.produce(2, 3)
    world.broker.skip("t", 0, 1)
    load_all(world.start())
    world.clock.advance_ms(10_000)
    work = world.start()
    load_all(work)
    world.clock.advance_ms(10_000)
    load_all(work)
    assert world.keys() == [1, 2, 3]
    records = world.records.all("j")
    for before, after in pairwise(records):
        assert before.end_offsets == after.start_offsets
    assert sum(record.row_count or 0 for record in records) == 3


def test_offsets_without_records_at_the_end_count_as_loaded(world: World) -> None:
    world.create()
    world.produce(1, 2)
    work = world.start()
    load_all(work)
    world.broker.skip("t", 0, 3)  # an aborted transaction: nothing to read, nothing to wait for
    assert work.source.step(0.0)  # an interval begins, as with records
    world.clock.advance_ms(work.loader.batch.interval_ms)
    load_all(work)
    assert loaded_offsets(world.records, "j") == work.log_ends() == {0: 5, 1: 0}
    assert [record.attempts for record in world.records.all("j")] == [0, 1, 0]
    assert not work.source.step(0.0)
    assert world.keys() == [1, 2]


def test_a_partition_that_is_new_is_read_from_its_beginning(world: World) -> None:
    world.create(start="latest")
    world.produce(1, 2)
    work = world.start()
    world.broker.logs("t").append(type(world.broker.logs("t")[0])())
    world.produce(7, 8, partition=2)
    world.clock.advance_ms(60_000)
    load_all(work)
    assert world.keys() == [7, 8]
    assert world.records.all("j")[-1].end_offsets == {0: 2, 1: 0, 2: 2}


def test_what_retention_took_of_a_new_partition_is_not_skipped(world: World) -> None:
    world.create()
    work = world.start()
    log = type(world.broker.logs("t")[0])(start=5, end=9, offsets=[], records=[])
    world.broker.logs("t").append(log)
    world.clock.advance_ms(60_000)
    assert stopped_by(lambda: work.source.step(0.0)) is StopCause.OFFSETS_GONE


@pytest.mark.parametrize("since_ms", [0, 60_000], ids=["just looked at", "due to be looked at"])
def test_a_topic_that_is_gone_is_named_once_it_has_been_for_a_while(world: World, since_ms: int) -> None:
    world.create()
    work = world.start()
    work.source.step(0.0)
    world.clock.advance_ms(since_ms)
    world.broker.delete("t")
    gone_after_a_while(world, lambda: work.source.step(0.0))


def test_two_answers_with_a_pause_between_are_no_missing_topic(world: World) -> None:
    world.create()
    world.produce(1, 2)
    work = world.start()
    with world.broker.not_known_yet("t"), pytest.raises(Unavailable, match="missing: waiting"):
        work.source.step(0.0)
    world.clock.advance_ms(10 * int(TOPIC_MISSING_S * 1000))  # as of a process that was stopped
    with world.broker.not_known_yet("t"), pytest.raises(Unavailable, match="missing: waiting"):
        work.source.step(0.0)
    load_all(work)
    assert world.keys() == [1, 2]


def test_a_topic_with_fewer_partitions_than_before_is_named(world: World) -> None:
    world.create()
    world.produce(1, 2)
    work = world.start()
    load_all(work)
    del world.broker.logs("t")[1]
    world.clock.advance_ms(60_000)
    with pytest.raises(Stopped, match=r"no partitions \[1\]") as stopped:
        work.source.step(0.0)
    assert stopped.value.cause is StopCause.TOPIC_GONE


def test_where_the_topic_ends_counts_partitions_that_are_not_read_yet(world: World) -> None:
    world.create()
    world.produce(1, 2)
    work = world.start()
    world.broker.logs("t").append(type(world.broker.logs("t")[0])())
    world.produce(7, partition=2)
    assert work.log_ends() == {0: 2, 1: 0, 2: 1}
    world.broker.down = True
    assert work.log_ends() is None


def test_records_after_the_start_are_not_lost_with_a_process_that_recorded_nothing(world: World) -> None:
    world.create(start="latest")
    world.produce(1)
    world.start()  # dies before it has read anything
    world.produce(2, 3)
    load_all(world.start())
    assert world.keys() == [2, 3]


# --- refused records ----------------------------------------------------------------------------------


def test_no_refused_record_is_tolerated_unless_that_is_said(world: World) -> None:
    world.create()
    world.produce(1, b"{")
    work = world.start()
    work.source.step(0.0)
    assert stopped_by(lambda: work.settle_once(work.settler())) is StopCause.TOO_MANY_REJECTS
    assert world.keys() == []
    assert world.box.kept == [(0, 1, "malformed_json")]


def test_the_same_batch_goes_on_once_the_tolerance_is_raised(world: World) -> None:
    world.create()
    world.produce(1, b"{")
    work = world.start()
    work.source.step(0.0)
    stopped_by(lambda: work.settle_once(work.settler()))
    before = world.records.all("j")[-1]
    world.clock.advance_ms(LEASE_MS + 1)
    more = msgspec.structs.replace(work.loader, rejects=LoaderRejects(tolerance_percent=50))
    world.jobs.reconfigure("j", write_config(JobConfig(more)))
    load_all(world.start())
    after = world.records.all("j")[-1]
    assert (after.label, after.end_offsets, after.loaded) == (before.label, before.end_offsets, True)
    assert (world.keys(), after.row_count, after.filtered_rows) == ([1], 1, 1)


def test_a_batch_of_refused_records_only_is_loaded_without_a_request(world: World) -> None:
    world.create(rejects=LoaderRejects(tolerance_percent=100))
    world.produce(b"{", b"[]")
    load_all(world.start())
    last = world.records.all("j")[-1]
    assert (last.loaded, last.row_count, last.attempts) == (True, 0, 0)
    assert world.sink.labels("d") == {}


def test_refused_records_that_cannot_be_kept_stop_the_loader(world: World) -> None:
    world.create(rejects=LoaderRejects(tolerance_percent=100))
    world.produce(1, b"{")
    work = world.start()
    work.source.step(0.0)
    world.box.error = Unavailable("the broker is away")
    assert work.settle_once(work.settler()) is AttemptOutcome.AGAIN
    world.box.error = Refused("too large")
    assert stopped_by(lambda: work.settle_once(work.settler())) is StopCause.REJECTS_NOT_KEPT
    assert world.keys() == []


def test_refused_records_in_a_file_are_whole_and_durable(tmp_path: Path, world: World) -> None:
    path = tmp_path / "kept" / "j.jsonl"
    world.box = FileBox(path)  # type: ignore[assignment]
    world.create(rejects=LoaderRejects(tolerance_percent=100))
    world.produce(1, b"\xff{")
    load_all(world.start())
    world.box.close()
    (line,) = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert (line["topic"], line["partition"], line["offset"], line["reason"]) == (
        "t",
        "0",
        "1",
        "invalid_utf8",
    )
    assert line["value"] == "/3s="


def test_rows_that_the_sink_filters_are_kept_with_its_reasons(world: World) -> None:
    world.create(rejects=LoaderRejects(tolerance_percent=50))
    world.produce(1, 2)
    work = world.start()
    strict = (
        COLUMNS[0],
        wire.SchemaColumn("v", "BIGINT"),
        wire.SchemaColumn("w", "BIGINT", is_nullable="No"),
    )
    world.sink.tables["d", "t"] = wire.TableSchema(properties=strict)  # the loader has not seen it yet
    work.source.step(0.0)
    settler = work.settler()
    assert work.settle_once(settler) is AttemptOutcome.AGAIN  # all rows are filtered: too many
    assert stopped_by(lambda: work.settle_once(settler)) is StopCause.TOO_MANY_FILTERED
    more = msgspec.structs.replace(work.loader, rejects=LoaderRejects(tolerance_percent=100))
    world.clock.advance_ms(LEASE_MS + 1)
    world.jobs.reconfigure("j", write_config(JobConfig(more)))
    world.sink.tables["d", "t"] = wire.TableSchema(properties=COLUMNS)
    again = world.start()
    world.sink.tables["d", "t"] = wire.TableSchema(properties=strict)
    assert again.settle_once(again.settler()) is AttemptOutcome.SETTLED
    assert world.box.kept == [(-1, 1, FILTERED_BY_SINK)]
    record = world.records.all("j")[-1]
    assert (record.row_count, record.filtered_rows, record.error_url) == (0, 2, "memory:2")


class Unanswered:
    """A sink that takes every load, and whose answers are lost."""

    def __init__(self, sink: MemorySink) -> None:
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def load(self, *arguments: Any, **named: Any) -> wire.LoadAnswer:
        self._sink.load(*arguments, **named)
        raise Unavailable("the answer is lost")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("tolerance", [0, 100])
def test_rows_that_a_sink_may_have_filtered_are_told_of_when_its_answer_is_lost(
    world: World, tolerance: int, restarts: bool
) -> None:
    world.create(rejects=LoaderRejects(tolerance_percent=tolerance))
    world.produce(1, 2)
    world.sink = Unanswered(world.sink)
    work = world.start()
    work.source.step(0.0)
    assert work.settle_once(work.settler()) is AttemptOutcome.AGAIN
    if restarts:
        work = world.start()
    assert work.settle_once(work.settler()) is AttemptOutcome.SETTLED
    last_error = work.progress.shown(world.clock).last_error
    assert world.box.kept == ([(-1, 1, FILTERED_UNKNOWN)] if tolerance else [])
    assert ("j_1_1" in last_error) == bool(tolerance)


@pytest.mark.parametrize(("tolerance", "rows"), [(0, 2), (100, None)])
def test_a_label_that_was_taken_before_tells_how_many_rows_only_where_none_may_be_filtered(
    world: World, tolerance: int, rows: int | None
) -> None:
    world.create(rejects=LoaderRejects(tolerance_percent=tolerance))
    world.produce(1, 2)
    plain = world.sink.load

    def twice(*arguments: Any, **named: Any) -> wire.LoadAnswer:
        plain(*arguments, **named)
        answer: wire.LoadAnswer = plain(*arguments, **named)  # at another endpoint
        return answer

    world.sink.load = twice
    load_all(world.start())
    assert world.records.all("j")[-1].row_count == rows
    assert len(world.box.kept) == (rows is None)


class NoLog:
    """A sink that does not answer when it is asked for rejected rows, so many times."""

    def __init__(self, sink: MemorySink, times: int) -> None:
        self._sink = sink
        self.times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def error_log(self, url: str) -> str:
        self.times -= 1
        if self.times >= 0:
            raise Unavailable("the endpoint does not answer")
        return self._sink.error_log(url)


@pytest.mark.parametrize("two_phase", [False, True])
@pytest.mark.parametrize(("times", "is_kept"), [(LOG_TRIES_MAX - 1, True), (LOG_TRIES_MAX, False)])
def test_the_rows_that_a_sink_filters_are_asked_for_again_but_not_for_ever(
    world: World, times: int, is_kept: bool, two_phase: bool
) -> None:
    world.create(rejects=LoaderRejects(tolerance_percent=100), sink=LoaderSink(two_phase=two_phase))
    world.produce(1, 2)
    strict = (
        COLUMNS[0],
        wire.SchemaColumn("v", "BIGINT"),
        wire.SchemaColumn("w", "BIGINT", is_nullable="No"),
    )
    plain, world.sink = world.sink, NoLog(world.sink, times)
    work = world.start()
    plain.tables["d", "t"] = wire.TableSchema(properties=strict)  # the loader has not seen it yet
    work.source.step(0.0)
    settler = work.settler()
    for _ in range(LOG_TRIES_MAX - 1):
        assert work.settle_once(settler) is AttemptOutcome.AGAIN
    assert work.settle_once(settler) is AttemptOutcome.SETTLED
    assert world.box.kept == ([(-1, 1, FILTERED_BY_SINK)] if is_kept else [])
    record = world.records.all("j")[-1]
    assert (record.row_count, record.filtered_rows, record.error_url) == (0, 2, "memory:1")


# --- the sink -----------------------------------------------------------------------------------------


class Refusing:
    """A sink whose loads fail with these words, while there are any."""

    def __init__(self, sink: MemorySink, answer: wire.LoadAnswer | RtolapError) -> None:
        self._sink = sink
        self.answer: wire.LoadAnswer | RtolapError | None = answer
        self.loads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def load(self, *arguments: Any, **named: Any) -> wire.LoadAnswer:
        self.loads += 1
        if self.answer is None:
            found: wire.LoadAnswer = self._sink.load(*arguments, **named)
            return found
        if isinstance(self.answer, RtolapError):
            raise self.answer
        return self.answer


def failing(world: World, work: LoadJobRun, times: int) -> Settler:
    """A settler that has tried so often, for as long as a batch may fail."""
    settler = work.settler()
    for _ in range(times):
        assert work.settle_once(settler) is AttemptOutcome.AGAIN
        world.clock.advance_ms(math.ceil(FAILING_S * 1000 / times))
        work.ownership.renew()
    return settler


@pytest.mark.parametrize(
    ("answer", "cause", "loads"),
    [
        (wire.LoadAnswer(message="no such backend"), StopCause.SINK_REFUSES, FAILS_MAX),
        (Refused("not allowed"), StopCause.SINK_REFUSES, FAILS_MAX),
        (wire.LoadAnswer(message="[E-22]too many filtered rows"), StopCause.TOO_MANY_FILTERED, 1),
    ],
)
def test_a_batch_that_fails_again_and_again_stops_the_loader(
    world: World, answer: wire.LoadAnswer | RtolapError, cause: StopCause, loads: int
) -> None:
    world.create()
    world.produce(1, 2)
    world.sink = sink = Refusing(world.sink, answer)
    work = world.start()
    work.source.step(0.0)
    settler = failing(world, work, loads)
    assert stopped_by(lambda: work.settle_once(settler)) is cause
    assert sink.loads == loads


def test_a_second_phase_that_is_refused_again_and_again_stops_the_loader(world: World) -> None:
    world.create(sink=LoaderSink(two_phase=True))
    world.produce(1, 2)
    world.sink.commit_label = lambda *_: wire.TwoPhaseAnswer("Fail", "denied; you need LOAD_PRIV")
    work = world.start()
    work.source.step(0.0)
    settler = failing(world, work, FAILS_MAX)
    assert "LOAD_PRIV" in work.progress.shown(world.clock).last_error
    assert stopped_by(lambda: work.settle_once(settler)) is StopCause.SINK_REFUSES
    del world.sink.commit_label
    load_all(world.start())  # it is mended
    assert world.keys() == [1, 2]


@pytest.mark.parametrize("call", ["schema", "keeps_labels", "state"])
def test_a_sink_that_refuses_to_be_asked_at_the_start_is_named(world: World, call: str) -> None:
    def refused(*_: object) -> None:
        raise Unauthorized("the credentials are refused")

    world.create()
    setattr(world.sink, call, refused)
    assert stopped_by(world.start) is StopCause.SINK_REFUSES
    job = world.jobs.get("j")
    assert job.state is LoadJobState.FAILED
    assert "the credentials are refused" in job.reason


def test_a_sink_that_is_away_at_the_start_is_no_reason_to_fail(world: World) -> None:
    world.create()
    world.sink.down = True
    with pytest.raises(Unavailable):
        world.start()
    assert world.jobs.get("j").state is LoadJobState.RUNNING


def test_a_topic_that_is_not_there_at_the_start_is_named(world: World) -> None:
    world.create(topic="nope")
    resources = world.resources()
    gone_after_a_while(world, lambda: begin("j", "p", resources))
    assert world.jobs.get("j").reason.startswith("topic_gone: ")


def test_a_sink_without_its_nodes_refuses_quickly_and_often_and_that_is_waited_for(world: World) -> None:
    world.create()
    world.produce(1, 2)
    world.sink = sink = Refusing(world.sink, wire.LoadAnswer(message="no such backend"))
    work = world.start()
    work.source.step(0.0)
    settler = work.settler()
    for _ in range(4 * FAILS_MAX):
        assert work.settle_once(settler) is AttemptOutcome.AGAIN
    sink.answer = None
    assert work.settle_once(settler) is AttemptOutcome.SETTLED
    assert world.keys() == [1, 2]


def test_a_batch_that_failed_is_left_alone_for_its_pause_by_every_thread(world: World) -> None:
    world.create()
    world.produce(1, 2)
    world.sink = sink = Refusing(world.sink, wire.LoadAnswer(message="no such backend"))
    work = world.start()
    work.source.step(0.0)
    first, second = work.settler(), work.settler()
    asked: list[int] = []

    def pause_s(tries: int) -> float:
        asked.append(tries)
        return 2.0

    for _ in range(3):
        assert work.settle_once(first, pause_s=pause_s) is AttemptOutcome.AGAIN
        assert work.settle_once(second, pause_s=pause_s) is None
        world.clock.advance_ms(1_999)
        assert work.settle_once(first, pause_s=pause_s) is None
        world.clock.advance_ms(1)
    assert (asked, sink.loads) == ([0, 1, 2], 3)


def test_a_sink_that_is_away_is_waited_for_but_not_for_ever(world: World) -> None:
    world.create()
    world.produce(1, 2)
    work = world.start()
    work.source.step(0.0)
    settler = work.settler()
    world.sink.down = True
    for _ in range(50):
        assert work.settle_once(settler) is AttemptOutcome.AGAIN
        world.clock.advance_ms(1_000)
    world.sink.down = False
    work.ownership.renew()
    assert work.settle_once(settler) is AttemptOutcome.SETTLED
    world.produce(3, 4)
    work.source.step(0.0)
    world.sink.down = True
    assert work.settle_once(settler) is AttemptOutcome.AGAIN
    world.clock.advance_ms(int(SILENT_S * 1000) + 1)
    assert stopped_by(lambda: work.settle_once(settler)) is StopCause.SINK_UNAVAILABLE


def test_a_load_that_stays_under_way_is_waited_for_but_not_for_ever(world: World) -> None:
    world.create(sink=LoaderSink(timeout_ms=10_000))
    world.produce(1, 2)
    world.start().source.step(0.0)
    (record,) = [record for record in world.records.all("j") if not record.loaded]
    work = world.start()
    world.records.mark_sent(work.ownership.lease, record.sequence_id)
    world.sink.begin("d", "t", record.label, wire.SendOptions(), two_phase=False)
    again = world.start()
    settler = again.settler()
    for _ in range(30):
        assert again.settle_once(settler) is AttemptOutcome.AGAIN
        world.clock.advance_ms(1_000)
    assert world.keys() == []
    world.clock.advance_ms(1_000)
    assert stopped_by(lambda: again.settle_once(settler)) is StopCause.STUCK


def test_a_label_of_somebody_else_is_not_taken_for_our_own(world: World) -> None:
    world.create()
    world.sink.load("d", "t", "j_1_1", b"", wire.SendOptions(format="json"))
    assert stopped_by(world.start) is StopCause.LABEL_FOREIGN
    job = world.jobs.get("j")
    assert (job.state, job.reason.partition(":")[0]) == (LoadJobState.FAILED, "label_foreign")


def test_a_label_of_somebody_else_further_on_is_not_taken_for_our_own(world: World) -> None:
    world.create()
    world.produce(1, 2, 3, 4, 5, 6)
    world.sink.load("d", "t", "j_1_2", b'{"k": 99, "v": 1}', wire.SendOptions(format="json"))
    work = world.start()
    assert stopped_by(lambda: load_all(work)) is StopCause.LABEL_FOREIGN
    assert world.keys() == [1, 2, 99]
    assert [(record.label, record.loaded) for record in world.records.all("j")][1:] == [
        ("j_1_1", True),
        ("j_1_2", False),
    ]


def test_a_label_that_may_be_forgotten_is_not_taken_for_unused(world: World) -> None:
    world.sink = MemorySink(keeps_labels=False)
    world.sink.tables["d", "t"] = wire.TableSchema(properties=COLUMNS)
    world.create(sink=LoaderSink(label_kept_ms=3_600_000))
    world.produce(1, 2)
    work = world.start()
    work.source.step(0.0)
    world.sink.publishes_late = True
    record = work.window.take_batch()
    assert record is not None
    world.records.mark_sent(work.ownership.lease, record.sequence)
    world.clock.advance_ms(3_600_001)
    again = world.start()
    assert stopped_by(lambda: again.settle_once(again.settler())) is StopCause.LABEL_FORGOTTEN


def test_a_table_that_is_gone_stops_the_loader(world: World) -> None:
    world.create()
    world.sink.tables.clear()
    assert stopped_by(world.start) is StopCause.TABLE_UNUSABLE


def test_new_and_dropped_columns_are_followed_without_a_restart(world: World) -> None:
    world.create()
    work = world.start()
    settler = work.settler()
    world.produce(b'{"k": 1, "v": 1, "x": 5}', b'{"k": 2, "v": 1, "x": 6}')
    work.source.step(0.0)
    work.settle_once(settler)
    world.sink.tables["d", "t"] = wire.TableSchema(
        properties=(*COLUMNS[:1], wire.SchemaColumn("x", "BIGINT"))
    )
    assert work.columns.refresh()
    assert not work.columns.refresh()
    world.produce(b'{"k": 3, "v": 1, "x": 7}', b'{"k": 4, "v": 1, "x": 8}')
    work.source.step(0.0)
    work.settle_once(settler)
    assert world.sink.rows("d", "t") == [
        {"k": 1, "v": 1},
        {"k": 2, "v": 1},
        {"k": 3, "x": 7},
        {"k": 4, "x": 8},
    ]


# --- owners -------------------------------------------------------------------------------------------


def test_nobody_else_takes_a_job_that_is_owned(world: World) -> None:
    world.create()
    work = world.start()
    with pytest.raises(NotYet):
        world.begin("another")
    work.ownership.release()


def test_who_has_lost_the_job_writes_and_sends_nothing_more(world: World) -> None:
    world.create()
    world.produce(1, 2)
    old = world.start()
    old.source.step(0.0)
    new = world.start()
    with pytest.raises(NotLeader):
        old.settle_once(old.settler())
    with pytest.raises(NotLeader):
        old.fail(Stopped(StopCause.BROKEN, "no word of it"))
    assert world.sink.labels("d") == {}
    load_all(new)
    assert world.keys() == [1, 2]
    assert world.jobs.get("j").state is LoadJobState.RUNNING


def test_labels_go_back_only_when_no_request_can_be_under_way(world: World) -> None:
    world.create(sink=LoaderSink(timeout_ms=60_000))
    world.produce(1, 2, 3, 4, 5, 6)
    work = world.start()
    load_all(work)
    assert work.committer.run_once(world.clock.now_ms()) == 3
    assert set(world.sink.labels("d")) == {"j_1_1", "j_1_2", "j_1_3"}
    world.clock.advance_ms(60_001 + CLOCKS_APART_MS_MAX)
    work.committer.run_once(world.clock.now_ms())
    assert world.sink.labels("d") == {"j_1_3": wire.LoadState.VISIBLE}
    (left,) = world.records.all("j")
    assert (left.sequence_id, left.committed) == (3, True)


def test_many_labels_go_back_in_parts_each_of_which_stands(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rtolap.stored.loader.commit.LABELS_MAX", 2)
    world.create(sink=LoaderSink(timeout_ms=60_000))
    world.produce(*range(1, 13))
    work = world.start()
    load_all(work)
    world.clock.advance_ms(60_001 + CLOCKS_APART_MS_MAX)
    parts: list[int] = []
    acknowledge = world.sink.acknowledge

    def counted(db: str, labels: list[str]) -> None:
        parts.append(len(labels))
        if len(parts) == 2:
            raise Unauthorized("for a while")  # ends no loader either
        acknowledge(db, labels)

    world.sink.acknowledge = counted
    with pytest.raises(Unavailable, match="for a while"):
        work.committer.run_once(world.clock.now_ms())
    left = [record.sequence_id for record in world.records.all("j")]
    work.committer.run_once(world.clock.now_ms())
    assert max(parts) <= 2
    assert left[0] > 0
    assert set(world.sink.labels("d")) == {"j_1_6"}
    assert [record.sequence_id for record in world.records.all("j")] == [6]


def test_labels_that_are_not_visible_yet_stay_with_their_records(world: World) -> None:
    world.create(sink=LoaderSink(timeout_ms=10_000))
    world.sink.publishes_late = True
    world.produce(1, 2, 3, 4)
    work = world.start()
    load_all(work)
    world.clock.advance_ms(10_001 + CLOCKS_APART_MS_MAX)
    work.committer.run_once(world.clock.now_ms())
    assert set(world.sink.labels("d")) == {"j_1_1", "j_1_2"}
    assert [record.sequence_id for record in world.records.all("j")] == [1, 2]
    world.sink.publish()
    work.committer.run_once(world.clock.now_ms())
    assert set(world.sink.labels("d")) == {"j_1_2"}
    assert [record.sequence_id for record in world.records.all("j")] == [2]


def test_a_job_that_is_defined_anew_has_labels_of_its_own(world: World) -> None:
    world.create()
    world.produce(1, 2)
    work = world.start()
    load_all(work)
    work.ownership.release()
    world.jobs.define_again("j", lambda _: write_config(JobConfig(work.loader, {0: 1, 1: 0})))
    world.produce(3)
    load_all(world.start())
    assert world.keys() == [1, 2, 2, 3]
    assert set(world.sink.labels("d")) == {"j_1_1", "j_2_1"}

"""An unknown label says "not loaded" only where the sink surely remembers it."""

from __future__ import annotations

import msgspec
import pytest
from rtolap.model.loader import LoaderSink
from rtolap.protocols.stream_load.messages import LoadState, SendOptions, TableSchema
from rtolap.stored.loader.label_retention import (
    WITNESS_AGE_MS_MAX,
    marker_of,
    needs_marker,
    sent_when,
    witness_of,
    witness_of_all,
)
from rtolap.stored.loader.states import Sent, StopCause
from rtolap.stored.metastore.offsets import OffsetsRecord

from tests.support.loader.stepped_loader import COLUMNS, World, load_all, sent_and_unanswered, stopped_by
from tests.support.twins.loader_sink import MemorySink

SINK = LoaderSink(label_kept_ms=1_000_000, label_kept_count=100)
LABELS_MAX = 4


def record(
    sequence: int, sent_at_ms: int | None, loaded_at_ms: int | None = None, attempts: int = 1
) -> OffsetsRecord:
    return OffsetsRecord(
        "j",
        sequence,
        1,
        f"j_1_{sequence}",
        {},
        {},
        loaded=loaded_at_ms is not None,
        attempts=attempts,
        first_sent_at_ms=sent_at_ms,
        loaded_at_ms=loaded_at_ms,
    )


def sent(
    sent_record: OffsetsRecord,
    *others: OffsetsRecord,
    now_ms: int,
    known: tuple[str, ...] = (),
    sink: LoaderSink = SINK,
) -> Sent:
    def state_of(label: str) -> LoadState:
        return LoadState.VISIBLE if label in known else LoadState.UNKNOWN

    return sent_when(sent_record, (*others, sent_record), now_ms, sink, state_of)


def test_a_label_is_remembered_as_long_as_an_earlier_one() -> None:
    earlier, batch = record(1, 10_000, 20_000), record(2, 30_000)
    assert sent(batch, earlier, now_ms=40_000, known=("j_1_1",)) is Sent.LATELY
    assert sent(batch, earlier, now_ms=40_000) is Sent.LONG_AGO


def test_a_label_that_finished_after_the_first_request_is_no_witness() -> None:
    at_once = record(1, 10_000, 30_001)
    assert witness_of(30_000, (at_once,)) is None
    assert witness_of(30_001, (at_once,)) is None, "in one millisecond, either may be the earlier"
    assert witness_of(30_002, (at_once,)) == at_once
    empty = record(3, None, 25_000, attempts=0)
    older, newer = record(2, 10_000, 20_000), record(4, 10_000, 24_000)
    assert witness_of(30_000, (older, newer, empty, at_once)) == newer
    assert witness_of_all((older, newer, record(5, 22_000), record(6, 30_000))) == older
    assert witness_of_all((older, newer)) == newer


@pytest.mark.parametrize("known", [(), ("j_1_1",)])
def test_a_label_is_forgotten_by_age_whatever_the_witness_says(known: tuple[str, ...]) -> None:
    earlier, batch = record(1, 10_000, 20_000), record(2, 30_000)
    assert sent(batch, earlier, now_ms=1_030_000, known=known) is Sent.LONG_AGO


def test_the_requests_of_the_job_itself_count() -> None:
    earlier, batch = record(1, 10_000, 20_000), record(2, 30_000)
    retried = record(3, 30_000, attempts=98)
    arguments = {"now_ms": 40_000, "known": ("j_1_1",)}
    assert sent(batch, earlier, retried, **arguments) is Sent.LATELY  # type: ignore[arg-type]
    more = msgspec.structs.replace(retried, attempts=99)
    assert sent(batch, earlier, more, **arguments) is Sent.LONG_AGO  # type: ignore[arg-type]


def test_the_first_batch_of_all_is_believed_by_the_marker_of_its_owner_only() -> None:
    first = record(1, 30_000)
    assert sent(first, now_ms=30_001) is Sent.LONG_AGO
    assert sent(first, now_ms=30_001, known=(marker_of("j_1_1", 1),)) is Sent.LATELY
    assert sent(first, now_ms=30_001, known=(marker_of("j_1_1", 2),)) is Sent.LONG_AGO


def test_a_marker_is_needed_where_no_batch_has_finished_lately_before_the_first_request() -> None:
    earlier, batch = record(1, 10_000, 20_000), record(2, None, attempts=0)
    assert needs_marker(batch, (batch,), 20_000)
    assert not needs_marker(batch, (earlier, batch), 20_000 + WITNESS_AGE_MS_MAX)
    assert needs_marker(batch, (earlier, batch), 20_001 + WITNESS_AGE_MS_MAX)
    assert needs_marker(record(2, 15_000), (earlier,), 20_000), "it finished after the first request"


def test_a_marker_helps_after_a_long_idle_time() -> None:
    old, batch = record(1, 10_000, 20_000), record(2, 5_000_000)
    assert sent(batch, old, now_ms=5_001_000) is Sent.LONG_AGO
    assert sent(batch, old, now_ms=5_001_000, known=(marker_of("j_1_2", 1),)) is Sent.LATELY


def test_a_batch_without_a_request_was_never_sent() -> None:
    assert sent(record(1, None, attempts=0), now_ms=10) is Sent.NEVER


@pytest.fixture
def forgetful(world: World) -> World:
    """A sink that remembers the last four finished labels of the database."""
    world.sink = MemorySink(keeps_labels=False, labels_max=LABELS_MAX)
    world.sink.tables["d", "t"] = TableSchema(properties=COLUMNS)
    world.create(sink=LoaderSink(label_kept_count=LABELS_MAX))
    world.produce(1, 2)
    load_all(world.start())
    assert world.keys() == [1, 2]
    return world


def loaded_without_an_answer(world: World) -> None:
    """The sink takes the rows of a batch, and its loader dies before the answer."""
    world.produce(3, 4)
    work = world.start()
    work.source.step(0.0)
    sent_and_unanswered(world, work)
    label = world.records.all("j")[-1].label
    body = b'{"k": 3, "v": 1}\n{"k": 4, "v": 1}'
    world.sink.load("d", "t", label, body, SendOptions(format="json"))


def test_a_batch_whose_label_others_have_displaced_is_not_loaded_twice(forgetful: World) -> None:
    loaded_without_an_answer(forgetful)
    forgetful.sink.use_labels("d", LABELS_MAX)
    again = forgetful.start()
    assert stopped_by(lambda: load_all(again)) is StopCause.LABEL_FORGOTTEN
    assert forgetful.keys() == [1, 2, 3, 4]


def test_a_lost_request_is_sent_again_while_an_earlier_label_is_known(forgetful: World) -> None:
    forgetful.produce(3, 4)
    work = forgetful.start()
    work.source.step(0.0)
    sent_and_unanswered(forgetful, work)
    forgetful.sink.use_labels("d", LABELS_MAX - 1)
    load_all(forgetful.start())
    assert forgetful.keys() == [1, 2, 3, 4]


@pytest.mark.parametrize("is_loaded", [True, False])
def test_the_word_of_a_person_settles_the_batch(forgetful: World, is_loaded: bool) -> None:
    if is_loaded:
        loaded_without_an_answer(forgetful)
    else:
        forgetful.produce(3, 4)
        work = forgetful.start()
        work.source.step(0.0)
        sent_and_unanswered(forgetful, work)
    forgetful.sink.use_labels("d", LABELS_MAX)
    assert stopped_by(lambda: load_all(forgetful.start())) is StopCause.LABEL_FORGOTTEN
    forgetful.settle(2, loaded=is_loaded)
    load_all(forgetful.start())
    assert forgetful.keys() == [1, 2, 3, 4]

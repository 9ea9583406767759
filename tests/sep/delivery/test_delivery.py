import threading
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest
from rtolap.base.errors import CommitUnknown, Forbidden, NotLeader, Refused, RtolapError, Unavailable
from rtolap.kafka.transactions import OutColumns
from rtolap.model.subscription import dead_letter_topic
from rtolap.sep.delivery.delivered_edits import Mask
from rtolap.sep.delivery.delivery import Call, Delivery
from rtolap.sep.delivery.journal import Journal, journal_name
from rtolap.sep.delivery.listener import Listener
from rtolap.sep.delivery.poison import PoisonPolicy
from rtolap.sep.delivery.state import delivery_state
from rtolap.sep.events.edit_batch import EVENTS_SCHEMA, LATE_FIELD, EditBatch
from rtolap.sep.listeners.callable import CallableListener, Lanes
from rtolap.sep.listeners.kafka_topic import EncodedEvents, KafkaTopicListener

from tests.support.sep.batches import Event, batch_of, keys_of, puts
from tests.support.sep.delivery_runs import encode
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin
from tests.support.twins.kafka_transactions import MemoryTransactionalProducer

FOREVER_S = 1e12
LETTERS = dead_letter_topic("orders")


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.create("changes", 1)
    broker.create(LETTERS, 1)
    return broker


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


Deliver = Callable[..., Delivery]


JOURNAL = journal_name("orders", "5e0bd3a8-0c4d-4d58-9f0e-6d2f5d4f1c11")


def journal_of(broker: MemoryBroker, rewrite_records: int = 1000, topic: str = JOURNAL) -> Journal:
    return Journal(
        topic,
        open_producer=lambda name: MemoryTransactionalProducer(broker, name),
        open_consumer=lambda topic: MemoryConsumer(broker, topic),
        admin=MemoryAdmin(broker),
        rewrite_records=rewrite_records,
    )


@pytest.fixture
def delivery(broker: MemoryBroker, clock: ManualClock) -> Deliver:
    def make(listener: Listener | None = None, policy: PoisonPolicy = PoisonPolicy()) -> Delivery:
        return Delivery(
            listener or KafkaTopicListener("changes", encode),
            journal_of(broker),
            clock,
            policy=policy,
            dead_letter_topic=LETTERS,
        )

    return make


def values(broker: MemoryBroker, topic: str = "changes") -> list[str]:
    with broker.changed:
        return [(record.value or b"").decode(errors="replace") for record in broker.logs(topic)[0].records]


def run(process: Delivery, *batches: EditBatch, deadline_s: float = FOREVER_S) -> list[Exception | None]:
    calls = [Call(batch, deadline_s) for batch in batches]
    process.run(calls)
    return [call.error for call in calls]


def test_calls_that_wait_together_share_one_transaction_and_one_order(
    broker: MemoryBroker, delivery: Deliver
) -> None:
    process = delivery()
    assert run(process, puts("a", [5, 6]), puts("a", [3, 4]), puts("b", [1, 9])) == [None] * 3
    assert [value.rsplit("/", 1)[0] for value in values(broker)] == ["b/1", "a/3", "a/4", "a/5", "a/6", "b/9"]
    assert len(values(broker, JOURNAL)) == 1


def test_the_same_edits_in_one_group_are_delivered_once_and_both_calls_succeed(
    broker: MemoryBroker, delivery: Deliver
) -> None:
    process = delivery()
    assert run(process, puts("a", [1, 2]), puts("a", [1, 2, 3])) == [None, None]
    assert len(values(broker)) == 3
    assert process.counts.duplicates == 2


def test_a_call_whose_time_is_over_is_not_begun(
    broker: MemoryBroker, delivery: Deliver, clock: ManualClock
) -> None:
    clock.advance_ms(2000)
    [error] = run(delivery(), puts("a", [1]), deadline_s=1.0)
    assert isinstance(error, Unavailable)
    assert values(broker) == []


def test_a_broker_that_is_away_fails_the_calls_with_a_pause_that_grows(
    broker: MemoryBroker, delivery: Deliver, clock: ManualClock
) -> None:
    process = delivery()
    run(process, puts("a", [1]))
    broker.set_down(True)
    pauses = []
    for _ in range(3):
        [error] = run(process, puts("a", [2]))
        assert isinstance(error, Unavailable)
        pauses.append(process.resumes_s - clock.monotonic_s())
    assert pauses == [1.0, 2.0, 4.0]
    assert process.last_error is not None
    assert "does not answer" in process.last_error
    published = msgspec.json.decode(msgspec.json.encode(delivery_state(process)))
    assert published["trouble"] == process.last_error, "commands of earlier versions read this name"
    broker.set_down(False)
    assert run(process, puts("a", [2])) == [None]
    assert process.last_error is None


@pytest.mark.parametrize("policy", [PoisonPolicy("skip", 1), PoisonPolicy("stop", 1)])
@pytest.mark.parametrize(
    "error",
    [
        Unavailable("no broker"),
        CommitUnknown("no answer"),
        Refused("too few replicas"),
        Forbidden("no grant"),
    ],
    ids=lambda error: error.code,
)
def test_a_broker_that_takes_nothing_costs_no_event_a_try(
    broker: MemoryBroker,
    delivery: Deliver,
    monkeypatch: pytest.MonkeyPatch,
    policy: PoisonPolicy,
    error: RtolapError,
) -> None:
    def refuse(*_: object) -> None:
        raise error

    process = delivery(policy=policy)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryTransactionalProducer, "send", refuse)
        for _ in range(3):
            assert run(process, puts("a", [1, 2])) == [error]
            assert process.last_error == str(error)
    assert (process.stopped, process.counts.dead_letters, len(process.failing)) == (None, 0, 0)
    assert run(process, puts("a", [1, 2])) == [None]
    assert len(values(broker)) == 2
    assert values(broker, LETTERS) == []


def test_a_process_that_was_replaced_delivers_nothing(broker: MemoryBroker, delivery: Deliver) -> None:
    old, new = delivery(), delivery()
    run(old, puts("a", [1]))
    run(new, puts("a", [2]))
    with pytest.raises(NotLeader):
        run(old, puts("a", [3]))
    assert len(values(broker)) == 2
    assert run(new, puts("a", [1, 2, 3])) == [None]
    assert len(values(broker)) == 3


def test_a_journal_stays_short_and_says_the_same(broker: MemoryBroker) -> None:
    journal = journal_of(broker, rewrite_records=5)
    process = Delivery(KafkaTopicListener("changes", encode), journal, ManualClock())
    for sequence_id in range(50):
        run(process, puts("a", [sequence_id]))
    assert len(values(broker, JOURNAL)) <= 6
    again = Delivery(KafkaTopicListener("changes", encode), journal_of(broker), ManualClock())
    assert run(again, puts("a", range(60))) == [None]
    assert again.counts.duplicates == 50


def test_after_a_rewrite_of_the_journal_with_an_unknown_outcome_it_is_read_again(
    broker: MemoryBroker,
) -> None:
    journal = journal_of(broker, rewrite_records=2)
    process = Delivery(KafkaTopicListener("changes", encode), journal, ManualClock())
    run(process, puts("a", [1]))
    producer = journal._producer
    assert producer is not None
    send, sent = producer.send, []

    def lose_the_second_answer(columns: Sequence[OutColumns], timeout_s: float) -> None:
        send(columns, timeout_s)
        sent.append(columns)
        if len(sent) == 2:
            raise CommitUnknown("the answer is lost")

    producer.send = lose_the_second_answer  # type: ignore[method-assign]
    [error] = run(process, puts("a", [2]))
    assert isinstance(error, CommitUnknown)
    assert run(process, puts("a", [1, 2, 3])) == [None]
    assert values(broker) == ["a/1/r", "a/2/r", "a/3/r"]


def test_a_subscription_that_is_made_again_begins_without_a_memory(
    broker: MemoryBroker, delivery: Deliver
) -> None:
    run(delivery(), puts("a", [1]))
    journal = journal_of(broker, topic=journal_name("orders", "another"))
    run(Delivery(KafkaTopicListener("changes", encode), journal, ManualClock()), puts("a", [1]))
    assert len(values(broker)) == 2


def refusing(*sequence_ids: int) -> KafkaTopicListener:
    """A Kafka listener for which these edits have no record."""

    def encode_some(batch: EditBatch, late: Mask) -> EncodedEvents:
        whole = encode(batch, late)
        refused = {place: "no number" for place, key in enumerate(keys_of(batch)) if key[1] in sequence_ids}
        return EncodedEvents(whole.keys, whole.values, whole.headers, refused)

    return KafkaTopicListener("changes", encode_some)


def test_retry_holds_back_the_row_of_a_bad_event_and_no_other(
    broker: MemoryBroker, delivery: Deliver, clock: ManualClock
) -> None:
    process = delivery(refusing(2))
    batch = batch_of([Event("a", 1, b"x"), Event("a", 2, b"x"), Event("a", 3, b"y"), Event("a", 4, b"x")])
    [error] = run(process, batch)
    assert "no number" in str(error)
    assert values(broker) == ["a/1/x", "a/3/y"]
    clock.advance_ms(60_000)
    assert run(process, batch) != [None]
    assert values(broker) == ["a/1/x", "a/3/y"]


def test_skip_keeps_a_bad_event_as_a_dead_letter_and_goes_on(broker: MemoryBroker, delivery: Deliver) -> None:
    process = delivery(refusing(2), PoisonPolicy("skip", 3))
    batch = batch_of([Event("a", 1, b"x"), Event("a", 2, b"x"), Event("a", 4, b"x")])
    assert run(process, batch) == [None]
    assert values(broker) == ["a/1/x", "a/4/x"]
    [letter] = broker.logs(LETTERS)[0].records
    assert letter.key == b"t/a/2/x"
    assert letter.headers["detail"] == b"no number"
    assert letter.headers["offset"] == b"2"
    assert run(process, batch) == [None]
    assert process.counts.dead_letters == 1


def test_stop_takes_nothing_more_and_says_why(broker: MemoryBroker, delivery: Deliver) -> None:
    process = delivery(refusing(2), PoisonPolicy("stop", 1))
    [error] = run(process, puts("a", [1, 2, 3]))
    assert isinstance(error, Refused)
    assert "no number" in str(error)
    [error] = run(process, puts("b", [1]))
    assert isinstance(error, Refused)
    assert "b/1/r" not in values(broker)


class Processed:
    """A user's function that fails for some sequence ids."""

    def __init__(self, *bad: int) -> None:
        self.bad = set(bad)
        self.keys: list[tuple[str, int, bytes]] = []
        self.batches = 0
        self._lock = threading.Lock()

    def __call__(self, batch: EditBatch) -> None:
        keys = keys_of(batch)
        with self._lock:
            self.batches += 1
            for key in keys:
                if key[1] in self.bad:
                    raise ValueError(f"edit {key[1]} is bad")
            self.keys += keys


ROWS = [b"row-%d" % number for number in range(20)]


def test_a_callable_gets_the_events_of_a_row_in_order_and_in_batches(delivery: Deliver) -> None:
    processed = Processed()
    process = delivery(CallableListener(processed, lanes=3))
    assert run(process, puts("a", range(50), ROWS)) == [None]
    for row in ROWS:
        assert [key[1] for key in processed.keys if key[2] == row] == list(range(50))
    assert processed.batches <= 12
    assert run(process, puts("a", range(50), ROWS)) == [None]
    assert len(processed.keys) == 1000
    process.close()


def test_a_callable_begins_no_batch_once_its_process_may_have_been_replaced(delivery: Deliver) -> None:
    processed, may_begin = Processed(), [True, True, False]
    process = delivery(CallableListener(processed, lanes=1, may_begin=lambda: may_begin.pop(0)))
    (error,) = run(process, puts("a", range(15), ROWS))  # three batches of one lane
    assert isinstance(error, Unavailable)
    assert processed.batches == 2
    may_begin[:] = [True] * 9
    assert run(process, puts("a", range(15), ROWS)) == [None]
    assert len(processed.keys) == 300
    process.close()


def test_a_callable_is_told_which_events_are_late(delivery: Deliver) -> None:
    told: dict[tuple[str, int, bytes], bool] = {}

    def process(batch: EditBatch) -> None:
        assert batch.events.schema == EVENTS_SCHEMA.append(LATE_FIELD)
        told.update(zip(keys_of(batch), batch.events["late"].to_pylist(), strict=True))
        assert batch.take(np.arange(1)).slice(0, 1).filter(np.ones(1, bool)).events["late"][0].is_valid

    process_of = delivery(CallableListener(process, lanes=2))
    run(process_of, puts("a", [5, 9], ROWS))
    assert not any(told.values())
    told.clear()
    run(process_of, puts("a", [7, 10], ROWS))
    assert told == {("a", at, row): at == 7 for at in (7, 10) for row in ROWS}
    process_of.close()


def test_one_bad_event_among_many_is_found_and_blames_no_neighbour(
    broker: MemoryBroker, delivery: Deliver
) -> None:
    processed = Processed(7)
    process = delivery(CallableListener(processed, lanes=2), PoisonPolicy("skip", 1))
    assert run(process, puts("a", range(30), [b"x", b"y"])) == [None]
    skipped = {record.key for record in broker.logs(LETTERS)[0].records}
    assert skipped == {b"t/a/7/x", b"t/a/7/y"}
    assert sorted(processed.keys) == sorted(
        ("a", at, row) for at in range(30) for row in (b"x", b"y") if at != 7
    )
    process.close()


def test_a_bad_event_is_given_up_after_its_tries_only(
    broker: MemoryBroker, delivery: Deliver, clock: ManualClock
) -> None:
    processed = Processed(3)
    process = delivery(CallableListener(processed, lanes=1), PoisonPolicy("skip", 3))
    batch = puts("a", [3])
    for tries in range(3):
        assert broker.logs(LETTERS)[0].records == [], tries
        error = run(process, batch)
        clock.advance_ms(60_000)
        if error == [None]:
            break
        assert "edit 3 is bad" in str(error)
    assert len(broker.logs(LETTERS)[0].records) == 1
    process.close()


def test_no_event_begins_after_the_time_of_its_call(delivery: Deliver, clock: ManualClock) -> None:
    processed: list[EditBatch] = []

    def slow(batch: EditBatch) -> None:
        processed.append(batch)
        clock.advance_ms(400)

    listener = CallableListener(slow, lanes=1)
    listener._lanes = Lanes(1, slow, batch_events=10, monotonic_s=clock.monotonic_s)
    process = delivery(listener)
    [error] = run(process, puts("a", range(100)), deadline_s=1.0)
    assert error is not None
    assert len(processed) == 3
    assert run(process, puts("a", range(100))) == [None]
    assert sum(batch.num_events for batch in processed) == 100
    process.close()


def test_a_target_that_is_away_costs_an_event_no_try(delivery: Deliver) -> None:
    def away(batch: EditBatch) -> None:
        raise Unavailable("the target is away")

    process = delivery(CallableListener(away, lanes=2), PoisonPolicy("skip", 1))
    [error] = run(process, puts("a", [1, 2]))
    assert "away" in str(error)
    assert process.counts.dead_letters == 0
    process.close()


def test_a_record_that_the_topic_does_not_take_costs_its_event_alone(
    broker: MemoryBroker, delivery: Deliver
) -> None:
    broker.configure("changes", max_message_bytes="50")
    process = delivery(policy=PoisonPolicy("skip", 3))
    batch = batch_of([Event("a", 1, b"x"), Event("a", 2, b"y" * 60), Event("a", 3, b"x")])
    assert run(process, batch) == [None]
    assert values(broker) == ["a/1/x", "a/3/x"]
    assert process.counts.dead_letters == 1

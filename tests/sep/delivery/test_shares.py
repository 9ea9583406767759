"""Deliveries of shares side by side: journals, dead letters and states do not touch each other's."""

from __future__ import annotations

from rtolap.base.errors import NotLeader
from rtolap.metadata.store import Create, Delete
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.journal import Journal, Share, ensure_partitions
from rtolap.sep.delivery.poison import PoisonPolicy
from rtolap.sep.delivery.serving import WaitingCalls
from rtolap.sep.delivery.state import StateNode, read_state
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.listeners.kafka_topic import EncodedEvents, KafkaTopicListener

from tests.sep.delivery.test_delivery import run
from tests.support.sep.batches import keys_of, puts
from tests.support.sep.delivery_runs import encode
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin
from tests.support.twins.kafka_transactions import MemoryTransactionalProducer
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

LETTERS = "letters"


class World:
    """A broker, and deliveries of two shares. Events of odd sequence ids are refused while `is_bad`."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.create("changes", 1)
        self.broker.create(LETTERS, 1)
        ensure_partitions(MemoryAdmin(self.broker), LETTERS, 2, {})
        self.clock = ManualClock()
        self.is_bad = False

    def delivery(self, number: int) -> Delivery:
        journal = Journal(
            "journal",
            open_producer=lambda name: MemoryTransactionalProducer(self.broker, name),
            open_consumer=lambda topic: MemoryConsumer(self.broker, topic),
            admin=MemoryAdmin(self.broker),
            rewrite_records=3,
            share=Share(number, 2),
        )
        listener = KafkaTopicListener("changes", self._encode)
        policy = PoisonPolicy("skip", 1)
        made = Delivery(listener, journal, self.clock, policy=policy, dead_letter_topic=LETTERS)
        made.recover()
        return made

    def values(self) -> list[bytes]:
        with self.broker.changed:
            return [record.value or b"" for record in self.broker.logs("changes")[0].records]

    def letters(self) -> list[int]:
        """Return how many records each partition has."""
        with self.broker.changed:
            return [len(log.records) for log in self.broker.logs(LETTERS)]

    def _encode(self, batch: EditBatch, late: object) -> EncodedEvents:
        whole = encode(batch, late)  # type: ignore[arg-type]
        refused = {at: "odd" for at, key in enumerate(keys_of(batch)) if self.is_bad and key[1] % 2}
        return EncodedEvents(whole.keys, whole.values, whole.headers, refused)


def test_a_journal_that_is_written_again_leaves_those_of_other_shares_alone() -> None:
    world = World()
    first, second = world.delivery(0), world.delivery(1)
    for at in range(1, 10):
        assert run(first, puts("a", [at], [b"x"])) == [None]
        assert run(second, puts("a", [at], [b"y"])) == [None]
    successors = world.delivery(0), world.delivery(1)
    for process, row in zip(successors, (b"x", b"y"), strict=True):
        assert run(process, puts("a", range(1, 10), [row])) == [None]
        assert (process.counts.delivered, process.counts.duplicates) == (0, 9)
    assert len(world.values()) == 18


def test_who_takes_a_share_over_shuts_out_its_holder_and_no_other() -> None:
    world = World()
    first, second = world.delivery(0), world.delivery(1)
    world.delivery(0)
    assert run(second, puts("a", [1], [b"y"])) == [None]
    try:
        run(first, puts("a", [1], [b"x"]))
    except NotLeader:
        assert world.values() == [b"a/1/y"]
        return
    raise AssertionError("the holder before has delivered")


def test_dead_letters_of_a_share_are_in_its_partition_and_replayed_by_it_alone() -> None:
    world = World()
    first, second = world.delivery(0), world.delivery(1)
    world.is_bad = True
    assert run(first, puts("a", [1, 2], [b"x"])) == [None]
    assert run(second, puts("a", [1, 3], [b"y"])) == [None]
    assert world.letters() == [1, 2]
    world.is_bad = False
    assert [process.replay(skipped=True).delivered for process in (first, second)] == [1, 2]
    assert [process.replay(skipped=True).delivered for process in (first, second)] == [0, 0]
    assert sorted(world.values()) == [b"a/1/x", b"a/1/y", b"a/2/x", b"a/3/y"]


def test_a_state_is_shown_by_the_holder_of_the_share_alone() -> None:
    world, store = World(), MemoryStore(MemoryEnsemble())
    store.commit([Create("/holder", b"a", ephemeral=True)])
    delivery = world.delivery(0)
    of_a = StateNode(store, "/state", world.clock, ("/holder", b"a"))
    of_b = StateNode(store, "/state", world.clock, ("/holder", b"b"))
    of_b.publish(delivery, consumer="b")
    assert read_state(store, "/state") is None
    world.clock.advance_ms(2_000)
    run(delivery, puts("a", range(1, 11), [b"x"]))
    of_a.publish(delivery, WaitingCalls(2, 30, 400), "a")
    state = read_state(store, "/state")
    assert state is not None
    assert (state.consumer, state.waiting_calls, state.waiting_events) == ("a", 2, 30)
    assert (state.oldest_waiting_ms, state.events_per_s) == (400, 5.0)
    of_b.withdraw()
    assert read_state(store, "/state") is not None
    store.commit([Delete("/holder"), Create("/holder", b"b", ephemeral=True)])
    of_a.publish(delivery, WaitingCalls(), "a")
    of_a.withdraw()
    assert read_state(store, "/state") == state
    of_b.publish(delivery, consumer="b")
    shown = read_state(store, "/state")
    assert shown is not None
    assert shown.consumer == "b"

"""Seeded runs of the delivery against the model of HBase's shipping: nothing lost, nothing twice, in order.

    python -m tests.support.sep.delivery_runs --seed 7 --seeds 1

Faults: calls that come again, time-outs, regions that move, split and merge, servers that stop, a consumer
that is killed before or after any write, take-overs by a standby while its predecessor goes on, a broker that
is away or whose answer is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from random import Random

from rtolap.base.errors import CommitUnknown, NotLeader, Unavailable
from rtolap.kafka.transactions import OutColumns
from rtolap.sep.delivery.delivered_edits import DeliveredEdits, Mask
from rtolap.sep.delivery.delivery import Call, Delivery
from rtolap.sep.delivery.journal import Journal
from rtolap.sep.delivery.listener import Listener
from rtolap.sep.delivery.poison import EventKey, PoisonPolicy
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.listeners.callable import CallableListener
from rtolap.sep.listeners.kafka_topic import EncodedEvents, KafkaTopicListener

from tests.support.seeds import replay
from tests.support.sep.batches import Event, batch_of, keys_of
from tests.support.sep.shipping import Edit, ShippedCall, Shipping
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin
from tests.support.twins.kafka_transactions import MemoryTransactionalProducer

TOPIC = "changes"
LETTERS = "dead-letters"
STEPS = 110
_FOREVER_S = 1e12
# Transactions begin once in the life of a process, and everything else happens in each of its calls.
_TIMES_AS_OFTEN = {"begin": 3, "begun": 3}

MakeJournal = Callable[..., Journal]


class Killed(BaseException):
    """The consumer's process is gone."""


class FaultyProducer(MemoryTransactionalProducer):
    def __init__(self, broker: MemoryBroker, transactional_id: str, world: DeliveryWorld) -> None:
        super().__init__(broker, transactional_id)
        self._world = world

    def begin(self, timeout_s: float) -> None:
        self._world.meet("begin")
        super().begin(timeout_s)
        self._world.meet("begun")

    def send(self, columns: Sequence[OutColumns], timeout_s: float) -> None:
        self._world.meet("send")
        super().send(columns, timeout_s)
        self._world.meet("sent")


def encode(batch: EditBatch, late: Mask) -> EncodedEvents:
    """Encode events: the value names the event; the header says whether it is late."""
    keys = keys_of(batch)
    values = [f"{region}/{sequence_id}/".encode() + row for region, sequence_id, row in keys]
    headers = [[("late", b"1" if is_late else b"0")] for is_late in late.tolist()]
    return EncodedEvents([row for _, _, row in keys], values, headers)


class DeliveryWorld:
    """HBase, a broker, and the processes of one subscription, the last of which leads."""

    pauses_ms: Sequence[int] = (
        60_000,
    )  # between groups; those of events that failed are over after a minute
    policy = PoisonPolicy()

    def __init__(
        self,
        seed: int,
        make_memory: Callable[[], DeliveredEdits] = DeliveredEdits,
        make_journal: MakeJournal = Journal,
    ) -> None:
        self.random = Random(seed)
        self.shipping = Shipping(self.random)
        self.happened: Counter[str] = Counter()
        self.faults = 0.06
        self._make_memory, self._make_journal = make_memory, make_journal
        self.clock = ManualClock()
        self._broker = MemoryBroker()
        self._broker.create(TOPIC, 3)
        self._broker.create(LETTERS, 1)
        self._calls: list[tuple[ShippedCall, Delivery]] = []  # on their way, each to one process
        self._leader = self._start()
        self._zombie: Delivery | None = None

    def meet(self, place: str) -> None:
        """Meet one of the faults of this place, now and then."""
        chance = self.random.random() / _TIMES_AS_OFTEN.get(place, 1)
        if chance < self.faults / 3:
            self.happened[f"killed: {place}"] += 1
            raise Killed
        if chance < self.faults * 2 / 3:
            self.happened[f"answer lost: {place}"] += 1
            raise CommitUnknown("the answer is lost") if place != "begin" else Unavailable("away")
        if chance < self.faults and place in ("send", "begin"):
            self.happened[f"away: {place}"] += 1
            raise Unavailable("the broker is away")

    def step(self) -> None:
        actions: list[tuple[int, Callable[[], object]]] = [
            (30, self.shipping.write),
            (20, self._ship),
            (20, self._serve),
            (4, self._time_out),
            (3, self.shipping.move_region),
            (1, self.shipping.split_region),
            (1, self.shipping.merge_regions),
            (2, self.shipping.stop_server),
            (1, self._take_over),
            (2, self._wake_the_zombie),
        ]
        weights = [weight for weight, _ in actions]
        self.random.choices([action for _, action in actions], weights)[0]()

    def drain(self) -> None:
        """Drain when nothing fails any more: everything arrives, after the zombie has had its last say."""
        self.faults = 0.0
        self._wake_the_zombie()
        for _ in range(10_000):
            if self.shipping.is_idle and not self._calls:
                self._leader.replay()  # of rows that failed for so long that they were set apart
                return
            self._ship()
            self._serve(whole=True)
        raise AssertionError("delivery does not come to an end")

    def check(self) -> None:
        self.check_delivered(self.delivered())

    def check_delivered(
        self, delivered: Sequence[tuple[EventKey, bool]], may_repeat: Container[EventKey] = ()
    ) -> None:
        """Check the `delivered` events in their order, and which of them were late."""
        times = Counter(event for event, _ in delivered)
        twice = [event for event, count in times.items() if count > 1 and event not in may_repeat]
        assert not twice, f"delivered twice: {twice[:3]}"
        due = {key for edit in self.shipping.written for key in _keys(edit)}
        assert not due - times.keys(), f"lost: {sorted(due - times.keys())[:3]}"
        assert not times.keys() - due, "never written"
        highest: dict[bytes, tuple[int, str]] = {}
        for (region, sequence_id, row), late in delivered:
            if (region, sequence_id, row) in may_repeat:
                continue
            before, of = highest.get(row, (-1, ""))
            assert late or sequence_id > before, f"out of order: {row!r} {sequence_id} after {before}"
            self.happened["late by another region"] += late and of not in ("", region)
            highest[row] = max((before, of), (sequence_id, region))
        self.happened["late"] += sum(late for _, late in delivered)
        self.happened["events"] += len(delivered)

    def listener(self) -> Listener:
        return KafkaTopicListener(TOPIC, encode)

    def events(self, edit: Edit) -> list[Event]:
        return edit.events()

    def delivered(self) -> list[tuple[EventKey, bool]]:
        """Return the events and whether they are late, a partition after the other."""
        found = []
        with self._broker.changed:
            for log in self._broker.logs(TOPIC):
                for record in log.records:
                    region, sequence_id, row = (record.value or b"").split(b"/")
                    found.append(((region.decode(), int(sequence_id), row), record.headers["late"] == b"1"))
        return found

    def served(self, *, noted: bool) -> None:
        """Note that a group is over. `noted` says that what it delivered is in the journal."""

    def _start(self) -> Delivery:
        journal = self._make_journal(
            "rtolap-sep-orders",
            open_producer=lambda name: FaultyProducer(self._broker, name, self),
            open_consumer=lambda topic: MemoryConsumer(self._broker, topic),
            admin=MemoryAdmin(self._broker),
            make_memory=self._make_memory,
            rewrite_records=7,
        )
        # one that stood still may believe to lead when it wakes up
        process = Delivery(
            self.listener(),
            journal,
            self.clock,
            policy=self.policy,
            dead_letter_topic=LETTERS,
            leads=lambda: process is self._leader or self.random.random() < 0.2,
        )
        return process

    def _ship(self) -> None:
        self._send(self.shipping.ship())

    def _send(self, calls: Sequence[ShippedCall | None]) -> None:
        self._calls += [(call, self._leader) for call in calls if call is not None]

    def _serve(self, *, whole: bool = False) -> None:
        self.clock.advance_ms(max(self.pauses_ms) if whole else self.random.choice(self.pauses_ms))
        mine = [call for call, process in self._calls if process is self._leader]
        if not mine:
            return
        self.random.shuffle(mine)
        chosen = mine if whole else mine[: self.random.randint(1, 3)]
        self._run(self._leader, chosen)

    def _run(self, process: Delivery, calls: Sequence[ShippedCall]) -> None:
        groups = [batch_of(event for edit in call.edits for event in self.events(edit)) for call in calls]
        served = [Call(batch, _FOREVER_S) for batch in groups]
        try:
            process.run(served)
        except (Killed, NotLeader) as error:
            self.happened["shut out"] += isinstance(error, NotLeader)
            self.served(noted=False)
            self._lose(process)
            return
        self.served(noted=process.last_error is None)
        for call, answer in zip(calls, served, strict=True):
            self._calls.remove((call, process))
            if answer.error is not None:
                self.happened["failed"] += 1
            self._send([self.shipping.answered(call, well=answer.error is None)])

    def _lose(self, process: Delivery) -> None:
        """Lose a process: its connections break, and another one, or the same started again, takes over."""
        broken = [call for call, of in self._calls if of is process]
        self._calls = [(call, of) for call, of in self._calls if of is not process]
        if process is self._leader:
            self._leader = self._start()
        if process is self._zombie:
            self._zombie = None
        self._send([self.shipping.answered(call, well=False) for call in broken])

    def _take_over(self) -> None:
        """Let the leader stand still for longer than its session; its calls time out later."""
        if self._zombie is None:
            self.happened["take-over"] += 1
            self._zombie, self._leader = self._leader, self._start()

    def _wake_the_zombie(self) -> None:
        if self._zombie is None:
            return
        process = self._zombie
        calls = [call for call, of in self._calls if of is process]
        # it leads no more for sure once its successor has begun; before that, it may still write
        if calls:
            self._run(process, calls)
        if self._zombie is process:
            self._lose(process)

    def _time_out(self) -> None:
        if self._calls:
            call, _ = self.random.choice(self._calls)
            self._send([self.shipping.time_out(call)])


class FunctionWorld(DeliveryWorld):
    """The listener is a function, which may get again what was under way when a process ended."""

    def __init__(
        self,
        seed: int,
        make_memory: Callable[[], DeliveredEdits] = DeliveredEdits,
        make_journal: MakeJournal = Journal,
    ) -> None:
        self._processed: list[tuple[EventKey, bool]] = []  # in its order, and which of them were late
        self._noted = 0
        self._unnoted: set[EventKey] = set()
        super().__init__(seed, make_memory, make_journal)

    def listener(self) -> Listener:
        return CallableListener(self._process, lanes=1)

    def check(self) -> None:
        self.check_delivered(self._processed, self._unnoted)

    def served(self, *, noted: bool) -> None:
        if not noted:
            self._unnoted.update(key for key, _ in self._processed[self._noted :])
        self._noted = len(self._processed)

    def _process(self, batch: EditBatch) -> None:
        """Fail now and then, before anything is done."""
        if self.random.random() < self.faults:
            self.happened["function failed"] += 1
            raise ValueError("the function fails")
        self._processed += zip(keys_of(batch), batch.events["late"].to_pylist(), strict=True)


def _keys(edit: Edit) -> list[EventKey]:
    return [(edit.region, edit.sequence_id, row) for row in edit.rows]


def run_seed(
    seed: int,
    steps: int = STEPS,
    make_memory: Callable[[], DeliveredEdits] = DeliveredEdits,
    make_journal: MakeJournal = Journal,
    make_world: Callable[..., DeliveryWorld] = DeliveryWorld,
) -> Counter[str]:
    world = make_world(seed, make_memory, make_journal)
    for _ in range(steps):
        world.step()
    world.drain()
    world.check()
    return world.happened


if __name__ == "__main__":
    replay(__doc__, run_seed, STEPS)

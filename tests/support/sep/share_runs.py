"""Seeded runs of several consumers of one subscription against the model of HBase's shipping.

    python -m tests.support.sep.share_runs --seed 7 --seeds 1

Consumers hold shares by the plan, and take calls of any rows. Faults: calls that come again at another
consumer, time-outs, regions that move, split and merge, consumers that are killed, that join, that stand
still for longer than their session and wake up later with parts under way, that follow an old map of the
shares; a broker that is away or whose answer is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rtolap.base.errors import NotLeader, RtolapError
from rtolap.sep.delivery.delivered_edits import DeliveredEdits
from rtolap.sep.delivery.delivery import Call, Delivery
from rtolap.sep.delivery.journal import Journal, Share
from rtolap.sep.delivery.listener import Listener
from rtolap.sep.delivery.poison import EventKey
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.listeners.callable import CallableListener
from rtolap.sep.shares.division import divide
from rtolap.sep.shares.plan import plan
from rtolap.sep.shares.states import ShareEvent, ShareState, changed

from tests.support.seeds import replay
from tests.support.sep.batches import batch_of, keys_of
from tests.support.sep.delivery_runs import LETTERS, DeliveryWorld, FaultyProducer, Killed, MakeJournal
from tests.support.sep.shipping import ShippedCall
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin

STEPS = 220
CONSUMERS_MAX = 4
_FOREVER_S = 1e12

Divide = Callable[[EditBatch, int], list[tuple[int, EditBatch]]]


@dataclass(eq=False)
class Part:
    """The events of a call that are of one share, at the consumer `at`."""

    call: CallUnderWay
    share: int
    batch: EditBatch
    at: Consumer


@dataclass(eq=False)
class CallUnderWay:
    """A call that the consumer `door` took. It is answered when none of its parts is `open` any more, or when
    one has failed."""

    shipped: ShippedCall
    door: Consumer
    open: set[Part] = field(default_factory=set)
    is_answered: bool = False


@dataclass(eq=False)
class Consumer:
    """A process. `has_session` is False while it stands still, or has not noticed yet that it did.

    `map` is what it saw of the holders when it looked last.
    """

    id: str
    has_session: bool = True
    map: dict[int, str] = field(default_factory=dict)
    deliveries: dict[int, Delivery] = field(default_factory=dict)
    states: dict[int, ShareState] = field(default_factory=dict)


class ShareWorld(DeliveryWorld):
    """HBase, a broker, ZooKeeper's view of the shares, and the consumers."""

    def __init__(
        self,
        seed: int,
        make_memory: Callable[[], DeliveredEdits] = DeliveredEdits,
        make_journal: MakeJournal = Journal,
        divided: Divide = divide,
        answers_early: bool = False,
    ) -> None:
        self.count = 0
        self._divided, self._answers_early = divided, answers_early
        self._made = 0
        self._parts: list[Part] = []
        self.members: list[Consumer] = []
        self.holders: dict[int, str] = {}
        self.asleep: list[Consumer] = []
        super().__init__(seed, make_memory, make_journal)
        self.count = self.random.randint(2, 5)
        for _ in range(self.random.randint(1, 3)):
            self._join()

    def step(self) -> None:
        actions: list[tuple[int, Callable[[], object]]] = [
            (30, self.shipping.write),
            (20, self._ship),
            (30, self._serve_some),
            (20, self._look_some),
            (5, self._time_out_some),
            (3, self.shipping.move_region),
            (2, self.shipping.split_region),
            (2, self.shipping.merge_regions),
            (2, self.shipping.stop_server),
            (2, self._join),
            (1, self._kill_some),
            (2, self._pause_some),
            (3, self._wake_some),
            (1, self._stop_some),
        ]
        weights = [weight for weight, _ in actions]
        self.random.choices([action for _, action in actions], weights)[0]()

    def drain(self) -> None:
        """Drain when nothing fails any more, after those that stood still have had their last say."""
        self.faults = 0.0
        while self.asleep:
            self._wake_some()
        for _ in range(20_000):
            if not self.members:
                self._join()
            for consumer in list(self.members):
                self._look(consumer)
            if self.shipping.is_idle and not self._parts:
                for consumer in self.members:
                    for delivery in consumer.deliveries.values():
                        delivery.replay()  # of rows that failed for so long that they were set apart
                return
            self._ship()
            self.clock.advance_ms(max(self.pauses_ms))
            for consumer in list(self.members):
                for share in list(consumer.deliveries):
                    self._serve_share(consumer, share, whole=True)
            self._reroute()
        raise AssertionError("delivery does not come to an end")

    # -- consumers and shares ----------------------------------------------------------------------------

    def _start(self) -> Delivery:
        """Open nothing: a delivery is of a share here."""
        return None  # type: ignore[return-value]

    def _open(self, consumer: Consumer, share: int) -> Delivery:
        journal = self._make_journal(
            "rtolap-sep-orders",
            open_producer=lambda name: FaultyProducer(self._broker, name, self),
            open_consumer=lambda topic: MemoryConsumer(self._broker, topic),
            admin=MemoryAdmin(self._broker),
            make_memory=self._make_memory,
            rewrite_records=7,
            share=Share(share, self.count),
        )
        return Delivery(
            self.listener_of(consumer),
            journal,
            self.clock,
            policy=self.policy,
            dead_letter_topic=LETTERS,
            leads=lambda: consumer.has_session or self.random.random() < 0.2,
        )

    def listener_of(self, consumer: Consumer) -> Listener:
        return self.listener()

    def _join(self) -> None:
        if len(self.members) < CONSUMERS_MAX:
            self._made += 1
            self.members.append(Consumer(f"consumer-{self._made:03}"))
            self.happened["joined"] += 1

    def _look_some(self) -> None:
        if self.members:
            self._look(self.random.choice(self.members))

    def _look(self, consumer: Consumer) -> None:
        """Look at ZooKeeper, and do what the plan and the table of states say."""
        own = plan(consumer.id, [each.id for each in self.members], self.holders, self.count)
        for share in own.claim:
            if share not in self.holders:
                self.holders[share] = consumer.id
        consumer.map = dict(self.holders)
        for share in range(self.count):
            state = consumer.states.get(share, ShareState.FREE)
            is_ours = self.holders.get(share) == consumer.id
            delivery = consumer.deliveries.get(share)
            if state is ShareState.FREE:
                event = ShareEvent.CLAIMED if is_ours else None
            elif not is_ours:
                event = ShareEvent.LOST
            elif share in own.release:
                event = ShareEvent.UNPLANNED
            elif state is ShareState.CLAIMED:
                event = ShareEvent.RETRIED
            else:
                event = ShareEvent.FENCED if delivery is not None and delivery.stopped is not None else None
            if event is not None and not self._handle(consumer, share, event):
                return

    def _handle(self, consumer: Consumer, share: int, event: ShareEvent) -> bool:
        """Change the state, and execute the actions. False: the consumer was killed on its way."""
        state = consumer.states.get(share, ShareState.FREE)
        consumer.states[share], actions = changed(state, event, share)
        for action in actions:
            match action.value:
                case "RECOVER":
                    delivery = self._open(consumer, share)
                    try:
                        delivery.recover()
                    except Killed:
                        self._lose_consumer(consumer)
                        return False
                    except RtolapError:
                        return self._handle(consumer, share, ShareEvent.FAILED)
                    consumer.deliveries[share] = delivery
                    return self._handle(consumer, share, ShareEvent.RECOVERED)
                case "DRAIN":
                    consumer.deliveries.pop(share, None)
                    self.happened[f"drained: {event.value}"] += 1
                case "RELEASE":
                    if self.holders.get(share) == consumer.id:
                        del self.holders[share]
        return True

    def _end_session(self, consumer: Consumer) -> None:
        self.members.remove(consumer)
        self.holders = {share: holder for share, holder in self.holders.items() if holder != consumer.id}

    def _lose_consumer(self, consumer: Consumer) -> None:
        """Lose a process: parts at it break, and calls of its door."""
        self.happened["lost consumer"] += 1
        if consumer in self.members:
            self._end_session(consumer)
        if consumer in self.asleep:
            self.asleep.remove(consumer)
        for part in [part for part in self._parts if part.at is consumer and part.call.door is not consumer]:
            self._end(part, well=False)
        for call in {id(part.call): part.call for part in self._parts if part.call.door is consumer}.values():
            for part in call.open:
                # what is at another consumer already may still be delivered there, for nobody
                if part.at is consumer:
                    self._parts.remove(part)
            call.open = {part for part in call.open if part.at is not consumer}
            if not call.is_answered:
                call.is_answered = True
                self._answer(call, well=False)

    def _kill_some(self) -> None:
        if len(self.members) > 1:
            self.happened["killed"] += 1
            self._lose_consumer(self.random.choice(self.members))

    def _stop_some(self) -> None:
        """End a consumer in order: it drains its shares, and gives them back."""
        if len(self.members) < 2:
            return
        consumer = self.random.choice(self.members)
        self.happened["stopped"] += 1
        consumer.deliveries.clear()
        self._lose_consumer(consumer)

    def _pause_some(self) -> None:
        """Let a consumer stand still for longer than its session, with what is under way."""
        if len(self.members) > 1 and len(self.asleep) < 2:
            self.happened["paused"] += 1
            consumer = self.random.choice(self.members)
            consumer.has_session = False
            self._end_session(consumer)
            self.asleep.append(consumer)

    def _wake_some(self) -> None:
        """Wake one up: before it notices anything it goes on with the parts that it has, and hands on those
        of its door by the map that it knew."""
        if not self.asleep:
            return
        consumer = self.random.choice(self.asleep)
        self.happened["woken"] += 1
        for share in list(consumer.deliveries):
            self._serve_share(consumer, share, whole=True)
        if consumer in self.asleep:
            if self.random.random() < 0.5:
                self._hand_on(consumer)
            self._lose_consumer(consumer)

    def _hand_on(self, door: Consumer) -> None:
        by_id = {each.id: each for each in self.members}
        for part in self._parts:
            if part.at is door and part.call.door is door:
                target = by_id.get(door.map.get(part.share, ""))
                part.at = target if target is not None else door

    # -- calls -------------------------------------------------------------------------------------------

    def _send(self, calls: Sequence[ShippedCall | None]) -> None:
        doors = [each for each in self.members if each.deliveries] or self.members
        for shipped in calls:
            if shipped is None:
                continue
            if not doors:
                self._join()
                doors = self.members
            door = self.random.choice(doors)
            call = CallUnderWay(shipped, door)
            batch = batch_of(event for edit in shipped.edits for event in self.events(edit))
            for share, part in self._divided(batch, self.count):
                call.open.add(Part(call, share, part, self._holder_of(door, share)))
            self.happened["divided"] += len(call.open) > 1
            self._parts += sorted(call.open, key=lambda part: part.share)

    def _holder_of(self, door: Consumer, share: int) -> Consumer:
        """Return where a door sends a part, by the map that it knows; itself while it knows nobody."""
        by_id = {each.id: each for each in [*self.members, *self.asleep]}
        return by_id.get(door.map.get(share, ""), door)

    def _reroute(self) -> None:
        """Send parts that are at no holder to where their door's map says. Those of a door that is gone
        end."""
        for part in list(self._parts):
            if part.share in part.at.deliveries or part.at in self.asleep:
                continue
            if part.call.door in self.members:
                part.at = self._holder_of(part.call.door, part.share)
            elif part.call.door not in self.asleep:
                self._end(part, well=False)

    def _serve_some(self) -> None:
        self.clock.advance_ms(self.random.choice(self.pauses_ms))
        self._reroute()
        places = [(consumer, share) for consumer in self.members for share in consumer.deliveries]
        if places:
            self._serve_share(*self.random.choice(places))

    def _serve_share(self, consumer: Consumer, share: int, *, whole: bool = False) -> None:
        parts = [part for part in self._parts if part.at is consumer and part.share == share]
        if not parts:
            return
        self.random.shuffle(parts)
        chosen = parts if whole else parts[: self.random.randint(1, 3)]
        served = [Call(part.batch, _FOREVER_S) for part in chosen]
        try:
            consumer.deliveries[share].run(served)
        except Killed:
            self.served(noted=False)
            self._lose_consumer(consumer)
            return
        except NotLeader:
            self.happened["shut out"] += 1
            self.served(noted=False)
        else:
            self.served(noted=consumer.deliveries[share].last_error is None)
        for part, answer in zip(chosen, served, strict=True):
            if part in self._parts:
                self.happened["failed"] += answer.error is not None
                self._end(part, well=answer.error is None)

    def _end(self, part: Part, *, well: bool) -> None:
        self._parts.remove(part)
        call = part.call
        call.open.discard(part)
        if call.is_answered:
            return
        if not well or (self._answers_early and part.at is call.door):
            # the others go on, for nobody: the door answers once, and the source sends all of it again
            call.is_answered = True
            self._answer(call, well=well)
        elif not call.open:
            self._answer(call, well=True)

    def _answer(self, call: CallUnderWay, *, well: bool) -> None:
        self._send([self.shipping.answered(call.shipped, well=well)])

    def _time_out_some(self) -> None:
        waiting = [part for part in self._parts if not part.call.is_answered]
        if waiting:
            self._send([self.shipping.time_out(self.random.choice(waiting).call.shipped)])


class SharedFunctionWorld(ShareWorld):
    """The listener is a function, which may get again what was under way when a consumer ended."""

    def __init__(
        self,
        seed: int,
        make_memory: Callable[[], DeliveredEdits] = DeliveredEdits,
        make_journal: MakeJournal = Journal,
        may_begin: Callable[[Consumer], bool] = lambda consumer: consumer.has_session,
    ) -> None:
        self._processed: list[tuple[EventKey, bool]] = []  # in its order, and which of them were late
        self._noted = 0
        self._unnoted: set[EventKey] = set()
        self._may_begin = may_begin
        self._too_late: list[EventKey] = []
        super().__init__(seed, make_memory, make_journal)

    def listener_of(self, consumer: Consumer) -> Listener:
        def process(batch: EditBatch) -> None:
            if not consumer.has_session:
                self._too_late += keys_of(batch)
            self._process(batch)

        return CallableListener(process, lanes=1, may_begin=lambda: self._may_begin(consumer))

    def check(self) -> None:
        assert not self._too_late, f"begun after the session: {self._too_late[:3]}"
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


def run_seed(
    seed: int,
    steps: int = STEPS,
    make_world: Callable[[int], DeliveryWorld] = ShareWorld,
) -> Counter[str]:
    world = make_world(seed)
    for _ in range(steps):
        world.step()
    world.drain()
    world.check()
    return world.happened


if __name__ == "__main__":
    replay(__doc__, run_seed, STEPS)

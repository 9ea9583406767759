"""The state of a subscription's delivery: for metrics, and in ZooKeeper for `rtolap sep describe`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from rtolap.base.clock import Clock, SystemClock
from rtolap.base.decoding import decode_json
from rtolap.base.errors import RtolapError
from rtolap.base.metrics import Family, Metrics
from rtolap.metadata.store import Check, Create, Delete, MetadataStore, Put
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.serving import WaitingCalls

log = logging.getLogger(__name__)
Labels = TypeVar("Labels", bound=tuple[str, ...])
FAILING_SHOWN = 5
OUTCOMES = ("delivered", "duplicates", "late", "dead_letters", "set_apart", "replayed")
NONE_WAITING = WaitingCalls()


class FailingEventState(msgspec.Struct, frozen=True):
    """An event that keeps failing.

    Attributes:
        row: the row key as text, with escapes for bytes that are not UTF-8.
        tries: how often the event was tried alone.
    """

    region: str
    sequence_id: int
    row: str
    tries: int
    reason: str


class RowApartState(msgspec.Struct, frozen=True):
    """A row whose edits go to the dead letters until they can be delivered."""

    table: str
    row: str
    since_ms: int
    reason: str


class DeliveryState(msgspec.Struct, frozen=True):
    """The published state of a delivery. Counts start when the process becomes the leader.

    Attributes:
        stopped: why nothing more is accepted until the subscription is started again; empty if it runs.
        trouble: why the target accepted nothing the last time; empty after a success.
        failing: the first of `failing_events`.
        set_apart: the number of events that went to the dead letters with their row.
        apart: the first of `rows_apart`.
        consumer: the id of the process that delivers; empty where a subscription has a single consumer.
        waiting_calls: calls, or parts of calls, that are not answered yet.
        oldest_waiting_ms: how long the oldest of them has waited.
        events_per_s: delivered events a second, between the last two publications.
    """

    delivered: int
    duplicates: int
    late: int
    dead_letters: int
    failed_calls: int
    remembered_edits: int
    failing_events: int
    stopped: str = ""
    last_error: str = msgspec.field(default="", name="trouble")  # the name in the published JSON
    failing: tuple[FailingEventState, ...] = ()
    set_apart: int = 0
    replayed: int = 0
    rows_apart: int = 0
    apart: tuple[RowApartState, ...] = ()
    consumer: str = ""
    waiting_calls: int = 0
    waiting_events: int = 0
    oldest_waiting_ms: int = 0
    events_per_s: float = 0.0


def delivery_state(delivery: Delivery) -> DeliveryState:
    """Return the state of a delivery. It may be called from any thread; numbers may be slightly apart."""
    counts = delivery.counts
    failing = list(delivery.failing.events.items())
    apart = list(delivery.apart.values())
    return DeliveryState(
        delivered=counts.delivered,
        duplicates=counts.duplicates,
        late=counts.late,
        dead_letters=counts.dead_letters,
        failed_calls=counts.failed_calls,
        remembered_edits=delivery.remembered_edits,
        failing_events=len(failing),
        stopped="" if delivery.stopped is None else str(delivery.stopped),
        last_error=delivery.last_error or "",
        failing=tuple(
            FailingEventState(region, sequence_id, _text(row), event.tries, event.reason)
            for (region, sequence_id, row), event in failing[:FAILING_SHOWN]
        ),
        set_apart=counts.set_apart,
        replayed=counts.replayed,
        rows_apart=len(apart),
        apart=tuple(
            RowApartState(each.table, _text(each.row), each.since_ms, each.reason)
            for each in apart[:FAILING_SHOWN]
        ),
    )


def _text(row: bytes) -> str:
    return row.decode("utf-8", "backslashreplace")


_FIGURES: Final[Mapping[str, Callable[[DeliveryState], float]]] = {
    "remembered_edits": lambda it: it.remembered_edits,
    "failing_events": lambda it: it.failing_events,
    "rows_apart": lambda it: it.rows_apart,
    "stopped": lambda it: bool(it.stopped),
    "troubled": lambda it: bool(it.last_error),
}


def show_delivery(metrics: Metrics, current: Callable[[], Delivery | None]) -> None:
    """Add it to the metrics of a process; `current` is None while it does not lead."""

    def sample() -> Iterator[Family]:
        delivery = current()
        yield metrics.value("leads", delivery is not None)
        if delivery is not None:
            yield from delivery_families(metrics, {(): delivery_state(delivery)}, without=("share",))

    metrics.sampled(sample)


def delivery_families(
    metrics: Metrics, states: Mapping[Labels, DeliveryState], *, without: Collection[str] = ()
) -> Iterator[Family]:
    """Return the metrics of deliveries, whose states stand under the values of their labels: the share, or
    none `without` it."""
    outcomes = [
        ((*key, outcome), getattr(state, outcome)) for key, state in states.items() for outcome in OUTCOMES
    ]
    yield metrics.family("delivery_events", outcomes, without=without)
    for name, of in _FIGURES.items():
        yield metrics.family(name, [(key, of(state)) for key, state in states.items()], without=without)


class StateNode:
    """The node that publishes the state. Not thread-safe. It goes with the session of `store`.

    `holder`: a node and its contents that must be there when the state is written; None: none.
    """

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        clock: Clock | None = None,
        holder: tuple[str, bytes] | None = None,
    ) -> None:
        self._store, self._path = store, path
        self._clock = clock or SystemClock()
        self._holder = holder
        self._published: bytes | None = None
        self._rate = (self._clock.monotonic_s(), 0)

    def publish(self, delivery: Delivery, waiting: WaitingCalls = NONE_WAITING, consumer: str = "") -> None:
        """Write the state if it has changed. A write that the store refuses is tried again the next time."""
        state = msgspec.structs.replace(
            delivery_state(delivery),
            consumer=consumer,
            waiting_calls=waiting.calls,
            waiting_events=waiting.events,
            oldest_waiting_ms=waiting.oldest_ms,
            events_per_s=self._events_per_s(delivery.counts.delivered),
        )
        data = msgspec.json.encode(state)
        if data == self._published:
            return
        try:
            holds = self._holding()
            if holds is None:
                return
            node = self._store.get(self._path)
            if node is None or self._published is None:  # one of an earlier session goes with that
                remove = [] if node is None else [Delete(self._path, node.version)]
                self._store.commit([*holds, *remove, Create(self._path, data, ephemeral=True)])
            else:
                self._store.commit([*holds, Put(self._path, data, node.version)])
            self._published = data
        except RtolapError as error:
            log.info("the state of delivery is not shown: %s", error)

    def withdraw(self) -> None:
        """Remove the node, where it is ours to remove. It would go with the session anyway."""
        if self._published is None:
            return
        try:
            holds, node = self._holding(), self._store.get(self._path)
            if holds is not None and node is not None:
                self._store.commit([*holds, Delete(self._path, node.version)])
            self._published = None
        except RtolapError as error:
            log.info("the state of delivery is left to its session: %s", error)

    def _holding(self) -> list[Check] | None:
        """Return what a commit requires; None where this process is not the holder."""
        if self._holder is None:
            return []
        path, data = self._holder
        node = self._store.get(path)
        return [Check(path, node.version)] if node is not None and node.data == data else None

    def _events_per_s(self, delivered: int) -> float:
        now_s, (since_s, before) = self._clock.monotonic_s(), self._rate
        self._rate = (now_s, delivered)
        return round((delivered - before) / (now_s - since_s), 1) if now_s > since_s else 0.0


def read_state(store: MetadataStore, path: str) -> DeliveryState | None:
    """Read the state; return None if no process leads, or if a later version has written it unreadably."""
    node = store.get(path)
    if node is None:
        return None
    try:
        return decode_json(node.data, DeliveryState)
    except msgspec.DecodeError:
        return None

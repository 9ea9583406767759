"""The state of a subscription's delivery, for people and for metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from rtolap.base.metrics import Family, Metrics
from rtolap.sep.delivery.delivery import Delivery

FAILING_SHOWN = 5


class FailingEventState(msgspec.Struct, frozen=True):
    """`row` as text, with escapes for bytes that are none. `tries`: those of the event alone."""

    region: str
    sequence_id: int
    row: str
    tries: int
    reason: str


class DeliveryState(msgspec.Struct, frozen=True):
    """Counts are since this process leads. `stopped`: nothing more is taken, until it is started again;
    `trouble`: why the target took nothing the last time. `failing`: the first of `failing_events`."""

    delivered: int
    duplicates: int
    late: int
    dead_letters: int
    failed_calls: int
    remembered_edits: int
    failing_events: int
    stopped: str = ""
    trouble: str = ""
    failing: tuple[FailingEventState, ...] = ()


def delivery_state(delivery: Delivery) -> DeliveryState:
    """From any thread; numbers that change meanwhile may be a little apart."""
    counts = delivery.counts
    failing = list(delivery.failing.events.items())
    return DeliveryState(
        delivered=counts.delivered,
        duplicates=counts.duplicates,
        late=counts.late,
        dead_letters=counts.dead_letters,
        failed_calls=counts.failed_calls,
        remembered_edits=delivery.remembered_edits,
        failing_events=len(failing),
        stopped="" if delivery.stopped is None else str(delivery.stopped),
        trouble=delivery.trouble or "",
        failing=tuple(
            FailingEventState(
                region, sequence_id, row.decode("utf-8", "backslashreplace"), event.tries, event.reason
            )
            for (region, sequence_id, row), event in failing[:FAILING_SHOWN]
        ),
    )


def show_delivery(metrics: Metrics, current: Callable[[], Delivery | None]) -> None:
    """Add it to the metrics of a process; `current` is None while it does not lead."""

    def sample() -> Iterator[Family]:
        delivery = current()
        leads = metrics.gauge_family("leads", "1 while this process delivers.")
        leads.add_metric((), float(delivery is not None))
        yield leads
        if delivery is None:
            return
        state = delivery_state(delivery)
        events = metrics.counter_family(
            "delivery_events", "Events by what became of them, since this process leads.", ("outcome",)
        )
        for outcome in ("delivered", "duplicates", "late", "dead_letters"):
            events.add_metric((outcome,), getattr(state, outcome))
        yield events
        for name, value, purpose in (
            ("remembered_edits", state.remembered_edits, "Delivered edits that would be recognised."),
            ("failing_events", state.failing_events, "Events that the listener did not take."),
            ("stopped", bool(state.stopped), "1 where nothing more is taken until it is started again."),
            ("troubled", bool(state.trouble), "1 while the target takes nothing."),
        ):
            family = metrics.gauge_family(name, purpose)
            family.add_metric((), float(value))
            yield family

    metrics.sampled(sample)

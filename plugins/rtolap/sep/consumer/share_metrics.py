"""The Prometheus metrics of the shares that a consumer holds."""

from __future__ import annotations

from collections.abc import Iterator

from rtolap.base.metrics import Family, Metrics
from rtolap.sep.consumer.sharing import SharedProcess
from rtolap.sep.delivery.state import OUTCOMES, delivery_state


def show_shares(metrics: Metrics, process: SharedProcess) -> None:
    """Add them to the metrics of a process. Each family has the label `share`."""

    def sample() -> Iterator[Family]:
        held = dict(process.deliveries)
        shares = metrics.gauge_family("shares_held", "Shares that this process delivers now.")
        shares.add_metric((), float(len(held)))
        yield shares
        router = process.router
        forwarded = metrics.counter_family(
            "forwarded_events", "Events that other consumers delivered for this one."
        )
        forwarded.add_metric((), 0.0 if router is None else float(router.forwarded_events))
        yield forwarded
        states = {str(share): delivery_state(delivery) for share, delivery in held.items()}
        waiting = {str(share): process.shares[share].waiting() for share in held}
        events = metrics.counter_family(
            "delivery_events",
            "Events by what became of them, since this process delivers.",
            ("share", "outcome"),
        )
        for share, state in states.items():
            for outcome in OUTCOMES:
                events.add_metric((share, outcome), getattr(state, outcome))
        yield events
        for name, purpose, values in (
            (
                "waiting_calls",
                "Parts of calls that are not answered yet.",
                {k: w.calls for k, w in waiting.items()},
            ),
            ("waiting_events", "Events of these parts.", {k: w.events for k, w in waiting.items()}),
            (
                "oldest_waiting_seconds",
                "How long the oldest of these parts has waited.",
                {k: w.oldest_ms / 1000 for k, w in waiting.items()},
            ),
            (
                "remembered_edits",
                "Delivered edits that would be recognised.",
                {k: s.remembered_edits for k, s in states.items()},
            ),
            (
                "failing_events",
                "Events that the listener did not take.",
                {k: s.failing_events for k, s in states.items()},
            ),
            (
                "rows_apart",
                "Rows whose events wait among the dead letters.",
                {k: s.rows_apart for k, s in states.items()},
            ),
            (
                "stopped",
                "1 where nothing more is taken until it is started again.",
                {k: float(bool(s.stopped)) for k, s in states.items()},
            ),
            (
                "troubled",
                "1 while the target takes nothing.",
                {k: float(bool(s.last_error)) for k, s in states.items()},
            ),
        ):
            family = metrics.gauge_family(name, purpose, ("share",))
            for share, value in values.items():
                family.add_metric((share,), float(value))
            yield family

    metrics.sampled(sample)

"""The Prometheus metrics of the shares that a consumer holds."""

from __future__ import annotations

from collections.abc import Iterator

from rtolap.base.metrics import Family, Metrics
from rtolap.sep.consumer.sharing import SharedProcess
from rtolap.sep.delivery.state import delivery_families, delivery_state


def show_shares(metrics: Metrics, process: SharedProcess) -> None:
    """Add them to the metrics of a process. Each family has the label `share`."""

    def sample() -> Iterator[Family]:
        held = dict(process.deliveries)
        yield metrics.gauge_of("shares_held", "Shares that this process delivers now.", len(held))
        forwarded = 0 if process.router is None else process.router.forwarded_events
        purpose = "Events that other consumers delivered for this one."
        yield metrics.counter_family("forwarded_events", purpose, (), [((), forwarded)])
        states = {(str(share),): delivery_state(delivery) for share, delivery in held.items()}
        waiting = {(str(share),): process.shares[share].waiting() for share in held}
        yield from delivery_families(metrics, states, ("share",))
        calls = [(share, each.calls) for share, each in waiting.items()]
        events = [(share, each.events) for share, each in waiting.items()]
        oldest_s = [(share, each.oldest_ms / 1000) for share, each in waiting.items()]
        for name, purpose, values in (
            ("waiting_calls", "Parts of calls that are not answered yet.", calls),
            ("waiting_events", "Events of these parts.", events),
            ("oldest_waiting_seconds", "How long the oldest of these parts has waited.", oldest_s),
        ):
            yield metrics.gauge_family(name, purpose, ("share",), values)

    metrics.sampled(sample)

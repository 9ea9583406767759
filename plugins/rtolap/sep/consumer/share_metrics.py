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
        yield metrics.value("shares_held", len(held))
        forwarded = 0 if process.router is None else process.router.forwarded_events
        yield metrics.value("forwarded_events", forwarded)
        states = {(str(share),): delivery_state(delivery) for share, delivery in held.items()}
        waiting = {(str(share),): process.shares[share].waiting() for share in held}
        yield from delivery_families(metrics, states)
        yield metrics.family("waiting_calls", [(share, each.calls) for share, each in waiting.items()])
        yield metrics.family("waiting_events", [(share, each.events) for share, each in waiting.items()])
        oldest_s = [(share, each.oldest_ms / 1000) for share, each in waiting.items()]
        yield metrics.family("oldest_waiting_seconds", oldest_s)

    metrics.sampled(sample)

"""The Prometheus metrics of a service: one `Metrics` for each service, made where it is put together.

    metrics = Metrics("storage")
    rows = metrics.counter("rows", "Rows taken in.", ["table"])        rtolap_storage_rows_total{table=}
    rows.labels("hits").inc(batch.num_rows)                            once a batch, never once a row
    took = metrics.histogram("flush_seconds", "A flush, to the disk.") rtolap_storage_flush_seconds
    with took.time(): ...
    metrics.sampled(sample)                                            called at every scrape

A service with an HTTP server shows them by `serve_metrics(app, metrics, authorize)` (`servers.metrics_http`),
any other by a `MetricsServer` (`servers.metrics_server`). Both want the credentials of the service.

Names are `rtolap_<service>_<what>_<unit>`: seconds and bytes, and what is counted as it is called; counters
get `_total` at their end. Every label's values are bounded: names of what is declared, states, reasons, never
texts of callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

Family = CounterMetricFamily | GaugeMetricFamily
Sample = Callable[[], Iterable[Family]]
F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily)

Values = Iterable[tuple[Sequence[str], float | None]]
"""Values of a family by its labels. None: it is not known, and left out."""

# From a lookup in memory to a build's promotion; in seconds.
DURATION_BUCKETS_S: Final = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


class Metrics:
    """The registry of one service; thread-safe. Two of one name in a service are a programming error.

    The process itself (processor time, memory, open files, start) is among them.
    """

    def __init__(self, service: str) -> None:
        self.service = service
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def name(self, what: str) -> str:
        return f"rtolap_{self.service}_{what}"

    def counter(self, what: str, purpose: str, labels: Sequence[str] = ()) -> Counter:
        """Return a counter, which only grows; `_total` is added to its name."""
        return Counter(self.name(what), purpose, labels, registry=self._registry)

    def gauge(self, what: str, purpose: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(self.name(what), purpose, labels, registry=self._registry)

    def histogram(
        self,
        what: str,
        purpose: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = DURATION_BUCKETS_S,
    ) -> Histogram:
        return Histogram(self.name(what), purpose, labels, buckets=buckets, registry=self._registry)

    def counter_family(
        self, what: str, purpose: str, labels: Sequence[str] = (), values: Values = ()
    ) -> CounterMetricFamily:
        """Return a family for `sampled`: a counter that the service keeps anyway. More `values` are added by
        `add_metric(labels, number)`."""
        return _filled(CounterMetricFamily(self.name(what), purpose, labels=labels), values)

    def gauge_family(
        self, what: str, purpose: str, labels: Sequence[str] = (), values: Values = ()
    ) -> GaugeMetricFamily:
        """Return a family for `sampled`: what is true at the moment of the scrape."""
        return _filled(GaugeMetricFamily(self.name(what), purpose, labels=labels), values)

    def gauge_of(self, what: str, purpose: str, value: float) -> GaugeMetricFamily:
        """Return a family of one value, without labels."""
        return self.gauge_family(what, purpose, (), [((), value)])

    def sampled(self, sample: Sample) -> None:
        """Call `sample` at every scrape, from any thread. It has to be cheap and must not wait for peers."""
        self._registry.register(_Sampled(sample))

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page and its content type: OpenMetrics for who asks for it, else Prometheus' text."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def _filled(family: F, values: Values) -> F:
    for labels, value in values:
        if value is not None:
            family.add_metric(labels, value)
    return family


class _Sampled(Collector):
    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def collect(self) -> Iterable[Family]:
        return self._sample()

    def describe(self) -> Iterable[Family]:
        """Return nothing, so that registering takes no sample of a service that is still being put
        together."""
        return ()

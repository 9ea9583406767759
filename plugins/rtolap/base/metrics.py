"""The Prometheus metrics of a service: one `Metrics` for each service, made where it is put together.

    metrics = Metrics("query")
    read = metrics.counter("rows_read")                  rtolap_query_rows_read_total{cube=}
    read.labels("hits").inc(batch.num_rows)              once a batch, never once a row
    took = metrics.histogram("query_seconds")            rtolap_query_query_seconds
    with took.time(): ...
    metrics.sampled(lambda: [metrics.value("reads_waiting", len(waiting))])     called at every scrape

What a metric is, its help and its labels are said in one place, `base.metric_catalogue`: a service has those
of its rows, and no others.

A service with an HTTP server shows them by `serve_metrics(app, metrics, authorize)` (`servers.metrics_http`),
any other by a `MetricsServer` (`servers.metrics_server`). Both want the credentials of the service.

Names are `rtolap_<service>_<what>_<unit>`: seconds and bytes, and what is counted as it is called; counters
get `_total` at their end. Every label's values are bounded: names of what is declared, states, reasons, never
texts of callers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

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

from rtolap.base.metric_catalogue import CATALOGUE, MetricRow, MetricType

Family = CounterMetricFamily | GaugeMetricFamily
Sample = Callable[[], Iterable[Family]]

Values = Iterable[tuple[Sequence[str], float | None]]
"""Values of a family by its labels. None: it is not known, and left out."""

# From a lookup in memory to a build's promotion; in seconds.
DURATION_BUCKETS_S: Final = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


class Metrics:
    """The registry of one service; thread-safe. Two of one name in a service are a programming error.

    The process itself (processor time, memory, open files, start) is among them.
    """

    def __init__(self, service: str, rows: Iterable[MetricRow] | None = None) -> None:
        """Make the registry of a service. `rows`: what it may show; None for those of the catalogue."""
        self.service = service
        self._rows = {row.what: row for row in (CATALOGUE[service] if rows is None else rows)}
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def counter(self, what: str) -> Counter:
        """Return a counter, which only grows; `_total` is added to its name."""
        row = self._row(what, "counter")
        return Counter(self._name(what), row.purpose, row.labels, registry=self._registry)

    def gauge(self, what: str) -> Gauge:
        row = self._row(what, "gauge")
        return Gauge(self._name(what), row.purpose, row.labels, registry=self._registry)

    def histogram(self, what: str) -> Histogram:
        row, buckets = self._row(what, "histogram"), DURATION_BUCKETS_S
        return Histogram(self._name(what), row.purpose, row.labels, buckets=buckets, registry=self._registry)

    def family(self, what: str, values: Values = (), *, without: Collection[str] = ()) -> Family:
        """Return a family for `sampled`: what the service counts anyway, or is true at the moment.

        Args:
            values: a number for each tuple of labels' values; a None is left out. More are added by
                `add_metric(labels, number)`.
            without: optional labels that it does not have here.
        """
        row = self._row(what, "counter", "gauge")
        labels = [name for name in row.labels if name not in row.optional or name not in without]
        kind = CounterMetricFamily if row.metric_type == "counter" else GaugeMetricFamily
        family = kind(self._name(what), row.purpose, labels=labels)
        for key, value in values:
            if len(key) != len(labels):
                raise ValueError(f"{family.name} has the labels {labels}, and not the values {[*key]}")
            if value is not None:
                family.add_metric(key, value)
        return family

    def value(self, what: str, value: float) -> Family:
        """Return a family of one value, without labels."""
        return self.family(what, [((), value)])

    def _name(self, what: str) -> str:
        return f"rtolap_{self.service}_{what}"

    def _row(self, what: str, *types: MetricType) -> MetricRow:
        row = self._rows.get(what)
        if row is None or row.metric_type not in types:
            found = "no row" if row is None else f"a {row.metric_type}"
            raise LookupError(f"{self._name(what)} is {found} of the catalogue, and no {' or '.join(types)}")
        return row

    def sampled(self, sample: Sample) -> None:
        """Call `sample` at every scrape, from any thread. It has to be cheap and must not wait for peers."""
        self._registry.register(_Sampled(sample))

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page and its content type: OpenMetrics for who asks for it, else Prometheus' text."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _Sampled(Collector):
    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def collect(self) -> Iterable[Family]:
        return self._sample()

    def describe(self) -> Iterable[Family]:
        """Return nothing, so that registering takes no sample of a service that is still being put
        together."""
        return ()

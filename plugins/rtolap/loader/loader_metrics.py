"""What Prometheus is told of a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rtolap.base.metrics import Family, Metrics
from rtolap.loader.process import LoaderProcess
from rtolap.wire.loader import LoaderStatus


def measure(metrics: Metrics, process: LoaderProcess, status: Callable[[], LoaderStatus]) -> None:
    """Asked at every scrape; the lag is left out while the topic does not tell its ends."""

    def sample() -> Iterable[Family]:
        work = process.work
        shown = work.progress.shown(work.clock)
        counts = shown.counts
        for what, purpose, number in (
            ("rows_loaded", "Rows that the sink has taken.", counts.rows_loaded),
            ("rows_rejected", "Records and rows that were refused.", counts.rows_rejected),
            ("loaded_bytes", "Bytes of the records that were loaded.", counts.bytes),
            ("batches", "Batches that were settled.", counts.batches),
            ("attempts", "Attempts to settle a batch.", counts.attempts),
        ):
            family = metrics.counter_family(what, purpose, ["job"])
            family.add_metric([work.loader.name], number)
            yield family
        pending = metrics.gauge_family("batches_pending", "Batches recorded and not settled.", ["job"])
        pending.add_metric([work.loader.name], len(work.window))
        yield pending
        lag_records = status().lag_records
        if lag_records is not None:
            lag = metrics.gauge_family("lag_records", "Records of the topic that are not loaded.", ["job"])
            lag.add_metric([work.loader.name], lag_records)
            yield lag

    metrics.sampled(sample)

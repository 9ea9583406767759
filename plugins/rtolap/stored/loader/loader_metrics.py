"""Prometheus metrics of a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rtolap.base.metrics import Family, Metrics
from rtolap.protocols.loader.messages import LoaderStatus, PartitionsStatus
from rtolap.stored.loader.process import LoaderProcess


def measure(metrics: Metrics, process: LoaderProcess, status: Callable[[], LoaderStatus]) -> None:
    """Called at every scrape; the lag is left out while the topic does not give its ends."""

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
        if (partitions := process.partitions) is not None:
            yield from _of_partitions(metrics, work.loader.name, partitions.status)
        lag_records = status().lag_records
        if lag_records is not None:
            lag = metrics.gauge_family("lag_records", "Records of the topic that are not loaded.", ["job"])
            lag.add_metric([work.loader.name], lag_records)
            yield lag

    metrics.sampled(sample)


def _of_partitions(metrics: Metrics, job: str, status: PartitionsStatus) -> Iterable[Family]:
    made = metrics.counter_family("partitions_made", "Partitions that were made in the sink.", ["job"])
    made.add_metric([job], status.made_count)
    yield made
    failing = metrics.gauge_family("partitions_failing", "1 while partitions cannot be made.", ["job"])
    failing.add_metric([job], int(status.state == "failing"))
    yield failing
    if status.until_ms is not None:
        until = metrics.gauge_family(
            "partitions_until_seconds", "Up to this instant rows find their partition.", ["job"]
        )
        until.add_metric([job], status.until_ms / 1000)
        yield until

"""Prometheus metrics of a storage node."""

from __future__ import annotations

from collections.abc import Iterable

from rtolap.base.metrics import Family, Metrics
from rtolap.stored.node.node import LocalNode


def node_metrics(node: LocalNode) -> Metrics:
    metrics = Metrics("storage")

    def sample() -> Iterable[Family]:
        status = node.status()
        gauges = {
            "tablets": ("Tablets that are kept here.", len(status.tablets)),
            "tablets_broken": ("Tablets that cannot be opened.", len(status.broken)),
            "rows": ("Rows in files, before merging.", sum(each.rows for each in status.tablets)),
            "files": ("Files of published rows.", sum(each.files for each in status.tablets)),
            "file_bytes": ("Bytes of these files.", sum(each.bytes for each in status.tablets)),
            "prepared": (
                "Transactions in tablets that wait for their end.",
                sum(len(each.prepared) for each in status.tablets),
            ),
            "loads_running": ("Streams of rows that are coming in.", len(status.loading)),
            "load_memory_bytes": ("Rows that are in no file yet.", status.load_memory_bytes),
            "disk_free_bytes": ("Room on the disk.", status.free_bytes),
        }
        for what, (purpose, value) in gauges.items():
            family = metrics.gauge_family(what, purpose)
            family.add_metric([], value)
            yield family
        counters = {
            "loaded_rows": ("Rows that have come in streams.", node.loaded_rows),
            "compactions": ("Compactions that were done.", node.compactor.runs),
            "compaction_failures": ("Compactions that came to nothing.", node.compactor.failures),
        }
        for what, (purpose, value) in counters.items():
            counter = metrics.counter_family(what, purpose)
            counter.add_metric([], value)
            yield counter

    metrics.sampled(sample)
    return metrics

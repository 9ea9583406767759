"""The metrics of the history cache."""

from __future__ import annotations

from collections.abc import Iterable

from rtolap.base.metrics import Family, Metrics
from rtolap.query.history_cache.keeper import HistoryKeeper
from rtolap.query.history_cache.states import Condition, CopyFailure, Eviction


def follow(registry: Metrics, keeper: HistoryKeeper) -> None:
    """Sampled at each scrape, from any thread. Labels are the members of `states`."""

    def sample() -> Iterable[Family]:
        cache = keeper.cache
        state = registry.gauge_family("history_cache_state", "1 for the state it is in.", ("state",))
        for condition in Condition:
            state.add_metric((condition.value.lower(),), float(keeper.condition is condition))
        files = registry.gauge_family("history_cache_files", "Copies on the disk.", ("state",))
        size = registry.gauge_family("history_cache_bytes", "Bytes of copies on the disk.", ("state",))
        for file_state, (count, bytes_there) in cache.counts().items():
            files.add_metric((file_state.value.lower(),), count)
            size.add_metric((file_state.value.lower(),), bytes_there)
        most = registry.gauge_family("history_cache_bytes_max", "What copies may take.")
        most.add_metric((), keeper.bytes_max)
        copied = registry.counter_family("history_cache_copied_bytes", "Bytes of files that were copied.")
        copied.add_metric((), keeper.copied_bytes)
        evicted = registry.counter_family("history_cache_evicted_files", "Copies that went.", ("reason",))
        for reason in Eviction:
            evicted.add_metric((reason.value,), cache.evicted[reason])
        failed = registry.counter_family("history_cache_failed_copies", "Copies that failed.", ("reason",))
        for failure in CopyFailure:
            failed.add_metric((failure.value,), keeper.failures[failure])
        yield from (state, files, size, most, copied, evicted, failed)

    registry.sampled(sample)

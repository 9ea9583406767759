"""Reports of what a keeper and its cache hold at a moment: for `rtolap query cache`, and as metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from rtolap.base.metrics import Family, Metrics
from rtolap.protocols.query.messages import HistoryCacheReport, VersionCopies
from rtolap.query.history_cache.keeper import HistoryKeeper
from rtolap.query.history_cache.placement import ReadyVersion, newest_first
from rtolap.query.history_cache.states import Condition, CopyFailure, Eviction, FileState


def report(keeper: HistoryKeeper, versions_max: int) -> HistoryCacheReport:
    """Report on the cache. It is thread-safe, and taken beside the keeper's thread."""
    cache = keeper.cache
    counts = cache.counts()
    copies = _Copies(keeper)
    complete_from_ms = None
    for version in newest_first(keeper.ready()):
        if not copies.is_complete(version):
            complete_from_ms = version.end_ms
            break
    newest = islice(newest_first(keeper.ready()), versions_max)
    return HistoryCacheReport(
        state=keeper.condition.value,
        found=keeper.found,
        folder=str(cache.folder.root),
        bytes_max=keeper.bytes_max,
        cached_bytes=counts[FileState.CACHED][1],
        copying_bytes=counts[FileState.COPYING][1],
        leaving_bytes=counts[FileState.LEAVING][1],
        cached_files=counts[FileState.CACHED][0],
        copied_bytes=keeper.copied_bytes,
        complete_from_ms=complete_from_ms,
        evicted={reason.value: count for reason, count in sorted(cache.evicted.items())},
        failures={reason.value: count for reason, count in sorted(keeper.failures.items())},
        versions=tuple(copies.of(version) for version in newest),
    )


class _Copies:
    """Copies by the folder of their version."""

    def __init__(self, keeper: HistoryKeeper) -> None:
        self._known = keeper.known_files()
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        for file in keeper.cache.files(FileState.CACHED):
            self._files[file.location] += 1
            self._bytes[file.location] += file.bytes
        self._copying = {file.location for file in keeper.cache.files(FileState.COPYING)}

    def is_complete(self, version: ReadyVersion) -> bool:
        known = self._known.get(version.key)
        return known is not None and self._files[version.location] == len(known)

    def of(self, version: ReadyVersion) -> VersionCopies:
        at = version.location
        known = self._known.get(version.key)
        if self.is_complete(version):
            state = "CACHED"
        elif at in self._copying:
            state = "COPYING"
        else:
            state = "PARTLY" if self._files[at] else "REMOTE"
        return VersionCopies(
            version.cube,
            version.segment,
            version.version,
            state,
            self._files[at],
            self._bytes[at],
            None if known is None else len(known),
            None if known is None else sum(file.bytes for file in known),
        )


def follow(registry: Metrics, keeper: HistoryKeeper) -> None:
    """Register the metrics. Each scrape samples them, from any thread. The labels are the members of
    `states`."""

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

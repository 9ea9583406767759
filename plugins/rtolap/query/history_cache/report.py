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
        conditions = [((each.value.lower(),), keeper.condition is each) for each in Condition]
        yield registry.family("history_cache_state", conditions)
        counts = [((state.value.lower(),), *found) for state, found in cache.counts().items()]
        yield registry.family("history_cache_files", [(state, count) for state, count, _ in counts])
        yield registry.family("history_cache_bytes", [(state, size) for state, _, size in counts])
        yield registry.value("history_cache_bytes_max", keeper.bytes_max)
        yield registry.value("history_cache_copied_bytes", keeper.copied_bytes)
        evicted = [((reason.value,), cache.evicted[reason]) for reason in Eviction]
        yield registry.family("history_cache_evicted_files", evicted)
        failed = [((failure.value,), keeper.failures[failure]) for failure in CopyFailure]
        yield registry.family("history_cache_failed_copies", failed)

    registry.sampled(sample)

"""Report of what a keeper and its cache hold at this moment, for people: `rtolap query cache`."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from rtolap.protocols.query.messages import HistoryCacheReport, VersionCopies
from rtolap.query.history_cache.keeper import HistoryKeeper
from rtolap.query.history_cache.placement import ReadyVersion, newest_first
from rtolap.query.history_cache.states import FileState


def report(keeper: HistoryKeeper, versions_max: int) -> HistoryCacheReport:
    """Thread-safe: taken beside the keeper's thread."""
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
        known = self._known.get(version.location)
        return known is not None and self._files[version.location] == len(known)

    def of(self, version: ReadyVersion) -> VersionCopies:
        at = version.location
        known = self._known.get(at)
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

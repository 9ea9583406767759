"""Chooses the history files wanted on the disk: pure functions of the READY versions and the budget.

Files are ordered by the end of their segment, newest first, over all cubes; within a version its manifest
comes first, then small cuboids before large ones, which statements choose before the base. The placement is
the longest beginning of that order that fits the budget. A file larger than the whole budget is passed over.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rtolap.cubes.format.history import manifest_path
from rtolap.cubes.format.manifest import HistoryManifest
from rtolap.metadata.records import CubeControl, SegmentRecord, standing

Snapshots = Mapping[str, tuple[CubeControl, Mapping[str, SegmentRecord]]]
PlacementOrder = tuple[
    int, int, str, str, int
]  # see `ReadyVersion.order`; the last is the place in the version


class CacheFile(NamedTuple):
    """A file that is placed on the local disk.

    Attributes:
        path: the path in the store.
        order: the sort key, newest version first.
        location: folder of the file's version in the store.
    """

    path: str
    bytes: int
    sha256: str
    order: PlacementOrder
    location: str

    @property
    def cube(self) -> str:
        return self.order[2]


class ReadyVersion(NamedTuple):
    end_ms: int
    start_ms: int
    cube: str
    segment: str
    version: int
    location: str

    @property
    def order(self) -> tuple[int, int, str, str]:
        return -self.end_ms, -self.start_ms, self.cube, self.location


def ready_versions(control: CubeControl, records: Mapping[str, SegmentRecord]) -> list[ReadyVersion]:
    """Return the versions that statements may read of one cube, newest first."""
    versions = [
        ReadyVersion(
            record.end_ms, record.start_ms, record.cube, record.name, record.version, record.location
        )
        for record in standing(control, records)
        if record.location is not None
    ]
    return sorted(versions, key=lambda version: version.order)


def newest_first(by_cube: Iterable[Sequence[ReadyVersion]]) -> Iterator[ReadyVersion]:
    """Merge the sorted lists of cubes lazily."""
    return heapq.merge(*by_cube, key=lambda version: version.order)


def files_of(version: ReadyVersion, manifest: HistoryManifest, data: bytes, sha256: str) -> list[CacheFile]:
    """Return the version's files in order. `data` are the manifest's own bytes, `sha256` their checksum."""
    named = [(manifest_path(version.location), len(data), sha256)]
    for cuboid in sorted(manifest.cuboids, key=lambda cuboid: (cuboid.rows, cuboid.name)):
        named += [(f"{version.location}/{file.name}", file.bytes, file.sha256) for file in cuboid.files]
    return [
        CacheFile(path, size, digest, (*version.order, number), version.location)
        for number, (path, size, digest) in enumerate(named)
    ]


def placed(
    versions: Iterable[ReadyVersion],
    files: Callable[[ReadyVersion], Iterable[CacheFile]],
    bytes_max: int,
    files_max: int,
) -> Iterator[CacheFile]:
    """Yield the placement.

    `files` is called for one version after the other, and for none beyond the budget.
    """
    total_bytes = count = 0
    for version in versions:
        for file in files(version):
            if file.bytes > bytes_max:
                continue
            if total_bytes + file.bytes > bytes_max or count == files_max:
                return
            total_bytes += file.bytes
            count += 1
            yield file

"""Chooses the history files wanted on the disk: pure functions of the READY versions and the budget.

Files are ordered by the end of their segment, newest first, over all cubes; within a version its manifest
comes first, then small cuboids before large ones, which statements choose before the base. The placement is
the longest beginning of that order that fits the budget. A file larger than the whole budget is passed over.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rtolap.base.errors import Corrupted
from rtolap.cubes.format.history import manifest_path
from rtolap.cubes.format.manifest import HistoryManifest, MergedManifest, decode
from rtolap.metadata.merging.units import history_units
from rtolap.metadata.records import CubeControl, SegmentRecord, standing
from rtolap.model.segment import SegmentRange, parse_segment_name

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
    """A unit of history: a version of a segment, or a merged set (see `metadata.merging.units`).

    Attributes:
        segment: name of the segment; of a merged set, from the first of its members to the last.
        version: 0 for a merged set.
        is_base_only: statements read its base cuboid alone.
    """

    end_ms: int
    start_ms: int
    cube: str
    segment: str
    version: int
    location: str
    is_base_only: bool = False

    @property
    def order(self) -> tuple[int, int, str, str]:
        return -self.end_ms, -self.start_ms, self.cube, self.location

    @property
    def key(self) -> str:
        """A key of what statements may read of it."""
        return f"{self.location}\0base" if self.is_base_only else self.location


def ready_versions(control: CubeControl, records: Mapping[str, SegmentRecord]) -> list[ReadyVersion]:
    """Return the units that statements over all history read of one cube, newest first."""
    units = history_units(record for record in standing(control, records) if record.location is not None)
    versions = []
    for unit in units:
        span = SegmentRange(unit.records[0].start_ms, unit.records[-1].end_ms)
        version = 0 if unit.level else unit.records[0].version
        versions.append(
            ReadyVersion(
                *(span.end_ms, span.start_ms, unit.cube, span.name, version, unit.location),
                is_base_only=unit.is_base_only,
            )
        )
    return sorted(versions, key=lambda version: version.order)


def manifest_of_version(data: bytes, version: ReadyVersion, path: str) -> HistoryManifest | MergedManifest:
    """Return the manifest of the unit. Raises Corrupted for a damaged one, and for that of another."""
    manifest: HistoryManifest | MergedManifest
    if version.version:
        manifest = decode(data, HistoryManifest, path)
        found = (manifest.cube, manifest.segment, manifest.version)
    else:
        manifest = decode(data, MergedManifest, path)
        found = (manifest.cube, span_of(manifest).name, 0)
    if found != (version.cube, version.segment, version.version):
        raise Corrupted(
            f"manifest {path} belongs to another version",
            expected=f"{version.cube}/{version.segment} v{version.version}",
            found=f"{found[0]}/{found[1]} v{found[2]}",
        )
    return manifest


def span_of(merged: MergedManifest) -> SegmentRange:
    """Return the time from the set's first member to its last."""
    first, last = (parse_segment_name(merged.members[at].segment) for at in (0, -1))
    return SegmentRange(first.start_ms, last.end_ms)


def newest_first(by_cube: Iterable[Sequence[ReadyVersion]]) -> Iterator[ReadyVersion]:
    """Merge the sorted lists of cubes lazily."""
    return heapq.merge(*by_cube, key=lambda version: version.order)


def files_of(
    version: ReadyVersion, manifest: HistoryManifest | MergedManifest, data: bytes, sha256: str
) -> list[CacheFile]:
    """Return the version's files in order. `data` are the manifest's own bytes, `sha256` their checksum."""
    named = [(manifest_path(version.location), len(data), sha256)]
    cuboids = sorted(manifest.cuboids, key=lambda cuboid: (cuboid.rows, cuboid.name))
    if version.is_base_only:
        cuboids = sorted(cuboids, key=lambda cuboid: len(cuboid.dimensions))[-1:]
    for cuboid in cuboids:
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

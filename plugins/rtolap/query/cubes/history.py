"""History: READY versions in the object store. The engine that reads them is a seam.

`EmbeddedHistory` reads the smallest cuboid that holds the dimensions that are read and filtered by, prunes
row groups by the filter, and groups each segment by what was requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.dataset as ds

from rtolap.base.errors import Corrupted
from rtolap.columnar.schema import physical_schema, select_partials
from rtolap.cubes.format.manifest import CuboidEntry, HistoryManifest
from rtolap.metadata.records import SegmentRecord
from rtolap.model.predicate import columns_of
from rtolap.object_store.store import ObjectStore
from rtolap.query.cancel import Cancellation
from rtolap.query.cubes.arrow_filter import arrow_filter
from rtolap.query.cubes.history_files import HistoryFile, HistoryFiles
from rtolap.query.cubes.merge import group_partials
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.plan import CubeRead, ReadStats

SKETCH_ROWS = 8_192  # read at a time where sketches are among the columns


class HistoryEngine(Protocol):
    def read(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> pa.Table:
        """Plain partials of the segments' versions that pass the read's filter; fills in `stats`.

        Raises Corrupted for a manifest or file that is missing or not what it should be, and Unavailable
        when the object store does not answer.
        """
        ...

    def estimate(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> None:
        """Fills in `stats` as `read` would, out of manifests and statistics: no row is read."""
        ...


class EmbeddedHistory:
    """Thread-safe."""

    def __init__(self, store: ObjectStore, cache: HistoryCache | None = None) -> None:
        """`cache`: where copies of the store's files may be found."""
        self._files = HistoryFiles(store, cache)

    def read(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> pa.Table:
        tables = []
        for segment in segments:
            cancellation.check()
            tables.append(self._read_segment(read, segment, stats))
        empty = physical_schema(read.schema, read.dimensions, read.partials, plain=True).empty_table()
        return pa.concat_tables([empty, *tables])

    def estimate(
        self, read: CubeRead, segments: Sequence[SegmentRecord], stats: ReadStats, cancellation: Cancellation
    ) -> None:
        condition = _condition(read)
        for segment in segments:
            cancellation.check()
            location, cuboid = self._choose(read, segment, stats)
            kept = self._files.use(
                *(segment, location, cuboid, stats),
                lambda files: _rows_kept(_dataset(read, files), condition),
                verified=False,
            )
            _count(stats, cuboid, kept)

    def _read_segment(self, read: CubeRead, segment: SegmentRecord, stats: ReadStats) -> pa.Table:
        location, cuboid = self._choose(read, segment, stats)
        table, kept = self._files.use(
            *(segment, location, cuboid, stats), lambda files: _read_files(read, files), verified=True
        )
        _count(stats, cuboid, kept)
        return table if _has_sketches(read) else group_partials(read, table)

    def _choose(self, read: CubeRead, segment: SegmentRecord, stats: ReadStats) -> tuple[str, CuboidEntry]:
        location = segment.location
        if location is None:
            raise Corrupted(
                f"{read.cube}/{segment.name} is at version {segment.version} without a location",
                action="queue the segment to be built again",
            )
        cuboid = choose_cuboid(self._files.manifest(location, segment), read)
        stats.cuboids[cuboid.name] = stats.cuboids.get(cuboid.name, 0) + 1
        return location, cuboid


def _count(stats: ReadStats, cuboid: CuboidEntry, kept: int) -> None:
    """Rows that statistics do not rule out, and the others."""
    stats.rows_read += kept
    stats.rows_pruned += cuboid.rows - kept


def _read_files(read: CubeRead, files: Sequence[HistoryFile]) -> tuple[pa.Table, int]:
    """The rows that pass the filter, sketches grouped already, and how many statistics did not rule out."""
    dataset, condition = _dataset(read, files), _condition(read)
    kept = _rows_kept(dataset, condition)
    columns = [*read.dimensions, *read.partials]
    if _has_sketches(read):
        return _grouped_in_pieces(read, dataset, columns, condition), kept
    return dataset.to_table(columns=columns, filter=condition, use_threads=True), kept


def _has_sketches(read: CubeRead) -> bool:
    return any(partial.op == "hll" for partial in select_partials(read.schema, read.partials))


def _condition(read: CubeRead) -> ds.Expression | None:
    return None if read.filter is None else arrow_filter(read.filter, read.schema)


def _dataset(read: CubeRead, files: Sequence[HistoryFile]) -> ds.Dataset:
    needed = (*read.dimensions, *sorted(columns_of(read.filter) - set(read.dimensions)))
    schema = physical_schema(read.schema, needed, read.partials, plain=True)
    parquet = ds.ParquetFileFormat()
    fragments = [parquet.make_fragment(file.path, file.filesystem) for file in files]
    return ds.FileSystemDataset(fragments, schema, parquet)


def _grouped_in_pieces(
    read: CubeRead, dataset: ds.Dataset, columns: list[str], condition: ds.Expression | None
) -> pa.Table:
    """Sketches are kilobytes each: no more of them is held than a piece and what was grouped so far."""
    grouped = physical_schema(read.schema, read.dimensions, read.partials, plain=True).empty_table()
    batches = dataset.to_batches(
        columns=columns,
        filter=condition,
        batch_size=SKETCH_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
    )
    pending: list[pa.Table] = []
    rows = 0
    for batch in batches:
        pending.append(group_partials(read, pa.Table.from_batches([batch])))
        rows += pending[-1].num_rows
        if rows >= max(SKETCH_ROWS, grouped.num_rows):  # so that regrouping costs no more than reading
            grouped, pending, rows = group_partials(read, pa.concat_tables([grouped, *pending])), [], 0
    return group_partials(read, pa.concat_tables([grouped, *pending]))


def choose_cuboid(manifest: HistoryManifest, read: CubeRead) -> CuboidEntry:
    """Return the one with the fewest rows that holds every dimension that is read or filtered by."""
    needed = {*read.dimensions, *columns_of(read.filter)}
    fitting = [cuboid for cuboid in manifest.cuboids if needed <= set(cuboid.dimensions)]
    if not fitting:
        raise Corrupted(
            f"history of {manifest.cube}/{manifest.segment} v{manifest.version} has no fitting cuboid",
            expected=f"one with {', '.join(sorted(needed))}",
            found=", ".join(cuboid.name for cuboid in manifest.cuboids) or "none",
            action="queue the segment to be built again",
        )
    return min(fitting, key=lambda cuboid: (cuboid.rows, len(cuboid.dimensions)))


def _rows_kept(dataset: ds.Dataset, condition: ds.Expression | None) -> int:
    """Rows of the row groups that statistics do not rule out."""
    kept = 0
    for fragment in dataset.get_fragments():
        chosen = fragment if condition is None else fragment.subset(condition, schema=dataset.schema)
        kept += sum(group.num_rows for group in chosen.row_groups)
    return kept

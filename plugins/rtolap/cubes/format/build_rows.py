"""The rows of a batch of small segments in memory: read together, and written out as versions. No Spark.

Spark plans, opens and closes each small file that it reads, and renames each that it writes. A thousand of
them cost more than what they hold, so the driver reads and writes them itself, several at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format import history
from rtolap.cubes.format.build_batch import CUBOID_COLUMN, SEGMENT_COLUMN, write_file
from rtolap.cubes.format.manifest import CuboidEntry
from rtolap.model.build_spec import BuildSpec
from rtolap.model.cube import Schema
from rtolap.model.cuboids import Cuboid
from rtolap.object_store.store import ObjectStore

_WORKERS = 8  # mostly waiting for a disk or a remote store
_SEGMENT_FIELD = pa.field(SEGMENT_COLUMN, pa.int32())


def read_rows(store: ObjectStore, schema: Schema, inputs: Sequence[Sequence[str]]) -> pa.Table:
    """Rows of the base cuboid out of these files of each segment, each row with its place in the batch."""
    expected = physical_schema(schema, plain=True)

    def read(path: str, place: int) -> pa.Table:
        with store.open(path) as source:
            table = pq.read_table(source, use_threads=False)
        rows = table.select(expected.names).cast(expected)
        return rows.append_column(_SEGMENT_FIELD, pa.array(np.full(rows.num_rows, place, np.int32)))

    files = [(path, place) for place, paths in enumerate(inputs) for path in paths]
    with ThreadPoolExecutor(_WORKERS) as pool:
        tables = list(pool.map(read, *zip(*files, strict=True))) if files else []
    return pa.concat_tables([expected.append(_SEGMENT_FIELD).empty_table(), *tables]).combine_chunks()


class VersionWriter:
    """Writes the rows of all cuboids and segments of a batch to where they belong, a cuboid at a time."""

    def __init__(
        self, store: ObjectStore, specs: Sequence[BuildSpec], cuboids: Sequence[Cuboid], rows: pa.Table
    ) -> None:
        """`rows`: with the number of their cuboid, and their place in the batch."""
        self._store = store
        self._specs = specs
        self._cuboids = cuboids
        order, self._ends = _by_version(rows, len(cuboids), len(specs))
        self._rows = rows.drop_columns([CUBOID_COLUMN, SEGMENT_COLUMN]).take(order).combine_chunks()

    def write(self, number: int) -> list[CuboidEntry]:
        """The files of the cuboid with this number, an entry per spec. When this returns they are durable."""
        cuboid = self._cuboids[number]
        expected = physical_schema(self._specs[0].schema, cuboid.dimensions, plain=True)
        of_cuboid = self._rows.select(expected.names)

        def write(place: int) -> CuboidEntry:
            version = number * len(self._specs) + place
            start = int(self._ends[version - 1]) if version else 0
            table = of_cuboid.slice(start, int(self._ends[version]) - start)
            if cuboid.dimensions:
                table = table.sort_by([(name, "ascending") for name in cuboid.dimensions])
            return _write(self._store, self._specs[place].location, cuboid, table.cast(expected))

        with ThreadPoolExecutor(_WORKERS) as pool:
            return list(pool.map(write, range(len(self._specs))))


def _by_version(rows: pa.Table, cuboids: int, segments: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(order of the rows by cuboid and segment, where each version's rows of each cuboid end in it)."""
    numbers, places = (rows.column(name).to_numpy() for name in (CUBOID_COLUMN, SEGMENT_COLUMN))
    codes = numbers.astype(np.int64) * segments + places
    ends = np.cumsum(np.bincount(codes, minlength=cuboids * segments))
    if len(ends) != cuboids * segments:
        raise Corrupted("rows of a batch of builds", expected=f"{cuboids} cuboids of {segments} segments")
    return np.argsort(codes, kind="stable"), ends


def _write(store: ObjectStore, location: str, cuboid: Cuboid, table: pa.Table) -> CuboidEntry:
    folder = history.cuboid_folder(cuboid)
    if not table.num_rows:
        return CuboidEntry(folder, cuboid.dimensions, 0, ())
    batches = table.combine_chunks().to_batches()
    file = write_file(store, location, f"{folder}/part-00000.parquet", table.schema, batches)
    return CuboidEntry(folder, cuboid.dimensions, table.num_rows, (file,))

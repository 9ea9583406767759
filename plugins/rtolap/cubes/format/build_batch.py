"""Many segments in one Spark job: which specs go together, and how one job's files or rows become versions.

The jobs of a batch of large segments write below one scratch folder, split by cuboid and segment:
`<scratch>/<job>/__cuboid=<number>/__segment=<place in the batch>/part-*.parquet`. The scratch folder lies
inside the first attempt's own location, so that the cleanup of a dead attempt removes it too. Each try has a
scratch folder and file names of its own (see `tries`).

The rows of a batch of small segments are in memory: read together, and written out as versions. Spark plans,
opens and closes each small file that it reads, and renames each that it writes. A thousand of them cost more
than what they hold, so the driver reads and writes them itself, several at a time. No Spark in here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted
from rtolap.base.files import fsync_dir, fsync_file
from rtolap.base.ids import CarryingPool
from rtolap.columnar.schema import columns_with_statistics, history_schema, physical_schema
from rtolap.cubes.format import history
from rtolap.cubes.format.build_inputs import check_finished
from rtolap.cubes.format.file_ranges import ranges_of
from rtolap.cubes.format.file_states import FileToLookAt, LookAtFiles, entry_of, events_of, look_here
from rtolap.cubes.format.manifest import CuboidEntry, FileEntry, HistoryManifest
from rtolap.cubes.format.pages import WRITTEN, open_parquet
from rtolap.cubes.format.tries import drop_unnamed, file_of, scratch_of
from rtolap.model.build_spec import BuildSpec
from rtolap.model.completeness import late_ppm
from rtolap.model.cube import Cuboid, Schema
from rtolap.object_store.store import ObjectStore

# Place in the batch, and place among the cuboids; no column of a cube begins with two underscores.
SEGMENT_COLUMN, CUBOID_COLUMN = "__segment", "__cuboid"
_WORKERS = 8  # mostly waiting for a disk or a remote store

_SEGMENT_FIELD = pa.field(SEGMENT_COLUMN, pa.int32())


class Adopted(NamedTuple):
    """Files of a batch in their places.

    Attributes:
        entries: per spec, a line of the manifest for each cuboid.
        events: per spec, what was counted in each cuboid's files.
    """

    entries: list[list[CuboidEntry]]
    events: list[list[int]]


def batches(specs: Sequence[BuildSpec], segments_max: int) -> list[list[BuildSpec]]:
    """Divide specs into runs, in order, that one job can build: one store, one schema, no spec that needs
    another's result."""
    batch_list: list[list[BuildSpec]] = []
    for _, alike in groupby(
        specs, lambda spec: (spec.object_store, spec.table_definition, spec.cube_definition)
    ):
        batch: list[BuildSpec] = []
        for spec in alike:
            makes = {other.location for other in batch}
            if len(batch) == segments_max or spec.previous_location in makes or spec.location in makes:
                batch_list.append(batch)
                batch = []
            batch.append(spec)
        batch_list.append(batch)
    return batch_list


def adopt(
    store: ObjectStore,
    tried: str,
    specs: Sequence[BuildSpec],
    cuboids: Sequence[Cuboid],
    folders: Sequence[str],
    look: LookAtFiles | None = None,
) -> Adopted:
    """Move every file of a try's scratch folder to the version that it belongs to, and look at it there.

    When this returns the files are durable, and the scratch folder is gone. A crash before
    leaves folders without a manifest.

    Args:
        folders: of each cuboid, inside the scratch folder, with a folder for each segment that has rows.
        look: looks at the files where they are to be read; in this process where None is given.
    """
    scratch_folder = scratch_of(tried, specs[0].location)
    names = [
        (history.cuboid_folder(cuboid), scratch, cuboid)
        for cuboid, scratch in zip(cuboids, folders, strict=True)
    ]
    listed: dict[str, list[str]] = {}
    for stored in store.list(scratch_folder):
        folder, _, name = stored.path.rpartition("/")
        if name.endswith(".parquet"):  # beside Hadoop's own checksums, on a local disk
            listed.setdefault(folder, []).append(name)

    def move_segment(place: int, spec: BuildSpec) -> list[list[str]]:
        """Return the names of the files of each cuboid."""
        by_cuboid = []
        for folder, scratch, _ in names:
            source = f"{scratch}/{SEGMENT_COLUMN}={place}"
            moved = []
            for name in listed.get(source, ()):
                moved.append(f"{folder}/{file_of(tried, name)}")
                store.move(f"{source}/{name}", f"{spec.location}/{moved[-1]}")
            by_cuboid.append(moved)
        make_durable(store, [f"{spec.location}/{name}" for moved in by_cuboid for name in moved])
        return by_cuboid

    with CarryingPool(_WORKERS) as pool:
        moved = list(pool.map(move_segment, range(len(specs)), specs))
    store.delete_tree(scratch_folder)
    files = [
        FileToLookAt(f"{spec.location}/{name}", counts_events=True, hashes_ranges=True)
        for spec, by_cuboid in zip(specs, moved, strict=True)
        for of_cuboid in by_cuboid
        for name in of_cuboid
    ]
    looked = iter((look or look_here)(specs[0].object_store, files))
    adopted = Adopted([], [])
    for by_cuboid in moved:
        entries, counted = [], []
        for (folder, _, cuboid), of_cuboid in zip(names, by_cuboid, strict=True):
            states = [(name, next(looked)) for name in of_cuboid]
            described = tuple(entry_of(name, state) for name, state in states)
            rows = sum(file.rows for file in described)
            entries.append(CuboidEntry(folder, cuboid.dimensions, rows, described))
            counted.append(sum(events_of(state) for _, state in states))
        adopted.entries.append(entries)
        adopted.events.append(counted)
    return adopted


def check_events(
    store: ObjectStore,
    specs: Sequence[BuildSpec],
    events: Sequence[int],
    entries: Sequence[list[CuboidEntry]],
) -> None:
    """Count the events of every cuboid again, from its files. Raises Corrupted, naming one that differs."""

    def count(spec: BuildSpec, of_spec: Sequence[CuboidEntry]) -> list[int]:
        return [history.count_events(store, spec.location, entry.files) for entry in of_spec]

    with CarryingPool(_WORKERS) as pool:
        check_counted(specs, events, entries, list(pool.map(count, specs, entries)))


def check_counted(
    specs: Sequence[BuildSpec],
    expected: Sequence[int],
    entries: Sequence[Sequence[CuboidEntry]],
    counted: Sequence[Sequence[int]],
) -> None:
    """Compare the events that were counted in each cuboid's files. Raises Corrupted, naming the first one."""
    for spec, events, of_spec, found in zip(specs, expected, entries, counted, strict=True):
        for entry, number in zip(of_spec, found, strict=True):
            if number != events:
                raise Corrupted(
                    f"cuboid {entry.name} of {spec.location}", expected=f"{events} events", found=number
                )


def finish(
    store: ObjectStore, spec: BuildSpec, events: int, entries: Sequence[CuboidEntry]
) -> HistoryManifest:
    """Write the manifest: from here on the version can be promoted. Return that of a driver that came first.

    Raises Corrupted or NotFound where its version cannot be promoted.
    """
    if store.exists(history.manifest_path(spec.location)):
        first = history.verify(store, spec.location, spec.schema)
        check_finished(spec, first)
        drop_unnamed(store, spec.location, entries, first.cuboids)
        return first
    late = spec.late_events(events)
    manifest = HistoryManifest(
        cube=spec.cube,
        segment=spec.segment,
        version=spec.version,
        build_id=spec.build_id,
        covered=spec.covered,
        events=events,
        cuboids=tuple(entries),
        completeness=spec.completeness,
        late_events=late,
        late_ppm=None if late is None else late_ppm(late, events),
        losses=spec.losses,
    )
    history.write_manifest(store, spec.location, manifest)
    return manifest


def write_file(
    store: ObjectStore, location: str, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> FileEntry:
    """Write a file of history, durably and in one step. Its bytes are held in memory, its rows are not."""
    data, rows = encoded(schema, batches)
    store.write(f"{location}/{name}", data)
    return FileEntry(name, rows, len(data), hashlib.sha256(data).hexdigest(), ranges_of(data))


def encoded(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[bytes, int]:
    """Return the bytes of a file of history with these rows, and how many there are."""
    sink = pa.BufferOutputStream()
    rows = 0
    with pq.ParquetWriter(
        sink,
        schema,
        write_statistics=columns_with_statistics(schema),
        write_page_index=True,
        **WRITTEN,
    ) as writer:
        for batch in batches:
            writer.write_batch(batch.cast(schema))
            rows += batch.num_rows
    return sink.getvalue().to_pybytes(), rows


def make_durable(store: ObjectStore, files: Iterable[str]) -> None:
    """Make files durable. Spark does not sync the files that it writes, and staged parts are deleted after
    promotion."""
    if not store.is_local:
        return
    paths = [Path(store.absolute(file)) for file in files]
    for path in paths:
        fsync_file(path)
    for folder in {path.parent for path in paths}:
        fsync_dir(folder)


def read_rows(store: ObjectStore, schema: Schema, inputs: Sequence[Sequence[str]]) -> pa.Table:
    """Return rows of the base cuboid out of these files of each segment, each row with its place in the
    batch.
    """
    expected = physical_schema(schema, plain=True)

    def read(path: str, place: int) -> pa.Table:
        with store.open(path) as source:
            table = open_parquet(source).read(use_threads=False)
        rows = table.select(expected.names).cast(expected)
        return rows.append_column(_SEGMENT_FIELD, pa.array(np.full(rows.num_rows, place, np.int32)))

    files = [(path, place) for place, paths in enumerate(inputs) for path in paths]
    with CarryingPool(_WORKERS) as pool:
        tables = list(pool.map(read, *zip(*files, strict=True))) if files else []
    return pa.concat_tables([expected.append(_SEGMENT_FIELD).empty_table(), *tables]).combine_chunks()


class VersionWriter:
    """Writes the rows of all cuboids and segments of a batch to where they belong, a cuboid at a time."""

    def __init__(
        self,
        store: ObjectStore,
        tried: str,
        specs: Sequence[BuildSpec],
        cuboids: Sequence[Cuboid],
        rows: pa.Table,
    ) -> None:
        """Take the written rows. `rows` come with the number of their cuboid and their place in the batch."""
        self._store = store
        self._file = file_of(tried, "part-00000.parquet")
        self._specs = specs
        self._cuboids = cuboids
        order, self._ends = _by_version(rows, len(cuboids), len(specs))
        self._rows = rows.drop_columns([CUBOID_COLUMN, SEGMENT_COLUMN]).take(order).combine_chunks()

    def write(self, number: int) -> list[CuboidEntry]:
        """Write the files of the cuboid with this number, and return an entry per spec.

        When this returns they are durable.
        """
        cuboid = self._cuboids[number]
        expected = history_schema(self._specs[0].schema, cuboid.dimensions)
        of_cuboid = self._rows.select(expected.names)

        def write(place: int) -> CuboidEntry:
            version = number * len(self._specs) + place
            start = int(self._ends[version - 1]) if version else 0
            table = of_cuboid.slice(start, int(self._ends[version]) - start)
            if cuboid.dimensions:
                table = table.sort_by([(name, "ascending") for name in cuboid.dimensions])
            location = self._specs[place].location
            return _write(self._store, location, cuboid, self._file, table.cast(expected))

        with CarryingPool(_WORKERS) as pool:
            return list(pool.map(write, range(len(self._specs))))


def _by_version(rows: pa.Table, cuboids: int, segments: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order of the rows by cuboid and segment, and where each version's rows of each cuboid end in
    it."""
    numbers, places = (rows.column(name).to_numpy() for name in (CUBOID_COLUMN, SEGMENT_COLUMN))
    codes = numbers.astype(np.int64) * segments + places
    ends = np.cumsum(np.bincount(codes, minlength=cuboids * segments))
    if len(ends) != cuboids * segments:
        raise Corrupted("rows of a batch of builds", expected=f"{cuboids} cuboids of {segments} segments")
    return np.argsort(codes, kind="stable"), ends


def _write(store: ObjectStore, location: str, cuboid: Cuboid, name: str, table: pa.Table) -> CuboidEntry:
    folder = history.cuboid_folder(cuboid)
    if not table.num_rows:
        return CuboidEntry(folder, cuboid.dimensions, 0, ())
    batches = table.combine_chunks().to_batches()
    file = write_file(store, location, f"{folder}/{name}", table.schema, batches)
    return CuboidEntry(folder, cuboid.dimensions, table.num_rows, (file,))

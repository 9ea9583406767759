"""Compares what a staged batch says of a segment with what history holds: rows of the base cuboid, by group.

Sketches are estimates of the same values in other bytes, and FIRST and LAST name places in the topic: they
are left out. All else is compared exactly, and so are doubles, whose sums depend on the order in which they
were added: they may differ in the last digits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.file_states import FileToLookAt, file_state
from rtolap.cubes.format.history import check_file, entry_of, read_manifest
from rtolap.cubes.format.manifest import (
    BATCH_NAME,
    PLAN_NAME,
    BatchManifest,
    BatchPart,
    BatchPlan,
    FileEntry,
    decode,
)
from rtolap.cubes.format.pages import open_parquet
from rtolap.cubes.format.staged import read_staged_manifest
from rtolap.model.batch import BatchSpec
from rtolap.model.cube import ROWS, Cuboid, Schema
from rtolap.object_store.store import ObjectStore
from rtolap.scan.groups import group
from rtolap.scan.keys import code


class Difference(NamedTuple):
    """A segment's groups in history and in the source.

    Attributes:
        history_events: in the READY version; 0 where there is none.
        only_history: groups that the source lacks.
        only_source: groups that history lacks.
        different: groups of both with other values.
    """

    history_events: int
    source_events: int
    only_history: int
    only_source: int
    different: int

    @property
    def is_none(self) -> bool:
        return not (self.only_history or self.only_source or self.different)


def read_batch(store: ObjectStore, folder: str) -> tuple[BatchSpec, tuple[BatchPart, ...]]:
    """Return a staged batch's plan and its parts. Raises NotFound for one that is not staged."""
    plan, manifest = f"{folder}/{PLAN_NAME}", f"{folder}/{BATCH_NAME}"
    spec = decode(store.read(plan), BatchPlan, plan).spec
    return spec, decode(store.read(manifest), BatchManifest, manifest).parts


def compare(store: ObjectStore, spec: BatchSpec, location: str | None, part_path: str) -> Difference:
    """Compare the version at `location` with a staged part of the batch.

    Raises Corrupted and NotFound for damaged files.
    """
    schema = Schema(spec.table_definition, spec.cube_definition)
    exact = [partial.name for partial in schema.partials if partial.accumulator.is_exact]
    history = _rows(store, schema, exact, *_base(store, schema, location))
    source = _rows(store, schema, exact, part_path, read_staged_manifest(store, part_path).files)
    both = pa.concat_tables([history, source])
    keys = [code(single_chunk(both.column(name))) for name in schema.cube.all_dimensions]
    groups = group(keys, both.num_rows)
    places = np.full((2, groups.size), -1, np.int64)
    places[0, groups.ids[: history.num_rows]] = np.arange(history.num_rows)
    places[1, groups.ids[history.num_rows :]] = np.arange(source.num_rows)
    shared = (places >= 0).all(axis=0)
    left, right = (
        table.take(pa.array(at[shared])) for table, at in zip((history, source), places, strict=True)
    )
    equal = np.ones(int(shared.sum()), bool)
    for name in exact:
        equal &= _equal(single_chunk(left.column(name)), single_chunk(right.column(name)))
    return Difference(
        history_events=_events(history),
        source_events=_events(source),
        only_history=int((places[1] < 0).sum()),
        only_source=int((places[0] < 0).sum()),
        different=int((~equal).sum()),
    )


def _base(store: ObjectStore, schema: Schema, location: str | None) -> tuple[str, tuple[FileEntry, ...]]:
    if location is None:
        return "", ()
    return location, entry_of(read_manifest(store, location), Cuboid(schema.cube.all_dimensions)).files


def _rows(
    store: ObjectStore, schema: Schema, partials: list[str], folder: str, files: tuple[FileEntry, ...]
) -> pa.Table:
    expected = physical_schema(schema, None, partials, plain=True)
    tables = [expected.empty_table()]
    for file in files:
        path = f"{folder}/{file.name}"
        check_file(path, file, file_state(store, FileToLookAt(path)))
        with store.open(path) as opened:
            tables.append(open_parquet(opened).read(columns=expected.names).cast(expected))
    return pa.concat_tables(tables)


def _events(rows: pa.Table) -> int:
    return int(pc.sum(rows.column(ROWS)).as_py() or 0)


def _equal(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    same = pc.fill_null(pc.equal(left, right), False)
    return np.asarray(pc.or_(same, pc.and_(left.is_null(), right.is_null())).to_numpy(zero_copy_only=False))

"""History as builds leave it, out of raw rows in DuckDB: sorted cuboids of each segment, READY."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from rtolap.aggregates.accumulator import Partial
from rtolap.base.clock import SystemClock
from rtolap.cubes.format.history import describe_file, write_manifest
from rtolap.cubes.format.manifest import CuboidEntry, HistoryManifest
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl
from rtolap.model.cube import Schema, cuboids
from rtolap.model.segment import SegmentState, segment_of
from rtolap.object_store.store import ObjectStore

from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

_MERGED = {"sum": "sum", "min": "min", "max": "max"}


def new_metadata(schema: Schema, control: CubeControl) -> ClusterMetadata:
    """Return the metadata of a cluster with one cube, in memory."""
    metadata = ClusterMetadata(MemoryStore(MemoryEnsemble()), SystemClock())
    metadata.create_table(schema.table)
    metadata.create_cube(schema.cube)
    metadata.update_control(schema.cube.name, lambda _: control)
    return metadata


def build(
    connection: Any, raw: str, store: ObjectStore, metadata: ClusterMetadata, schema: Schema, before_ms: int
) -> int:
    """Return every cuboid of every segment of table `raw` that begins before that time. How many files there
    are.

    `ts` is the event time in milliseconds.
    """
    cube, window_ms, files = schema.cube, schema.cube.segment.window_ms, 0
    times = ", ".join(
        f"date_trunc('{unit}', make_timestamp(ts * 1000)) AS {unit}_start" for unit in cube.time_dimensions
    )
    partials = ", ".join(f"{_initial(each)} AS {each.name}" for each in schema.partials)
    starts = connection.execute(f"SELECT DISTINCT ts // {window_ms} * {window_ms} FROM {raw} ORDER BY 1")
    for (start_ms,) in starts.fetchall():
        if start_ms >= before_ms:
            break
        segment = segment_of(start_ms, window_ms)
        location = f"history/{cube.name}/{segment.name}/v1-bench"
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE part AS SELECT *, {times} FROM {raw} "
            f"WHERE ts >= {start_ms} AND ts < {start_ms + window_ms}"
        )
        entries = []
        for number, cuboid in enumerate(cuboids(cube)):
            folder = f"{location}/c{number}"
            Path(store.absolute(folder)).mkdir(parents=True)
            names = ", ".join(cuboid.dimensions)
            connection.execute(
                f"COPY (SELECT {names}, {partials} FROM part GROUP BY {names} ORDER BY {names}) "
                f"TO '{store.absolute(folder)}/part-0.parquet' (FORMAT parquet, COMPRESSION zstd)"
            )
            file = describe_file(store, location, f"c{number}/part-0.parquet")
            entries.append(CuboidEntry(f"c{number}", cuboid.dimensions, file.rows, (file,)))
            files += 1
        manifest = HistoryManifest(
            cube=cube.name, segment=segment.name, version=1, build_id="bench", covered={0: 1}, events=1,
            cuboids=tuple(entries),
        )  # fmt: skip
        write_manifest(store, location, manifest)
        ready = partial(
            msgspec.structs.replace, state=SegmentState.READY, version=1, location=location, covered={}
        )
        metadata.update_segment(cube.name, segment, ready)
    return files


def _initial(each: Partial) -> str:
    kind = {
        "bigint": "BIGINT",
        "int": "INTEGER",
        "decimal": f"DECIMAL({each.type.precision},{each.type.scale})",
    }
    if each.source is None:
        return "count(*)"
    return f"CAST({_MERGED[each.accumulator.name]}({each.source}) AS {kind[each.type.kind]})"

"""A history of a few large files: what a scan of history reads, and its recount."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.history import describe_file, write_manifest
from rtolap.cubes.format.manifest import CuboidEntry, HistoryManifest
from rtolap.metadata.records import SegmentRecord
from rtolap.model.cube import Cube, Measure, Schema, SegmentPolicy
from rtolap.model.segment import SegmentState, segment_of
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.object_store.store import ObjectStore

DAY_MS = 86_400_000
SCHEMA = Schema(
    Table(
        name="scanned",
        topic="scanned",
        columns=(
            Column("ts", "bigint"),
            Column("kind", "string"),
            Column("host", "int"),
            Column("bytes", "bigint"),
        ),
        time=TimeColumn("ts", "epoch_ms"),
    ),
    Cube(
        name="scanned",
        table="scanned",
        dimensions=("kind", "host"),
        time_dimensions=("day",),
        measures=(Measure("count"), Measure("sum", "bytes"), Measure("max", "bytes")),
        segment=SegmentPolicy(window_ms=DAY_MS),
    ),
)


def make_history(store: ObjectStore, files: int, rows: int) -> list[SegmentRecord]:
    """Write as many READY versions of a file each, of so many rows of the base cuboid."""
    fields = physical_schema(SCHEMA, plain=True)
    records = []
    for number in range(files):
        rng = np.random.default_rng(number)
        segment = segment_of(1_600_000_000_000 + number * DAY_MS, DAY_MS)
        location = f"history/scanned/{segment.name}/v1-bench"
        sums = rng.integers(0, 10**6, rows)
        columns: dict[str, Any] = {
            "kind": pa.array(rng.integers(0, 100, rows)).cast(pa.string()),
            "host": pa.array(rng.integers(0, 1000, rows), pa.int32()),
            "day_start": pa.array(np.full(rows, segment.start_ms * 1000), pa.timestamp("us")),
            "__rows": pa.array(np.ones(rows, np.int64)),
            "bytes__sum": pa.array(sums).cast(pa.decimal128(38, 0)),
            "bytes__max": pa.array(sums),
        }
        Path(store.absolute(f"{location}/base")).mkdir(parents=True)
        table = pa.table([columns[name] for name in fields.names], fields)
        pq.write_table(table, store.absolute(f"{location}/base/part-0.parquet"), compression="zstd")
        file = describe_file(store, location, "base/part-0.parquet")
        manifest = HistoryManifest(
            cube="scanned",
            segment=segment.name,
            version=1,
            build_id="bench",
            covered={0: 1},
            events=rows,
            cuboids=(CuboidEntry("base", SCHEMA.cube.all_dimensions, rows, (file,)),),
        )
        write_manifest(store, location, manifest)
        records.append(
            SegmentRecord(
                cube="scanned",
                start_ms=segment.start_ms,
                end_ms=segment.end_ms,
                state=SegmentState.READY,
                version=1,
                location=location,
            )
        )
    return records

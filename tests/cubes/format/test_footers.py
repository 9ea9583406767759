"""Footers of Parquet files stay small: sets and sketches have no statistics, everything else has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rtolap.columnar.schema import columns_with_statistics, history_schema
from rtolap.cubes.format import blocks
from rtolap.cubes.format.aggregate import aggregate_events, to_plain
from rtolap.cubes.format.build_batch import write_file
from rtolap.cubes.format.staged import write_staged_part
from rtolap.model.cube import Schema
from rtolap.model.offsets import PartRange
from rtolap.object_store.store import ObjectStore, open_store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    made = open_store((tmp_path / "store").as_uri())
    made.claim()
    return made


def test_files_of_every_writer_have_no_statistics_of_sets_and_sketches(
    store: ObjectStore, schema: Schema, random_events: Callable[[int, int], pa.Table]
) -> None:
    (_, local), *_ = aggregate_events(schema, random_events(64, 200)).items()
    plain, names = to_plain(schema, local), schema.cube.all_dimensions
    staged = write_staged_part(
        store,
        schema=schema,
        cube="c",
        segment="20130101000000_20130102000000",
        version=1,
        replica_set="rs",
        ranges=(PartRange(0, 0, 200),),
        tables=[plain],
        events=200,
        unique="u",
    )
    history = history_schema(schema, names)
    write_file(store, "moved", "part-0.parquet", history, plain.cast(history).to_batches())
    block = blocks.in_one(schema, list(blocks.read_blocks(store, schema, "moved/part-0.parquet", [0])))
    blocks.write_block(store, "built/part-0.parquet", schema, names, block)
    (uploaded,) = [file.path for file in store.list(staged.path) if file.path.endswith(".parquet")]
    for path in (uploaded, "moved/part-0.parquet", "built/part-0.parquet"):
        with store.open(path) as source:
            row_group = pq.read_metadata(source).row_group(0)
        columns = [row_group.column(place) for place in range(row_group.num_columns)]
        assert [c.path_in_schema for c in columns if c.is_stats_set] == columns_with_statistics(plain.schema)
        assert sum(not column.is_stats_set for column in columns) == 4

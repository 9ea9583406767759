from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rtolap.base.errors import Corrupted, DefinitionError, NotFound
from rtolap.columnar.schema import physical_schema
from rtolap.cubes.format.aggregate import aggregate_events, to_plain
from rtolap.cubes.format.staged import (
    read_staged_manifest,
    verify_staged,
    write_staged_part,
)
from rtolap.model.cube import Schema
from rtolap.model.offsets import PartRange
from rtolap.model.segment import StagedPart
from rtolap.object_store.store import ObjectStore, open_store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


@pytest.fixture
def tables(schema: Schema, random_events: Callable[[int, int], pa.Table]) -> list[pa.Table]:
    return [to_plain(schema, local) for local in aggregate_events(schema, random_events(9, 200)).values()]


def _write(store: ObjectStore, schema: Schema, tables: list[pa.Table], **changes: object) -> StagedPart:
    values = {
        "cube": "c",
        "segment": "20130101000000_20130102000000",
        "version": 1,
        "replica_set": "a",
        "ranges": [PartRange(0, 5, 205)],
        "events": 200,
        "unique": "x1",
    }
    return write_staged_part(store, schema=schema, tables=tables, **(values | changes))  # type: ignore[arg-type]


def test_a_part_reads_back(store: ObjectStore, schema: Schema, tables: list[pa.Table]) -> None:
    part = _write(store, schema, tables)
    manifest = verify_staged(store, part.path)
    assert part.path == "staged/c/20130101000000_20130102000000/v1/a-x1"
    assert (part.rows, part.events) == (sum(table.num_rows for table in tables), 200)
    assert manifest.ranges == part.ranges == (PartRange(0, 5, 205),)
    files = (store.read(f"{part.path}/{entry.name}") for entry in manifest.files)
    read = [pq.read_table(pa.BufferReader(data)) for data in files]
    assert pa.concat_tables(read).equals(pa.concat_tables(tables))
    file = Path(store.absolute(f"{part.path}/{manifest.files[0].name}"))
    assert pq.read_schema(file).remove_metadata().equals(physical_schema(schema, plain=True))
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_part_without_events_has_a_manifest_alone(store: ObjectStore, schema: Schema) -> None:
    part = _write(store, schema, [], events=0)
    assert verify_staged(store, part.path).files == ()
    assert part.rows == 0


def test_a_folder_without_manifest_is_no_part(
    store: ObjectStore, schema: Schema, tables: list[pa.Table]
) -> None:
    part = _write(store, schema, tables)
    store.delete(f"{part.path}/manifest.json")
    with pytest.raises(NotFound):
        read_staged_manifest(store, part.path)


@pytest.mark.parametrize("name", ["manifest.json", "part-00000.parquet"])
def test_damage_is_found(store: ObjectStore, schema: Schema, tables: list[pa.Table], name: str) -> None:
    part = _write(store, schema, tables)
    good = store.read(f"{part.path}/{name}")
    for place in range(0, len(good), max(1, len(good) // 60)):
        store.write(f"{part.path}/{name}", good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        with pytest.raises(Corrupted):
            verify_staged(store, part.path)


def test_a_lost_file_is_found(store: ObjectStore, schema: Schema, tables: list[pa.Table]) -> None:
    part = _write(store, schema, tables)
    store.delete(f"{part.path}/part-00000.parquet")
    with pytest.raises(Corrupted):
        verify_staged(store, part.path)


@pytest.mark.parametrize("changes", [{"unique": "../x"}, {"cube": ""}, {"replica_set": "a/b"}])
def test_names_that_are_no_path_parts_are_refused(
    store: ObjectStore, schema: Schema, changes: dict[str, object]
) -> None:
    with pytest.raises(DefinitionError):
        _write(store, schema, [], **changes)


def test_other_columns_are_refused(store: ObjectStore, schema: Schema, tables: list[pa.Table]) -> None:
    with pytest.raises(DefinitionError):
        _write(store, schema, [tables[0].drop_columns(["city"])])

"""Rows that name only some columns: what they keep, in one load and over loads, files, copies and schemas.

Random lives mix them with whole ones (`test_runs.py`), power cuts in each step are in `test_steps.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.model.schema_changes import add_column, drop_column, rename_column
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.stored.engine.copying import Arriving, complete, filling, write_whole
from rtolap.stored.engine.disk import RealDisk
from rtolap.stored.engine.rows.columns import DELETE_SIGN
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.tablet import Tablet

COLUMNS = (
    StoredColumn("id", "int", nullable=False),
    StoredColumn("a", "int"),
    StoredColumn("b", "string", default="none"),
    StoredColumn("at", "int"),
)
ONE_ROW_A_FILE = TabletSettings(memtable_bytes_max=1, block_rows=8)
TYPES = {"id": pa.int32(), "a": pa.int32(), "b": pa.string(), "at": pa.int32(), DELETE_SIGN: pa.bool_()}


def table(sequence: str | None = None, columns: Sequence[StoredColumn] = COLUMNS) -> StoredTable:
    return StoredTable(
        database="d",
        name="t",
        model="unique",
        keys=("id",),
        columns=tuple(columns),
        sequence_column=sequence,
    )


def made(folder: Path, sequence: str | None = None, settings: TabletSettings | None = None) -> Tablet:
    return Tablet.create(folder / "tablet", initial_schema(table(sequence)), settings)


def prepare(tablet: Tablet, *rows: Mapping[str, Any], partial: bool = True) -> int:
    """A batch a row; rows may have a delete sign."""
    txn = 1 + max((*tablet.status().prepared, tablet.version), default=0)
    transaction = tablet.begin(txn, partial=partial)
    signed = any(DELETE_SIGN in row for row in rows)
    for row in rows:
        whole = dict(row) | ({DELETE_SIGN: row.get(DELETE_SIGN, False)} if signed else {})
        transaction.add_rows(
            pa.record_batch({name: pa.array([value], TYPES[name]) for name, value in whole.items()})
        )
    transaction.prepare()
    return txn


def load(tablet: Tablet, *rows: Mapping[str, Any], partial: bool = True) -> None:
    tablet.publish(prepare(tablet, *rows, partial=partial), tablet.version + 1)


def rows_of(tablet: Tablet) -> list[tuple[Any, ...]]:
    with tablet.pin() as snapshot:
        return sorted(tuple(row.values()) for batch in snapshot.read() for row in batch.to_pylist())


def test_a_known_key_keeps_what_is_not_named_and_a_new_one_has_defaults(tmp_path: Path) -> None:
    tablet = made(tmp_path)
    load(tablet, {"id": 1, "a": 1, "b": "x", "at": 1}, partial=False)
    load(tablet, {"id": 1, "a": 7}, {"id": 2, "a": 8})
    assert rows_of(tablet) == [(1, 7, "x", 1), (2, 8, "none", None)]
    load(tablet, {"id": 1, "a": None})  # a null is a value
    assert rows_of(tablet) == [(1, None, "x", 1), (2, 8, "none", None)]
    load(tablet, {"id": 1}, {"id": 3})  # keys alone add what is not there
    assert rows_of(tablet) == [(1, None, "x", 1), (2, 8, "none", None), (3, None, "none", None)]


@pytest.mark.parametrize("settings", [None, ONE_ROW_A_FILE])
def test_rows_of_one_key_in_one_load_follow_each_other(
    tmp_path: Path, settings: TabletSettings | None
) -> None:
    tablet = made(tmp_path, settings=settings)
    load(tablet, {"id": 1, "a": 1, "b": "x", "at": 1}, partial=False)
    deletes = {"id": 1, "a": 2, DELETE_SIGN: True}
    load(tablet, {"id": 1, "a": 3}, {"id": 1, "a": 4})
    assert rows_of(tablet) == [(1, 4, "x", 1)]
    load(tablet, {"id": 1, "a": 5}, deletes, {"id": 1, "a": 6}, {"id": 2, "a": 1})
    assert rows_of(tablet) == [(1, 6, "none", None), (2, 1, "none", None)]
    load(tablet, {"id": 1, "a": 7}, deletes)
    assert rows_of(tablet) == [(2, 1, "none", None)]


@pytest.mark.parametrize("settings", [None, ONE_ROW_A_FILE])
def test_a_sequence_that_is_named_decides_and_else_stays(
    tmp_path: Path, settings: TabletSettings | None
) -> None:
    tablet = made(tmp_path, "at", settings)
    load(tablet, {"id": 1, "a": 1, "b": "x", "at": 5}, partial=False)
    load(tablet, {"id": 1, "a": 2})
    assert rows_of(tablet) == [(1, 2, "x", 5)]
    load(tablet, {"id": 1, "a": 3, "at": 4}, {"id": 2, "a": 3, "at": None})
    assert rows_of(tablet) == [(1, 2, "x", 5), (2, 3, "none", None)]
    load(tablet, {"id": 1, "a": 4, "at": 6}, {"id": 1, "a": 5, "at": 5})
    assert rows_of(tablet) == [(1, 4, "x", 6), (2, 3, "none", None)]
    # A delete counts by its sequence too: 5 is too small to clear what is there, 7 is not.
    late, early = ({"id": 1, "a": 0, "at": at, DELETE_SIGN: True} for at in (7, 5))
    load(tablet, early, {"id": 1, "a": 6, "at": 6})
    assert rows_of(tablet)[0] == (1, 6, "x", 6)
    load(tablet, late, {"id": 1, "a": 7, "at": 7})
    assert rows_of(tablet)[0] == (1, 7, "none", 7)


def test_a_deleted_key_keeps_nothing_but_its_sequence(tmp_path: Path) -> None:
    tablet = made(tmp_path, "at", TabletSettings(compaction_files_min=2))
    load(tablet, {"id": 1, "a": 1, "b": "x", "at": 5}, partial=False)
    load(tablet, {"id": 1, DELETE_SIGN: True})
    assert rows_of(tablet) == []
    while tablet.compact():
        pass
    load(tablet, {"id": 1, "a": 2})
    assert rows_of(tablet) == [(1, 2, "none", 5)]


def test_columns_may_change_between_load_and_publish(tmp_path: Path) -> None:
    tablet = made(tmp_path)
    load(tablet, {"id": 1, "a": 1, "b": "x", "at": 1}, partial=False)
    txn = prepare(tablet, {"id": 1, "a": 7}, {"id": 2, "a": 8})
    schema = rename_column(drop_column(tablet.schema, "b"), "a", "renamed")
    schema = add_column(schema, StoredColumn("added", "int", default="3"))
    tablet.change_schema(schema)
    other = tablet.begin(10)
    other.add_rows(pa.record_batch({"id": pa.array([1], pa.int32()), "added": pa.array([9], pa.int32())}))
    other.prepare()
    tablet.publish(10, 2)
    tablet.publish(txn, 3)
    assert tablet.schema.names == ("id", "renamed", "at", "added")
    assert rows_of(tablet) == [(1, 7, None, 9), (2, 8, None, 3)]


def test_another_replica_gets_the_whole_rows(tmp_path: Path) -> None:
    tablet = made(tmp_path)
    (tmp_path / "b").mkdir()
    copy = made(tmp_path / "b")
    load(tablet, {"id": 1, "a": 1, "b": "x", "at": 1}, partial=False)
    load(tablet, {"id": 1, "a": 7}, {"id": 2, "a": 8})
    with tablet.export(0) as export:
        arriving = Arriving(export.chunks())
        for version in arriving.manifest.versions:
            copy.begin(version.txn).adopt(filling(arriving, version))
            copy.publish(version.txn, version.version)
    assert rows_of(copy) == rows_of(tablet) == [(1, 7, "x", 1), (2, 8, "none", None)]


def test_what_is_prepared_stays_partial_when_the_whole_tablet_is_copied(tmp_path: Path) -> None:
    settings = TabletSettings(compaction_files_min=2)
    tablet, behind = made(tmp_path, settings=settings), tmp_path / "behind"
    behind.mkdir()
    copy = made(behind)
    load(tablet, {"id": 1, "a": 1, "b": "x", "at": 1}, partial=False)
    load(tablet, {"id": 1, "a": 2, "b": "y", "at": 2}, partial=False)
    assert tablet.compact()
    txn = 5
    for each in (tablet, copy):
        transaction = each.begin(txn, partial=True)
        transaction.add_rows(
            pa.record_batch({"id": pa.array([1], pa.int32()), "a": pa.array([7], pa.int32())})
        )
        transaction.prepare()
    with tablet.export(0) as export:
        disk, root = RealDisk(), tmp_path / "whole"
        state = write_whole(disk, root, Arriving(export.chunks()))
        copy.close()
        complete(disk, root, state, copy.prepared_files, behind / "tablet", settings.log_bytes_max)
    copy = Tablet.open(root)
    for each in (tablet, copy):
        each.publish(txn, 3)
        assert rows_of(each) == [(1, 7, "y", 2)]


def test_replicas_make_the_same_bytes_whatever_was_compacted(tmp_path: Path) -> None:
    tablets = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        tablet = made(tmp_path / name, settings=TabletSettings(compaction_files_min=2))
        for at in range(4):
            load(tablet, {"id": at % 2, "a": at, "b": str(at), "at": at}, partial=False)
        while name == "b" and tablet.compact():
            pass
        load(tablet, *({"id": at, "a": -at} for at in range(4)))
        tablets.append(tablet)
    files = [(tmp_path / name / "tablet/rowsets/v5/0.rows").read_bytes() for name in ("a", "b")]
    assert files[0] == files[1]


def test_what_partial_rows_cannot_be(tmp_path: Path) -> None:
    tablet = made(tmp_path)
    transaction = tablet.begin(1, partial=True)
    with pytest.raises(DefinitionError, match="lack key columns; expected id"):
        transaction.add_rows(pa.record_batch({"a": pa.array([1], pa.int32())}))
    transaction.add_rows(pa.record_batch({"id": pa.array([1], pa.int32()), "a": pa.array([1], pa.int32())}))
    with pytest.raises(DefinitionError, match="different columns"):
        transaction.add_rows(
            pa.record_batch({"id": pa.array([1], pa.int32()), "at": pa.array([1], pa.int32())})
        )
    strict = table(columns=(*COLUMNS, StoredColumn("must", "int", nullable=False)))
    tablet = Tablet.create(tmp_path / "strict", initial_schema(strict))
    transaction = tablet.begin(1, partial=True)
    only_key = {"id": pa.array([1], pa.int32())}
    with pytest.raises(DefinitionError, match="lack must"):
        transaction.add_rows(pa.record_batch(only_key))
    transaction.add_rows(pa.record_batch(only_key | {DELETE_SIGN: pa.array([True])}))

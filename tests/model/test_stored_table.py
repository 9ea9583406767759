"""Definitions of stored tables: what is sound, what every mistake is told, partitions, changes of columns."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import DefinitionError, NotFound, Refused
from rtolap.column_types import BIGINT, BINARY, DOUBLE, decimal
from rtolap.model.schema_changes import add_column, drop_column, rename_column
from rtolap.model.stored.partitions import partition_of, to_create, to_drop
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import Buckets, RangePartitions, StoredColumn, StoredTable
from rtolap.model.validation.stored_table import stored_table_problems, validate_stored_table
from rtolap.model.yaml_files import read_definitions

YAML = """\
kind: stored_table
database: shop
name: sales
model: aggregate
keys: [day, city]
columns:
  - {name: day, type: date, nullable: false}
  - {name: city, type: string}
  - {name: revenue, type: "decimal(12,2)", aggregate: SUM, default: "0"}
  - {name: visitors, type: hll, aggregate: HLL_UNION}
partitions: {column: day, unit: month, ahead: 2, retention: 60d}
buckets: {count: 4, columns: [city]}
"""
DAY_MS = 86_400_000


def sales(**changes: object) -> StoredTable:
    table = StoredTable(
        database="shop",
        name="sales",
        model="unique",
        keys=("day", "id"),
        columns=(
            StoredColumn("day", "date", nullable=False),
            StoredColumn("id", "bigint"),
            StoredColumn("at", "timestamp"),
            StoredColumn("price", "decimal(10,2)"),
        ),
        sequence_column="at",
        partitions=RangePartitions("day"),
    )
    return msgspec.structs.replace(table, **changes)


def ms(year: int, month: int, day: int, hour: int = 0) -> int:
    return int(datetime(year, month, day, hour, tzinfo=UTC).timestamp() * 1000)


def test_a_stored_table_is_read_from_yaml(tmp_path: Path) -> None:
    (tmp_path / "sales.yaml").write_text(YAML)
    table = read_definitions(tmp_path).stored_tables["shop.sales"]
    assert table.columns[2] == StoredColumn("revenue", "decimal(12,2)", aggregate="SUM", default="0")
    assert table.partitions == RangePartitions("day", "month", 2, 60 * DAY_MS)
    assert table.buckets == Buckets(4, ("city",))


def test_a_problem_names_file_line_and_key(tmp_path: Path) -> None:
    file = tmp_path / "sales.yaml"
    file.write_text(YAML.replace("keys: [day, city]", "keys: [day, town]"))
    with pytest.raises(DefinitionError) as caught:
        read_definitions(file)
    lines = str(caught.value).splitlines()
    assert lines[0] == (f"{file}:5: keys[1]: no such column; expected a column of table sales; found 'town'")
    file.write_text(YAML.replace("aggregate: SUM", "aggregate: SUMM"))
    with pytest.raises(DefinitionError, match=r"sales.yaml:9: columns\[2\].aggregate: .*did you mean 'SUM'"):
        read_definitions(file)


def test_the_same_name_in_two_databases_is_two_tables(tmp_path: Path) -> None:
    file = tmp_path / "sales.yaml"
    file.write_text(f"{YAML}---\n{YAML.replace('database: shop', 'database: depot')}")
    assert sorted(read_definitions(file).stored_tables) == ["depot.sales", "shop.sales"]
    file.write_text(f"{YAML}---\n{YAML}")
    with pytest.raises(DefinitionError, match=r"declared twice; found 'shop\.sales'"):
        read_definitions(file)


def test_sums_are_as_wide_as_they_may_become_and_sketches_are_bytes() -> None:
    kinds = {
        ("int", "SUM"): BIGINT,
        ("bigint", "SUM"): decimal(38, 0),
        ("decimal(10,2)", "SUM"): decimal(38, 2),
        ("double", "SUM"): DOUBLE,
        ("bigint", "MAX"): BIGINT,
        ("hll", "HLL_UNION"): BINARY,
        ("bitmap", "BITMAP_UNION"): BINARY,
    }
    for (kind, function), stored in kinds.items():
        assert StoredColumn("a", kind, aggregate=function).column_type == stored


MISTAKES = {
    "database": sales(database="Shop"),
    "columns": sales(columns=(), keys=(), sequence_column=None, partitions=None),
    "columns[1].name": sales(columns=(StoredColumn("id", "int"), StoredColumn("id", "int"))),
    "columns[0].type": sales(columns=(StoredColumn("id", "number"),)),
    "columns[0].default": sales(columns=(StoredColumn("id", "int", default="4000000000"),)),
    "keys": sales(keys=(), partitions=None, model="unique"),
    "keys[0]": sales(columns=(*sales().columns, StoredColumn("x", "double")), keys=("x", "day")),
    "keys[2]": sales(keys=("day", "id", "day")),
    "columns[3].aggregate": sales(
        columns=(*sales().columns[:3], StoredColumn("price", "int", aggregate="SUM"))
    ),
    "delete_sign": sales(model="duplicate", delete_sign=True, sequence_column=None),
    "sequence_column": sales(sequence_column="id"),
    "partitions.column": sales(partitions=RangePartitions("at")),
    "partitions.unit": sales(partitions=RangePartitions("day", "hour")),
    "partitions.ahead": sales(partitions=RangePartitions("day", ahead=-1)),
    "partitions.retention_ms": sales(partitions=RangePartitions("day", retention_ms=0)),
    "buckets.count": sales(buckets=Buckets(0)),
    "buckets.columns": sales(
        model="duplicate", keys=(), sequence_column=None, buckets=Buckets(2), delete_sign=None
    ),
    "buckets.columns[0]": sales(buckets=Buckets(2, ("price",))),
}


@pytest.mark.parametrize("key", MISTAKES)
def test_every_mistake_is_told_where_it_stands(key: str) -> None:
    found = [problem.text() for problem in stored_table_problems(MISTAKES[key])]
    assert any(text.startswith(f"{key}: ") for text in found), found


def test_a_sound_definition_has_no_problems() -> None:
    validate_stored_table(sales())


@pytest.mark.parametrize(
    ("kind", "function"),
    [("hll", "SUM"), ("bigint", "HLL_UNION"), ("string", "SUM"), ("bitmap", "HLL_UNION"), ("int", None)],
)
def test_a_function_must_fit_its_type(kind: str, function: str | None) -> None:
    columns = (*sales().columns[:2], StoredColumn("v", kind, aggregate=function))
    table = sales(model="aggregate", columns=columns, sequence_column=None)
    with pytest.raises(DefinitionError, match=r"columns\[2\].aggregate"):
        validate_stored_table(table)


def test_partitions_tile_the_calendar() -> None:
    assert partition_of(ms(2024, 2, 29, 23), "month").name == "p202402"
    week = partition_of(ms(2024, 12, 31), "week")
    assert (week.name, week.start_ms, week.end_ms) == ("p20241230", ms(2024, 12, 30), ms(2025, 1, 6))
    for unit in ("hour", "day", "week", "month", "year"):
        at = ms(1969, 11, 3, 5)
        for _ in range(40):
            found = partition_of(at, unit)
            assert found.start_ms <= at < found.end_ms
            assert partition_of(found.end_ms - 1, unit) == found
            at = found.end_ms
    assert partition_of(ms(812, 5, 1), "year").name == "p0812"
    with pytest.raises(Refused, match="outside the calendar"):
        partition_of(10**18, "day")


def test_partitions_are_made_ahead_and_dropped_by_retention() -> None:
    policy = RangePartitions("day", "day", ahead=2, retention_ms=2 * DAY_MS)
    now_ms = ms(2024, 3, 1, 12)
    made = to_create(policy, now_ms, [])
    assert [part.name for part in made] == ["p20240301", "p20240302", "p20240303"]
    later_ms = now_ms + DAY_MS
    assert [part.name for part in to_create(policy, later_ms, made)] == ["p20240304"]
    assert to_drop(policy, ms(2024, 3, 4) - 1, made) == ()
    assert [part.name for part in to_drop(policy, ms(2024, 3, 4), made)] == ["p20240301"]
    assert to_drop(RangePartitions("day"), later_ms * 2, made) == ()


def test_column_ids_survive_renames_and_are_never_used_twice() -> None:
    schema = initial_schema(sales())
    schema = rename_column(schema, "price", "amount")
    assert schema.named("amount").id == 4
    schema = drop_column(schema, "amount")
    schema = add_column(schema, StoredColumn("price", "decimal(4,1)", default="2.5"))
    assert (schema.named("price").id, schema.named("price").default) == (5, Decimal("2.5"))
    assert schema.version == 4
    assert schema.key_names == ("day", "id")


def test_what_a_change_of_columns_may_not_do() -> None:
    schema = initial_schema(sales())
    for name in ("day", "id", "at"):
        with pytest.raises(DefinitionError, match="cannot be dropped"):
            drop_column(schema, name)
    with pytest.raises(NotFound):
        drop_column(schema, "nothing")
    with pytest.raises(DefinitionError, match="exists already"):
        rename_column(schema, "price", "at")
    with pytest.raises(DefinitionError, match="not a name"):
        rename_column(schema, "price", "Price!")
    with pytest.raises(DefinitionError, match="without a value for the rows there are"):
        add_column(schema, StoredColumn("n", "int", nullable=False))
    with pytest.raises(DefinitionError, match="default that its column cannot hold"):
        add_column(schema, StoredColumn("n", "decimal(3,1)", default="0.25"))
    aggregate = initial_schema(sales(model="aggregate", columns=sales().columns[:2], sequence_column=None))
    with pytest.raises(DefinitionError, match="without a function"):
        add_column(aggregate, StoredColumn("n", "int"))
    with pytest.raises(DefinitionError, match="count once a stored row"):
        add_column(aggregate, StoredColumn("n", "int", aggregate="SUM", default="1"))
    assert add_column(aggregate, StoredColumn("n", "int", aggregate="SUM", default="0")).next_id == 4

"""Rows find their tablets: as a slow walk would find them, the same for ever, none lost."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.columnar.schema import arrow_type
from rtolap.model.schema_changes import add_column, rename_column
from rtolap.model.stored.partitions import WHOLE, PartitionRange, partition_of
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import Buckets, PartitionUnit, RangePartitions, StoredColumn, StoredTable
from rtolap.stored.engine.routing import Routing
from rtolap.stored.engine.rows.keys import hashes

from tests.support.stored.tablet_rows import random_value

UNITS: tuple[PartitionUnit, ...] = ("hour", "day", "week", "month", "year")


def table(unit: PartitionUnit = "day", kind: str = "timestamp", buckets: int = 3) -> StoredTable:
    return StoredTable(
        database="d",
        name="t",
        columns=(
            StoredColumn("at", kind, nullable=False),
            StoredColumn("host", "string"),
            StoredColumn("n", "int"),
        ),
        keys=("at", "host"),
        partitions=RangePartitions("at", unit),
        buckets=Buckets(buckets, ("host",)),
    )


def batch(rows: list[dict[str, Any]], definition: StoredTable) -> pa.RecordBatch:
    kinds = {column.name: arrow_type(column.load_type) for column in definition.columns}
    return pa.record_batch(
        {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    )


def ms(instant: datetime) -> int:
    return int(instant.replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("unit", UNITS)
def test_every_row_is_where_a_slow_walk_puts_it(unit: PartitionUnit, seed: int) -> None:
    rng = random.Random(seed)
    definition = table(unit)
    instants = [
        datetime(2024, 1, 1) + (datetime(2024, 3, 1) - datetime(2024, 1, 1)) * rng.random()
        for _ in range(300)
    ]
    known = {partition_of(ms(instant), unit) for instant in instants if rng.random() < 0.6}
    rows = [{"at": i, "host": rng.choice(("a", "b", "", None)), "n": at} for at, i in enumerate(instants)]
    found = Routing(definition, initial_schema(definition), sorted(known)).split(batch(rows, definition))
    of_row = [partition_of(ms(instant), unit) for instant in instants]
    here = [row for row, part in zip(rows, of_row, strict=True) if part in known]
    assert found.unroutable.to_pylist() == [part not in known for part in of_row]
    assert set(found.absent) == set(of_row) - known
    tablets = [(part.partition, part.bucket) for part in found.parts]
    assert len(tablets) == len(set(tablets))
    of_host = {}
    seen = []
    for part in found.parts:
        numbers = part.rows.column("n").to_pylist()
        assert numbers == sorted(numbers), "rows of a tablet keep their order"
        for number in numbers:
            assert of_row[number].name == part.partition
            assert of_host.setdefault(rows[number]["host"], part.bucket) == part.bucket
        seen += numbers
    assert sorted(seen) == [row["n"] for row in here]


def test_buckets_are_the_same_for_ever() -> None:
    """Files rest on them: if this fails, rows are looked for where they are not."""
    keys = [
        pa.array([0, 1, -1, None], pa.int64()),
        pa.array(["", "a", "é", None]),
        pa.array([date(1970, 1, 1), date(2024, 2, 29), date(1969, 12, 31), None]),
        pa.array([Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), None], pa.decimal128(30, 2)),
        pa.array([False, True, True, None]),
    ]
    assert [int(value) % 1024 for column in keys for value in hashes([column])] == EXPECTED
    assert [int(value) % 1024 for value in hashes(keys)] == EXPECTED_TOGETHER


EXPECTED = [0, 637, 484, 431, 109, 912, 550, 431, 0, 924, 484, 431, 0, 101, 71, 431, 0, 637, 637, 431]
EXPECTED_TOGETHER = [51, 673, 454, 12]


def test_a_slice_and_a_dictionary_hash_as_what_they_hold() -> None:
    rng = random.Random(1)
    definition = table(buckets=7)
    values = [{"at": datetime(2024, 1, 1), "host": random_value(rng, "string"), "n": at} for at in range(100)]
    whole = batch(values, definition)
    encoded = whole.set_column(1, "host", whole.column("host").dictionary_encode())
    routing = Routing(definition, initial_schema(definition), [partition_of(ms(datetime(2024, 1, 1)), "day")])

    def buckets(some: pa.RecordBatch) -> dict[int, int]:
        return {
            n: part.bucket for part in routing.split(some).parts for n in part.rows.column("n").to_pylist()
        }

    expected = buckets(whole)
    assert len(set(expected.values())) > 1
    assert buckets(encoded) == expected
    assert buckets(whole.slice(30, 40)) == {n: expected[n] for n in range(30, 70)}


def test_a_table_without_partitions_has_one_and_renames_change_nothing() -> None:
    definition = StoredTable(
        database="d",
        name="t",
        columns=(StoredColumn("id", "bigint"), StoredColumn("n", "int")),
        keys=("id",),
        buckets=Buckets(4),
    )
    schema = initial_schema(definition)
    later = rename_column(add_column(schema, StoredColumn("x", "int")), "id", "key")
    rows = pa.record_batch({"id": pa.array(range(50), pa.int64()), "n": pa.array(range(50), pa.int32())})
    first = Routing(definition, schema, [WHOLE]).split(rows)
    second = Routing(definition, later, [WHOLE]).split(rows.rename_columns(["key", "n"]))
    assert {part.partition for part in first.parts} == {WHOLE.name}
    assert [(part.bucket, part.rows.column(0).to_pylist()) for part in first.parts] == [
        (part.bucket, part.rows.column(0).to_pylist()) for part in second.parts
    ]
    assert len(first.parts) == 4


def test_nulls_dates_and_the_ends_of_the_calendar() -> None:
    definition = table(kind="date")
    day = partition_of(ms(datetime(2024, 1, 1)), "day")
    dates = [date(2024, 1, 1), date(2024, 1, 2), None, date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31)]
    found = Routing(definition, initial_schema(definition), [day]).split(
        batch([{"at": each, "host": "a", "n": 1} for each in dates], definition)
    )
    assert found.unroutable.to_pylist() == [False, True, True, True, True, True]
    assert found.beyond.to_pylist() == [False, False, False, False, True, False]
    assert [part.name for part in found.absent] == ["p00010101", "p19691231", "p20240102"]
    assert [part.rows.num_rows for part in found.parts] == [1]


def test_a_batch_that_lacks_what_decides_is_refused() -> None:
    definition = table()
    routing = Routing(definition, initial_schema(definition), [PartitionRange(0, 1, "p")])
    with pytest.raises(DefinitionError, match="lacks the column at"):
        routing.split(pa.record_batch({"host": ["a"]}))

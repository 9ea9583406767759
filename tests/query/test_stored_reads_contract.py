"""One answer to a statement on a stored table: by the work of its nodes, by rows, and by a plain recount.

The tables have all three models, and are loaded, deleted from and compacted between the statements. The seed
is the test's parameter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rtolap.base.errors import RtolapError
from rtolap.columnar.pushed_schema import rows_schema
from rtolap.model.stored.table import Buckets, RangePartitions, StoredColumn, StoredTable, TableModel
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.query.statement_service import QueryService
from rtolap.stored.engine import group_rows, top_rows
from rtolap.stored.engine.rows.columns import DELETE_SIGN

from tests.support.query.query_world import QueryWorld
from tests.support.query.random_stored_statements import (
    TYPES,
    VALUES,
    StoredStatement,
    comparable,
    same,
    statement,
)
from tests.support.seeds import notices, so_many
from tests.support.stored.stored_world import StoredWorld
from tests.support.stored.tablet_run import small_settings

MODELS: tuple[TableModel, ...] = ("duplicate", "aggregate", "unique")
SEEDS = so_many(4, 10)
ROUNDS, STATEMENTS, ROWS = 3, 4, 150
FUNCTIONS = {
    "big": "SUM",
    "text": "MAX",
    "flag": "REPLACE",
    "number": "REPLACE",
    "price": "SUM",
    "sold": "MIN",
    "wide": "REPLACE_IF_NOT_NULL",
}
Row = dict[str, Any]


@pytest.fixture(scope="module")
def stored() -> Iterator[StoredWorld]:
    with StoredWorld(replication=1, settings=small_settings(random.Random(1))) as made:
        yield made


@pytest.fixture(scope="module")
def asked(world: QueryWorld, stored: StoredWorld) -> Iterator[QueryService]:
    service = world.service(stored=stored.source)
    yield service
    service.close()


def table_of(model: TableModel, name: str, types: dict[str, str] = TYPES) -> StoredTable:
    functions = FUNCTIONS if model == "aggregate" else {}
    return StoredTable(
        database="shop",
        name=name,
        model=model,
        columns=tuple(
            StoredColumn(column, kind, nullable=column not in ("id", "day"), aggregate=functions.get(column))  # type: ignore[arg-type]
            for column, kind in types.items()
        ),
        keys=("id", "day"),
        partitions=RangePartitions("day", ahead=0),
        buckets=Buckets(2, ("id",)),
    )


class Held:
    """What the table holds, a row at a time in Python."""

    def __init__(self, model: TableModel) -> None:
        self._model = model
        self._rows: dict[tuple[Any, ...], Row] = {}

    def load(self, rows: list[Row]) -> None:
        for row in rows:
            key = (row["id"], row["day"]) if self._model != "duplicate" else (len(self._rows),)
            known = self._rows.get(key)
            if row.get(DELETE_SIGN):
                self._rows.pop(key, None)
            elif known is None or self._model == "unique":
                self._rows[key] = {name: row[name] for name in TYPES}
            else:
                self._rows[key] = {name: _merged(name, known[name], row[name]) for name in TYPES}

    def rows(self) -> list[Row]:
        return list(self._rows.values())


def _merged(name: str, old: Any, new: Any) -> Any:
    function = FUNCTIONS.get(name)
    if function is None or (function != "REPLACE" and new is None):
        return old
    if function.startswith("REPLACE") or old is None:
        return new
    match function:
        case "SUM":
            return old + new
        case "MIN":
            return min(old, new)
    return max(old, new, key=lambda value: value.encode() if isinstance(value, str) else value)


def random_rows(rng: random.Random, model: TableModel) -> list[Row]:
    rows = [{name: rng.choice(values) for name, values in VALUES.items()} for _ in range(ROWS)]
    if model == "unique" and rng.random() < 0.7:
        for row in rows:
            row[DELETE_SIGN] = rng.random() < 0.25
    return rows


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("model", MODELS)
def test_nodes_rows_and_a_recount_answer_alike(
    asked: QueryService, stored: StoredWorld, model: TableModel, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compare(asked, stored, model, seed, monkeypatch)


def test_the_comparison_notices_nan_with_a_sign_that_is_the_smallest(
    asked: QueryService, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (group_rows, top_rows):
        monkeypatch.setattr(module, "ordered_doubles", _ordered_by_bits)
    assert notices(
        lambda seed: _compare(asked, stored, "duplicate", seed, monkeypatch), 8, "number", seeds=40
    )


def test_the_comparison_notices_nan_that_is_left_out(
    asked: QueryService, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = group_rows.ordered_doubles

    def without_nan(column: pa.Array) -> pa.Array:
        return ordered(pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column))

    for module in (group_rows, top_rows):
        monkeypatch.setattr(module, "ordered_doubles", without_nan)
    assert notices(
        lambda seed: _compare(asked, stored, "duplicate", seed, monkeypatch), 0, "number", seeds=40
    )


def _ordered_by_bits(column: pa.Array) -> pa.Array:
    """Return what `ordered_doubles` would without a look at NaN."""
    doubles = np.array(column.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
    bits = doubles.view(np.int64)
    numbers = bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFF_FFFF_FFFF_FFFF))
    return pa.array(numbers, mask=column.is_null().to_numpy(zero_copy_only=False))


def _compare(
    asked: QueryService, stored: StoredWorld, model: TableModel, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Load, delete, compact and ask, by the seed. Raises AssertionError with the statement that differs."""
    rng = random.Random(f"{model} {seed}")
    if seed % 2:  # groups that do not fit, and sums that are sent early
        for module in (group_rows, top_rows):
            monkeypatch.setattr(module, "BATCH_ROWS", rng.choice((1, 7, 40)))
        monkeypatch.setattr(group_rows, "GROUPS_MAX", rng.choice((1, 5, 50)))
    name = TableName("shop", f"{model}_{seed}_{len(stored.source.scanned)}")
    info = stored.catalogue.create_table(table_of(model, name.name))
    held = Held(model)
    for _ in range(ROUNDS):
        for _ in range(rng.randint(1, 4)):
            rows = random_rows(rng, model)
            stored.load(name, rows)
            held.load(rows)
        if rng.random() < 0.5:
            stored.compact(name)
        with duckdb.connect() as oracle:
            schema = rows_schema(info.schema, tuple(TYPES))
            oracle.register("held", pa.Table.from_pylist(held.rows(), schema))
            for _ in range(STATEMENTS):
                _check(asked, oracle, f"{name.db}.{name.name}", statement(rng))
    stored.catalogue.drop_table(name.db, name.name)


def _check(
    asked: QueryService, oracle: duckdb.DuckDBPyConnection, table: str, drawn: StoredStatement
) -> None:
    text = drawn.by_nodes.format(t=table)
    pushed = asked.execute(text).table()
    by_rows = asked.execute(drawn.by_rows.format(t=table)).table()
    assert pushed.schema == by_rows.schema, text
    recount = oracle.execute(drawn.recount).fetchall()
    answers = [
        comparable(rows, drawn.keys, is_ordered=drawn.is_ordered)
        for rows in (_tuples(pushed), _tuples(by_rows), recount)
    ]
    assert same(answers[0], answers[1]), text
    assert same(answers[0], answers[2]), text


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_most_drawn_statements_are_work_of_the_nodes(asked: QueryService, stored: StoredWorld) -> None:
    info = stored.catalogue.create_table(table_of("unique", "drawn"))
    stored.load(TableName("shop", "drawn"), random_rows(random.Random(3), "unique"))
    rng, found = random.Random(4), {"partials": 0, "top": 0, "rows": 0}
    for _ in range(60):
        drawn = statement(rng)
        stored.source.scanned.clear()
        asked.execute(drawn.by_nodes.format(t=f"shop.{info.name}")).table()
        for _, request in stored.source.scanned[:1]:
            kind = "partials" if request.partials else "top" if request.top else "rows"
            found[kind] += 1
    assert found["partials"] > 30
    assert found["top"] > 5
    assert found["rows"] < 15


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_a_sum_beyond_38_digits_is_the_same_error(
    asked: QueryService, stored: StoredWorld, rows: int
) -> None:
    name = TableName("shop", f"large_{rows}")
    types = {"id": "int", "day": "date", "wide": "decimal(38,0)"}
    stored.catalogue.create_table(table_of("duplicate", name.name, types))
    largest = Decimal(10**38 - 1)
    days = VALUES["day"]
    for at in range(rows):
        stored.load(name, [{"id": at, "day": days[at % 2], "wide": largest}])
    stored.load(name, [{"id": 50, "day": days[0], "wide": None}])
    outcomes = []
    for source in (f"shop.{name.name}", f"shop.{name.name} join (select 1 as one) as beside"):
        try:
            outcomes.append(asked.execute(f"select sum(wide) s from {source}").table().to_pylist())
        except RtolapError as error:
            outcomes.append([{"error": type(error)}])
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0] == [{"s": largest}]) == (rows == 1)


def test_sums_of_the_largest_whole_numbers_do_not_wrap(asked: QueryService, stored: StoredWorld) -> None:
    name = TableName("shop", "whole")
    types = {"id": "int", "day": "date", "big": "bigint"}
    stored.catalogue.create_table(table_of("duplicate", name.name, types))
    day = VALUES["day"][0]
    stored.load(name, [{"id": at % 2, "day": day, "big": 2**63 - 1} for at in range(500)])
    stored.load(name, [{"id": at % 2, "day": day, "big": -(2**63)} for at in range(100)])
    found = asked.execute(f"select id, sum(big) s, avg(big) a from shop.{name.name} group by id").table()
    expected = 250 * (2**63 - 1) - 50 * 2**63
    assert {row["id"]: int(row["s"]) for row in found.to_pylist()} == {0: expected, 1: expected}


def test_a_table_without_rows_has_one_row_of_aggregates(asked: QueryService, stored: StoredWorld) -> None:
    stored.catalogue.create_table(table_of("aggregate", "empty"))
    found = asked.execute("select count(*) n, count(id) c, sum(id) s, min(text) m from shop.empty").table()
    assert found.to_pylist() == [{"n": 0, "c": 0, "s": None, "m": None}]
    grouped = asked.execute("select id, count(*) n from shop.empty group by id").table()
    assert grouped.to_pylist() == []


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
def test_nan_and_both_zeros_compare_on_nodes_as_in_the_engine(
    asked: QueryService, stored: StoredWorld, operator: str
) -> None:
    name = TableName("shop", f"doubles_{len(stored.catalogue.tables())}")
    types = {"id": "int", "day": "date", "number": "double"}
    info = stored.catalogue.create_table(table_of("duplicate", name.name, types))
    values = VALUES["number"]
    stored.load(
        name, [{"id": at, "day": VALUES["day"][at % 2], "number": each} for at, each in enumerate(values * 3)]
    )
    with duckdb.connect() as oracle:
        rows = [{"id": at, "day": VALUES["day"][0], "number": each} for at, each in enumerate(values * 3)]
        oracle.register("held", pa.Table.from_pylist(rows, rows_schema(info.schema, tuple(types))))
        for constant in ("0", "-0.0", "1.5", "-2.25", "1e300"):
            for where in (f"number {operator} {constant}", f"not (number {operator} {constant})"):
                text = f"select count(*) n, min(number) low, max(number) high from {{t}} where {where}"
                found = asked.execute(text.format(t=f"{name.db}.{name.name}")).table()
                expected = oracle.execute(text.format(t="held")).fetchall()
                assert same(_tuples(found), expected), where

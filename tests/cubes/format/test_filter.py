"""Filters against three-valued logic in plain Python, on tables and through fragments."""

import random
import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from rtolap.base.errors import QueryError
from rtolap.columnar.filter import mask
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables, to_plain
from rtolap.cubes.format.fragment import Fragment, open_fragment, write_fragment
from rtolap.model.cube import Schema
from rtolap.model.predicate import And, Compare, In, IsNull, Like, Not, Or, Predicate

from tests.cubes.format.conftest import CUBE, TABLE, events

_OPS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def slow(row: dict[str, Any], predicate: Predicate) -> bool | None:
    match predicate:
        case And(terms=terms):
            found = [slow(row, term) for term in terms]
            return False if False in found else None if None in found else True
        case Or(terms=terms):
            found = [slow(row, term) for term in terms]
            return True if True in found else None if None in found else False
        case Not(term=term):
            value = slow(row, term)
            return None if value is None else not value
        case IsNull(column=name, negated=negated):
            return (row[name] is None) != negated
        case Compare(column=name, op=op, value=value):
            if row[name] is None or value is None:
                return None
            return _OPS[op](*_alike(row[name], value))
        case In(column=name, values=values, negated=negated):
            if row[name] is None:
                return None if values else negated
            return any(_OPS["eq"](*_alike(row[name], value)) for value in values) != negated
        case Like(column=name, pattern=pattern, negated=negated):
            if row[name] is None:
                return None
            regex = "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern)
            return (re.fullmatch(regex, row[name], re.DOTALL) is not None) != negated


def _alike(mine: Any, value: Any) -> tuple[Any, Any]:
    if isinstance(mine, bool) or not isinstance(mine, (str, datetime, date, int, float, Decimal)):
        return mine, value
    if isinstance(mine, str):
        return mine.encode(), value.encode()
    if isinstance(mine, datetime):
        return mine, datetime.fromisoformat(value)
    if isinstance(mine, date):
        return mine, date.fromisoformat(value)
    return Decimal(mine), Decimal(str(value))


def _random_predicate(rng: random.Random, depth: int = 3) -> Predicate:
    if depth and rng.random() < 0.5:
        terms = tuple(_random_predicate(rng, depth - 1) for _ in range(rng.randrange(1, 4)))
        combined: list[Predicate] = [And(terms), Or(terms), Not(terms[0])]
        return rng.choice(combined)
    values: dict[str, list[Any]] = {
        "city": ["", "Oslo", "Æ", "Quito", "a", "zz"],
        "code": [-(2**31), 0, 2**31 - 1, 0.5, -1.5, 2**40, -(2**70), "7.5"],
        "day": ["2013-01-01", "2013-01-02", "2013-01-05"],
        "ok": [True, False],
        "hour_start": ["2013-01-01 05:00:00.000000", "2013-01-01 06:00:00", "2012-01-01"],
        "big__sum": ["0", 2**63, -(2**80), 1.5, "-7", "1e60"],
        "price__sum": ["0.00", "0.001", 12.345, "1e50", -3],
        "rate__min": [0.125, 0.1, -125, 2**70],
        "__rows": [1, 2, 1.5],
    }
    name = rng.choice(list(values))
    match rng.randrange(4):
        case 0:
            return IsNull(name, rng.random() < 0.5)
        case 1:
            return In(name, tuple(rng.sample(values[name], rng.randrange(0, 3))), rng.random() < 0.3)
        case 2 if name == "city":
            return Like(name, rng.choice(["%", "O%", "_", "%o", "Qui_o", "", "a.c"]), rng.random() < 0.5)
    value = rng.choice([*values[name], None])
    ops = ["eq", "ne"] if isinstance(value, bool) else list(_OPS)
    return Compare(name, rng.choice(ops), value)  # type: ignore[arg-type]


class Drawn(NamedTuple):
    """Events rolled up: as a receiver keeps them, as history does, as rows of Python, and in a fragment."""

    table: pa.Table
    plain: pa.Table
    rows: list[dict[str, Any]]
    fragment: Fragment


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """One for all predicates, of which none changes it."""
    schema = Schema(TABLE, CUBE)
    table = merge_tables(schema, list(aggregate_events(schema, events(4, 400)).values()))
    plain = to_plain(schema, table)
    folder = tmp_path_factory.mktemp("drawn")
    write_fragment(folder, "f", table, schema)
    return Drawn(table, plain, plain.to_pylist(), open_fragment(folder / "f.fragment", verify=True))


@pytest.mark.parametrize("seed", range(40))
def test_random_filters_keep_what_sql_keeps(schema: Schema, drawn: Drawn, seed: int) -> None:
    rng = random.Random(seed)
    table, plain, rows, fragment = drawn
    for _ in range(15):
        predicate = _random_predicate(rng)
        wanted = [slow(row, predicate) is True for row in rows]
        assert mask(table, predicate).to_pylist() == wanted, predicate
        assert mask(plain, predicate).to_pylist() == wanted, predicate
        selection = fragment.select(predicate)
        assert selection.rows_scanned + selection.rows_pruned == len(rows)
        assert to_plain(schema, selection.table).equals(plain.filter(pa.array(wanted, pa.bool_()))), predicate


@pytest.mark.parametrize(
    "predicate",
    [
        Compare("nothing", "eq", 1),
        Compare("city", "eq", 1),
        Compare("code", "lt", "x"),
        Compare("ok", "eq", 1),
        Compare("day", "eq", "yesterday"),
        Compare("__rows", "eq", True),
        Like("code", "1%"),
    ],
)
def test_what_does_not_compare_is_a_query_error(drawn: Drawn, predicate: Predicate) -> None:
    with pytest.raises(QueryError):
        mask(drawn.table, predicate)


def test_like_sees_no_escape_characters_and_crosses_lines() -> None:
    table = pa.table({"s": ["a%b", "a\\%b", "a\nb", "a+b", None]})
    assert mask(table, Like("s", "a\\%b")).to_pylist() == [False, True, False, False, False]
    assert mask(table, Like("s", "a_b")).to_pylist() == [True, False, True, True, False]
    assert mask(table, Like("s", "a+b")).to_pylist() == [False, False, False, True, False]
    assert mask(pa.table({"s": ["a\n"]}), Like("s", "a")).to_pylist() == [False]


def test_both_zeros_are_in_a_list_with_one_of_them() -> None:
    table = pa.table({"x": pa.array([0.0, -0.0, 1.0, None])})
    for zero in (0.0, -0.0):
        assert mask(table, In("x", (zero, 5.0))).to_pylist() == [True, True, False, False]
        assert mask(table, In("x", (zero,), negated=True)).to_pylist() == [False, False, True, False]

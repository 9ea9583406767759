"""Random statements on one stored table of all types, with conditions, NULL, NaN and both zeros.

A statement is written three times: as nodes can work on it, so that they cannot, and for a plain recount.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

TYPES = {
    "id": "int",
    "day": "date",
    "big": "bigint",
    "text": "string",
    "flag": "boolean",
    "number": "double",
    "price": "decimal(9,2)",
    "sold": "timestamp",
    "wide": "decimal(30,4)",
}
NANS = (math.nan, math.copysign(math.nan, -1.0))  # a division may give either: both are the largest
VALUES: dict[str, list[Any]] = {
    "id": list(range(30)),
    "day": [date(2024, 2, 27) + timedelta(days=at) for at in range(4)],
    "big": [None, 0, -1, 2**62, -(2**63), 2**63 - 1, 7],
    "text": [None, "", "a", "A", "ab", "ä", "zz", "50%", "a_b"],
    "flag": [None, True, False],
    "number": [None, 0.0, -0.0, 1.5, -2.25, float("inf"), float("-inf"), *NANS, 1e300],
    "price": [None, Decimal("0.00"), Decimal("-1.50"), Decimal("9999999.99"), Decimal("0.01")],
    "sold": [
        None,
        datetime(2024, 1, 1),
        datetime(2024, 1, 1, 0, 0, 0, 1),
        datetime(2023, 12, 31, 23, 59, 59),
    ],
    "wide": [None, Decimal("0.0000"), Decimal("12345678901234567890123456.7891"), Decimal("-0.0001")],
}
_KEYS = (*TYPES, "id % 3", "year(sold)", "left(text, 1)", "coalesce(flag, false)", "number > 1")
_CALLS = (
    *("count(*)", "count(1)", "min({any})", "max({any})", "count({any})", "count(distinct {any})"),
    *("sum({number})", "avg({number})", "sum(distinct id)", "avg(distinct id)", "max(id + 1)"),
    *("count(case when {any} is null then 1 end)", "min(coalesce(text, 'x'))", "sum({number}) + count(*)"),
    "count(distinct {any}, {any})",
)
_NUMBERS = ("id", "big", "price", "wide", "number")


@dataclass(frozen=True)
class StoredStatement:
    """A statement.

    Attributes:
        by_nodes: the text that nodes can work on; `{t}` is the table.
        by_rows: the same meaning, of which nodes send rows.
        recount: the same in the embedded engine's own SQL, over the relation `held`.
        keys: the number of columns that tell rows apart; the others are computed.
        is_ordered: True if the order of the rows counts.
    """

    by_nodes: str
    by_rows: str
    recount: str
    keys: int
    is_ordered: bool


def constant(rng: random.Random, column: str) -> str:
    value = rng.choice([each for each in VALUES[column] if each is not None])
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return str(value) if abs(value) < 1e9 else "1e300"  # neither language has words for NaN alike
    if isinstance(value, str | date):
        return f"'{value}'"
    return str(value)


def condition(rng: random.Random, depth: int = 2) -> str:
    pick = rng.random()
    if depth and pick < 0.45:
        word = rng.choice([" and ", " or "])
        return "(" + word.join(condition(rng, depth - 1) for _ in range(rng.randint(2, 3))) + ")"
    if depth and pick < 0.55:
        return f"not ({condition(rng, depth - 1)})"
    column = rng.choice(list(TYPES))
    if pick < 0.65:
        return f"{column} is {rng.choice(['', 'not '])}null"
    if pick < 0.75:
        values = ", ".join(constant(rng, column) for _ in range(rng.randint(1, 3)))
        return f"{column} {rng.choice(['', 'not '])}in ({values})"
    if pick < 0.8:
        return f"text {rng.choice(['', 'not '])}like '{rng.choice(['a%', '%b', '_', '%', '50%'])}'"
    if pick < 0.85 and column not in ("flag", "text"):
        return f"{column} between {constant(rng, column)} and {constant(rng, column)}"
    operator = rng.choice(["=", "<>", "<", "<=", ">", ">="])
    left, right = column, constant(rng, column)
    return f"{left} {operator} {right}" if rng.random() < 0.8 else f"{right} {operator} {left}"


def statement(rng: random.Random) -> StoredStatement:
    where = f" where {condition(rng)}" if rng.random() < 0.7 else ""
    if where and rng.random() < 0.3:  # which nodes cannot judge
        where += " and coalesce(text, '') <> 'zz'"
    if rng.random() < 0.25:
        return _doubles(rng, where)
    pick = rng.random()
    if pick < 0.6:
        return _grouped(rng, where)
    return _distinct(rng, where) if pick < 0.75 else _first(rng, where)


def _grouped(rng: random.Random, where: str) -> StoredStatement:
    keys = rng.sample(_KEYS, rng.choice((0, 1, 1, 2, 3)))
    calls = [_call(rng) for _ in range(rng.randint(1, 4))]
    shown = ", ".join([*(f"{key} k{at}" for at, key in enumerate(keys)), *_named(calls)])
    counted = shown.replace(", {any})", ")")
    group = f" group by {', '.join(keys)}" if keys else ""
    if keys and rng.random() < 0.2 and "distinct" not in shown:
        group += " with rollup"
    having = f" having count(*) > {rng.randint(1, 4)}" if keys and rng.random() < 0.3 else ""
    recount_group = group.replace(" with rollup", "")
    if "rollup" in group:
        recount_group = f" group by rollup ({', '.join(keys)})"
    text = f"select {counted} from {{t}}{where}{group}{having}"
    recount = f"select {_recounted(counted)} from held{where}{recount_group}{having}"
    return _written(text, recount, len(keys), is_ordered=False)


def _doubles(rng: random.Random, where: str) -> StoredStatement:
    """Return a statement in which the order of doubles counts, or which of them are one group."""
    pick = rng.random()
    if pick < 0.3:
        return _ordered(rng, where, ["number", *rng.sample(("id", "text"), 1)])
    if pick < 0.5:
        return _grouped_by(where, ["number"], ["count(*)", "min(id)", "max(number)"])
    key = rng.choice(("id", "day", "id % 3", "text", "number"))
    return _grouped_by(where, [key], ["min(number)", "max(number)", "count(distinct number)"])


def _grouped_by(where: str, keys: list[str], calls: list[str]) -> StoredStatement:
    shown = ", ".join([*(f"{key} k{at}" for at, key in enumerate(keys)), *_named(calls)])
    rest = f"{where} group by {', '.join(keys)}"
    text, recount = f"select {shown} from {{t}}{rest}", f"select {shown} from held{rest}"
    return _written(text, recount, len(keys), is_ordered=False)


def _distinct(rng: random.Random, where: str) -> StoredStatement:
    columns = rng.sample(list(TYPES), rng.randint(1, 3))
    text = f"select distinct {', '.join(columns)} from {{t}}{where}"
    return _written(text, text.format(t="held"), len(columns), is_ordered=False)


def _first(rng: random.Random, where: str) -> StoredStatement:
    return _ordered(rng, where, rng.sample(list(TYPES), rng.randint(1, 4)))


def _ordered(rng: random.Random, where: str, columns: list[str]) -> StoredStatement:
    order = [(name, rng.random() < 0.5) for name in columns]
    ordered = ", ".join(f"{name}{' desc' if down else ''}" for name, down in order)
    explicit = ", ".join(f"{name} {'desc nulls last' if down else 'asc nulls first'}" for name, down in order)
    limit = f" limit {rng.choice((0, 1, 5, 40, 500))}"
    if rng.random() < 0.4:
        limit += f" offset {rng.choice((0, 1, 7, 60))}"
    text = f"select {', '.join(columns)} from {{t}}{where}"
    return _written(
        f"{text} order by {ordered}{limit}",
        f"{text.format(t='held')} order by {explicit}{limit}",
        len(columns),
        is_ordered=True,
    )


def _written(text: str, recount: str, keys: int, *, is_ordered: bool) -> StoredStatement:
    by_rows = text.replace("{t}", "{t} join (select 1 as one) as beside")
    return StoredStatement(text, by_rows, recount, keys, is_ordered)


def _call(rng: random.Random) -> str:
    call = rng.choice(_CALLS)
    while "{any}" in call:
        call = call.replace("{any}", rng.choice(list(TYPES)), 1)
    return call.replace("{number}", rng.choice(_NUMBERS))


def _named(calls: list[str]) -> list[str]:
    return [f"{call} c{at}" for at, call in enumerate(calls)]


def _recounted(shown: str) -> str:
    """Write COUNT(DISTINCT a, b) as the embedded engine needs it."""
    pieces = shown.split("count(distinct ")
    for at, piece in enumerate(pieces[1:], start=1):
        inside, _, rest = piece.partition(")")
        names = inside.split(", ")
        if len(names) > 1:
            lacks = " or ".join(f"{name} is null" for name in names)
            inside = f"case when {lacks} then null else row({inside}) end"
        pieces[at] = f"{inside}){rest}"
    return "count(distinct ".join(pieces)


def comparable(rows: list[tuple[Any, ...]], keys: int, *, is_ordered: bool) -> list[tuple[Any, ...]]:
    """Return rows that can be compared with `same`: in an order of their own unless theirs counts."""
    if is_ordered:
        return rows
    return sorted(rows, key=lambda row: ([_sortable(value) for value in row[:keys]], repr(row)))


def same(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    """Tell whether the rows are equal. Doubles may differ in their last digits, as sums of them have no
    defined order."""
    return len(left) == len(right) and all(
        len(a) == len(b) and all(_equal(*pair) for pair in zip(a, b, strict=True))
        for a, b in zip(left, right, strict=True)
    )


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right or math.isclose(left, right, rel_tol=1e-12)
    return bool(left == right)


def _sortable(value: Any) -> tuple[int, str]:
    if value is None:
        return 0, ""
    if isinstance(value, float):
        return 1, "nan" if math.isnan(value) else repr(value + 0.0)
    return 1, repr(value)

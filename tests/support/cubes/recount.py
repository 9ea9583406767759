"""The plain recount: one event at a time, in Python, sharing no code with what it checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.support.aggregates.sets import numbers_of
from tests.support.cubes.builders import DIMENSIONS, PARTIALS, Event

Key = tuple[Any, ...]
Row = tuple[Any, ...]  # in the order of PARTIALS; then, where they are asked for, the distinct visitors
Answer = dict[Key, Row]

VISITORS = "visitor__hll"
VALUES = "COUNT(*), SUM(amount), COUNT(amount), MIN(amount), MAX(amount), SUM(price), COUNT(DISTINCT amount)"
"""The SQL of PARTIALS."""
_AMOUNTS = PARTIALS.index("amount__value_set")


def _or(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Treat nulls as SQL's aggregates do."""

    def combined(left: Any, right: Any) -> Any:
        if left is None or right is None:
            return left if right is None else right
        return choose(left, right)

    return combined


_SUM, _MIN, _MAX = _or(lambda left, right: left + right), _or(min), _or(max)
_UNION = _or(lambda left, right: left | right)
_MERGES = (_SUM, _SUM, _SUM, _MIN, _MAX, _SUM, _UNION, _UNION)


def combine(left: Row, right: Row) -> Row:
    return tuple(merge(a, b) for merge, a, b in zip(_MERGES, left, right, strict=False))


def row_of(event: Event, *, visitors: bool = False) -> Row:
    amount = event.amount
    distinct = None if amount is None else frozenset({amount})
    row: Row = (1, amount, int(amount is not None), amount, amount, event.price, distinct)
    return (*row, frozenset({event.visitor} - {None, ""})) if visitors else row


def recount(events: Iterable[Event], *, visitors: bool = False) -> Answer:
    found: Answer = {}
    for event in events:
        merge_into(found, {(event.kind, event.place): row_of(event, visitors=visitors)})
    return found


def counted(answer: Answer) -> Answer:
    """Return the answer with the number of distinct amounts in their place, as SQL has it."""
    return {key: counted_row(row) for key, row in answer.items()}


def counted_row(row: Row) -> Row:
    return (*row[:_AMOUNTS], len(row[_AMOUNTS] or ()), *row[_AMOUNTS + 1 :])


def merge_into(found: Answer, more: Mapping[Key, Row]) -> None:
    for key, row in more.items():
        found[key] = combine(found[key], row) if key in found else row


def from_table(table: pa.Table) -> Answer:
    """Return the answer of a plain table with DIMENSIONS and PARTIALS; finer rows are merged.

    Sketches, where there are any, are kept as the set of their images.
    """
    sketches = VISITORS in table.column_names
    columns = [*DIMENSIONS, *PARTIALS, *([VISITORS] if sketches else [])]
    found: Answer = {}
    for line in table.select(columns).to_pylist():
        values: Row = tuple(_value(line[name]) for name in PARTIALS)
        if sketches:
            values = (*values, frozenset({line[VISITORS]}))
        merge_into(found, {tuple(line[name] for name in DIMENSIONS): values})
    return found


def _value(value: Any) -> Any:
    """Return a number as Python adds it up, and a set of amounts as a set of numbers."""
    if isinstance(value, bytes):
        return numbers_of(value)
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value

"""The plain recount: one event at a time, in Python, sharing no code with what it checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.support.cubes.builders import DIMENSIONS, PARTIALS, Event

Key = tuple[Any, ...]
Row = tuple[Any, ...]  # in the order of PARTIALS; then, where they are asked for, the distinct visitors
Answer = dict[Key, Row]

VISITORS = "visitor__hll"


def _or(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Treat nulls as SQL's aggregates do."""

    def combined(left: Any, right: Any) -> Any:
        if left is None or right is None:
            return left if right is None else right
        return choose(left, right)

    return combined


_SUM, _MIN, _MAX = _or(lambda left, right: left + right), _or(min), _or(max)
_UNION = _or(lambda left, right: left | right)
_MERGES = (_SUM, _SUM, _SUM, _MIN, _MAX, _SUM, _UNION)


def combine(left: Row, right: Row) -> Row:
    return tuple(merge(a, b) for merge, a, b in zip(_MERGES, left, right, strict=False))


def row_of(event: Event, *, visitors: bool = False) -> Row:
    amount = event.amount
    row: Row = (1, amount, int(amount is not None), amount, amount, event.price)
    return (*row, frozenset({event.visitor} - {None, ""})) if visitors else row


def recount(events: Iterable[Event], *, visitors: bool = False) -> Answer:
    found: Answer = {}
    for event in events:
        merge_into(found, {(event.kind, event.place): row_of(event, visitors=visitors)})
    return found


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
        values: Row = tuple(_number(line[name]) for name in PARTIALS)
        if sketches:
            values = (*values, frozenset({line[VISITORS]}))
        merge_into(found, {tuple(line[name] for name in DIMENSIONS): values})
    return found


def _number(value: Any) -> Any:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value

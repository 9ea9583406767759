"""The plain recount: one event at a time, in Python, sharing no code with what it checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from rtolap.testing.builders import DIMENSIONS, PARTIALS, Event

Key = tuple[Any, ...]
Row = tuple[Any, ...]  # in the order of PARTIALS
Answer = dict[Key, Row]


def _add(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return left if right is None else right
    return left + right


def _pick(choose: Any, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return left if right is None else right
    return choose(left, right)


def combine(left: Row, right: Row) -> Row:
    rows, total, count, low, high, price = zip(left, right, strict=True)
    return (
        _add(*rows),
        _add(*total),
        _add(*count),
        _pick(min, *low),
        _pick(max, *high),
        _add(*price),
    )


def row_of(event: Event) -> Row:
    price = None if event.price is None else event.price
    amount = event.amount
    return (1, amount, int(amount is not None), amount, amount, price)


def recount(events: Iterable[Event]) -> Answer:
    found: Answer = {}
    for event in events:
        merge_into(found, {(event.kind, event.place): row_of(event)})
    return found


def merge_into(found: Answer, more: Mapping[Key, Row]) -> None:
    for key, row in more.items():
        found[key] = combine(found[key], row) if key in found else row


def from_table(table: pa.Table) -> Answer:
    """A plain table with DIMENSIONS and PARTIALS → an answer; finer rows are merged."""
    found: Answer = {}
    for line in table.select([*DIMENSIONS, *PARTIALS]).to_pylist():
        values = tuple(_number(line[name]) for name in PARTIALS)
        merge_into(found, {tuple(line[name] for name in DIMENSIONS): values})
    return found


def _number(value: Any) -> Any:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value

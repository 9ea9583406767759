"""The values at each path of records: types, how many, how often none."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from rtolap.model.formats.record_format import RecordFormat
from rtolap.project.records import Record

DEPTH_MAX = 8
_BIGINT = 1 << 63
_WIDE = 10**38


@dataclass
class Leaf:
    """The values of records at one path.

    Attributes:
        steps: names from the outside inwards.
        kinds: of the values that are not null, see `kind_of`.
        values: of each record that has one, in order.
        records: that hold a value here which is not null.
    """

    steps: tuple[str, ...]
    kinds: set[str] = field(default_factory=set)
    values: list[Any] = field(default_factory=list)

    @property
    def records(self) -> int:
        return len(self.values)

    def distinct(self) -> int:
        return len({str(each) for each in self.values})


class Sample(NamedTuple):
    """The records that can be read, and what is in them.

    Attributes:
        format: of the table.
        leaves: by path, in the order of the records.
        types: types of columns that a schema declares, by path; of others the values say it.
        sound: the records that are read.
        left_out: path and reason of what a schema has and no column can hold.
        broken_as: what the other records are not.
    """

    format: RecordFormat
    leaves: list[Leaf]
    types: dict[tuple[str, ...], str]
    sound: list[Record]
    left_out: list[tuple[str, str]]
    broken_as: str


def parse_records(values: Iterable[bytes | None]) -> list[dict[str, Any] | None]:
    """Return the object of each record, and None for one that is no JSON object."""
    return [_parsed(value) for value in values]


def _parsed(value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        parsed = json.loads(value.decode(), parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError, InvalidOperation):
        return None  # it is counted as broken, and the table refuses it too
    return parsed if isinstance(parsed, dict) else None


def _refuse(text: str) -> None:
    raise ValueError(text)


def leaves_of(records: Iterable[dict[str, Any]]) -> list[Leaf]:
    """Return what stands at each path, in the order in which the records bring them."""
    found: dict[tuple[str, ...], Leaf] = {}
    for record in records:
        _visit(record, (), found)
    return list(found.values())


def _visit(value: dict[str, Any], at: tuple[str, ...], found: dict[tuple[str, ...], Leaf]) -> None:
    for name, inner in value.items():
        steps = (*at, name)
        if isinstance(inner, dict) and len(steps) < DEPTH_MAX:
            if steps in found:
                found[steps].kinds.add("object")
            _visit(inner, steps, found)
            found.setdefault(steps, Leaf(steps)).kinds.add("object")
            continue
        leaf = found.setdefault(steps, Leaf(steps))
        if inner is not None:
            leaf.kinds.add(kind_of(inner))
            leaf.values.append(inner)


def kind_of(value: Any) -> str:
    """Return JSON's word for the kind of a value, and `time` for a date or a point in time."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, date):
        return "time"
    if isinstance(value, Decimal | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def column_type(leaf: Leaf) -> str | None:
    """Return the narrowest type that takes all values of the leaf; None where no type does."""
    if leaf.kinds in ({"boolean"}, {"string"}):
        return next(iter(leaf.kinds))
    if leaf.kinds == {"integer"}:
        if all(-_BIGINT <= each < _BIGINT for each in leaf.values):
            return "bigint"
        return "decimal(38,0)" if all(abs(each) < _WIDE for each in leaf.values) else None
    return "double" if leaf.kinds in ({"number"}, {"integer", "number"}) else None

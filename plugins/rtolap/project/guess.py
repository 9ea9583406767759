"""A table and a cube for the records of a topic, with the reasons, and proof that no record is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rtolap.base.errors import DefinitionError
from rtolap.events.decode import EventDecoder
from rtolap.model.cube import TIME_UNITS, Cube, Measure, Schema
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.project.records import Record
from rtolap.project.times import PATTERNS, TimeGuess, time_guesses
from rtolap.project.values import Leaf, column_type, leaves_of, parse_records

COLUMNS_MAX = 200
DIMENSIONS_MAX = 12  # each one multiplies the rows of a cube; more is a decision
MEASURED_MAX = 20
_DIMENSION_VALUES_MAX = 100
_NAME_CHARS_MAX = 60  # room for a number behind it
_NO_STEP = re.compile(r"[\x00-\x1f\x7f.\[\]$\"\\]")  # what paths mean otherwise, and what no reader takes
_ID = re.compile(r"(^|_)(id|uuid|code|number|no|key|zip|port|year)$")
_EXPECTED = (
    "a path in every record with epoch seconds, milliseconds or microseconds, ISO 8601, or one of "
    + ", ".join(PATTERNS)
)


class Guess(NamedTuple):
    """What is declared, and why.

    Attributes:
        reasons: by column, why it is as it is.
        left_out: path and reason of what is no column.
        time_reason: why this is the event time.
        looked_at: records of the sample.
        broken: of these, no JSON objects: the table refuses them.
    """

    table: Table
    cube: Cube
    reasons: dict[str, str]
    left_out: list[tuple[str, str]]
    time_reason: str
    looked_at: int
    broken: int


def guess(
    topic: str, records: Sequence[Record], *, now_ms: int, time_path: str = "", time_format: str = ""
) -> Guess:
    """Return the definitions.

    time_path, time_format: the event time, where somebody knows it; empty: it is guessed. Raises
    DefinitionError where no record is an object, or none of its paths can be the event time.
    """
    parsed = parse_records(record.value for record in records)
    objects = [each for each in parsed if each is not None]
    if not objects:
        raise DefinitionError(
            f"no record of topic {topic} is a JSON object",
            expected="JSON objects",
            found=f"{len(records)} records, the first begins with {(records[0].value or b'')[:40]!r}",
            action="declare the table by hand: docs/definitions/record_formats.md names the other formats",
        )
    leaves = leaves_of(objects)
    columns, reasons, left_out, leaf_of = _columns(leaves, len(objects))
    usable = {leaf.steps: name for name, leaf in leaf_of.items()}
    leaf_column = {column.name: column for column in columns}
    candidates = [
        each
        for each in time_guesses(leaves, len(objects), (time_format,) if time_format else ())
        if each.leaf.steps in usable and (not time_path or ".".join(each.leaf.steps) == time_path)
    ]
    sound = [record for record, value in zip(records, parsed, strict=True) if value is not None]
    refused = ""
    for candidate in candidates:
        time = TimeColumn(usable[candidate.leaf.steps], candidate.format)
        refused = _refused(_table(topic, [leaf_column[time.column]], time), sound, now_ms)
        if refused:
            continue
        table = _table(topic, columns, time)
        if _refused(table, sound, now_ms):
            table, unfit = _without_unfit(table, sound, now_ms)
            left_out += unfit
        cube = _cube(table, leaf_of, len(objects), reasons)
        broken = len(records) - len(objects)
        return Guess(table, cube, reasons, left_out, candidate.reason, len(records), broken)
    raise _no_time(topic, leaves, candidates, refused, time_path)


def _table(topic: str, columns: Sequence[Column], time: TimeColumn) -> Table:
    return Table(name=plain_name(topic, ()), topic=topic, columns=tuple(columns), time=time)


def _without_unfit(
    table: Table, records: Sequence[Record], now_ms: int
) -> tuple[Table, list[tuple[str, str]]]:
    """Return the table without the columns that refuse records by themselves, and why each does.

    Raises DefinitionError where the rest still refuses one.
    """
    time = table.column(table.time.column)
    fit: list[Column] = []
    unfit: list[tuple[str, str]] = []
    for column in table.columns:
        pair = [time] if column == time else [time, column]
        why = _refused(_table(table.topic, pair, table.time), records, now_ms)
        if why:
            unfit.append((column.path or column.name, why))
        else:
            fit.append(column)
    rest = _table(table.topic, fit, table.time)
    why = _refused(rest, records, now_ms)
    if why:
        raise DefinitionError(
            f"no table was found that takes the records of topic {table.topic}",
            expected="records that the columns take which each of them takes alone",
            found=why,
            action="declare the table by hand",
        )
    return rest, unfit


def _no_time(
    topic: str, leaves: Sequence[Leaf], candidates: Sequence[TimeGuess], refused: str, time_path: str
) -> DefinitionError:
    seen = ", ".join(
        f"{'.'.join(leaf.steps)} ({'/'.join(sorted(leaf.kinds)) or 'null'})" for leaf in leaves[:20]
    )
    found = f"paths {seen}" if not candidates else f"{'.'.join(candidates[-1].leaf.steps)}, but {refused}"
    what = f"{time_path} cannot be the event time of" if time_path else "no event time was found in"
    return DefinitionError(
        f"{what} topic {topic}",
        expected=_EXPECTED,
        found=found,
        action="name it: --time-column PATH --time-format FORMAT; or declare a column of "
        "`source: timestamp`, the record's own time, by hand",
    )


def _columns(
    leaves: Sequence[Leaf], records: int
) -> tuple[tuple[Column, ...], dict[str, str], list[tuple[str, str]], dict[str, Leaf]]:
    columns: list[Column] = []
    reasons: dict[str, str] = {}
    left_out: list[tuple[str, str]] = []
    leaf_of: dict[str, Leaf] = {}
    kinds = {leaf.steps: leaf.kinds for leaf in leaves}
    for leaf in leaves:
        path = ".".join(leaf.steps)
        if leaf.kinds == {"object"}:
            continue  # its insides are columns
        why_not = _why_not(leaf, kinds, len(columns))
        if why_not:
            left_out.append((path, why_not))
            continue
        kind = column_type(leaf)
        assert kind is not None
        name = plain_name("_".join(leaf.steps), reasons)
        columns.append(Column(name, kind, path=None if path == name else path))
        absent = (
            f", {records - leaf.records} of {records} records have none" if leaf.records < records else ""
        )
        shown = "/".join(sorted(leaf.kinds))
        reasons[name] = f"{shown}, {leaf.distinct()} different values{absent}"
        leaf_of[name] = leaf
    return tuple(columns), reasons, left_out, leaf_of


def _why_not(leaf: Leaf, kinds: dict[tuple[str, ...], set[str]], taken: int) -> str:
    """Return why a path is no column; empty where it is one."""
    if not leaf.kinds:
        return "null in every record, so its type is not known"
    if any(not step or _NO_STEP.search(step) for step in leaf.steps):
        return "a name that no path can hold"
    outside = [leaf.steps[:depth] for depth in range(1, len(leaf.steps))]
    if any(kinds[each] != {"object"} for each in outside):
        return "what it stands in is no object in some records"
    if "array" in leaf.kinds:
        return "an array; an item is a column with a path such as [0]"
    if column_type(leaf) is None:
        return f"values of several types: {', '.join(sorted(leaf.kinds))}, or too large"
    return "" if taken < COLUMNS_MAX else f"more than {COLUMNS_MAX} columns"


def plain_name(text: str, taken: Sequence[str] | dict[str, str]) -> str:
    """Return a name of the product's that is close to the text, and is not taken."""
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    name = re.sub(r"[^a-z0-9]+", "_", spread).strip("_")[:_NAME_CHARS_MAX].strip("_") or "column"
    if name[0].isdigit():
        name = f"n_{name}"
    reserved = {f"{unit}_start" for unit in TIME_UNITS}
    number, free = 2, name
    while free in taken or free in reserved:
        free = f"{name}_{number}"
        number += 1
    return free


def _refused(table: Table, records: Sequence[Record], now_ms: int) -> str:
    """Return the first reason for which the table refuses a record when all of its columns are read."""
    counted = tuple(Measure("count", column.name) for column in table.columns)
    schema = Schema(table, Cube(name="all_columns", table=table.name, dimensions=(), measures=counted))
    decoded = EventDecoder(schema).decode(
        [record.value for record in records],
        np.zeros(len(records), np.int32),
        np.arange(len(records), dtype=np.int64),
        now_ms=now_ms,
        create_ms=np.array([record.create_ms for record in records], np.int64),
    )
    return f"{decoded.rejects.reason[0]}: {decoded.rejects.detail[0]}" if len(decoded.rejects) else ""


def _cube(table: Table, leaf_of: dict[str, Leaf], records: int, reasons: dict[str, str]) -> Cube:
    dimensions: list[str] = []
    measures = [Measure("count")]
    measured = 0
    for column in table.columns:
        if column.name == table.time.column:
            continue
        distinct = leaf_of[column.name].distinct()
        if not column.column_type.is_numeric:
            few = distinct <= _DIMENSION_VALUES_MAX and (distinct <= max(2, records // 2))
            if few and len(dimensions) < DIMENSIONS_MAX:
                dimensions.append(column.name)
                reasons[column.name] += "; few, so a dimension"
            elif column.type == "string" and measured < MEASURED_MAX:
                measures.append(Measure("approx_distinct", column.name))
                reasons[column.name] += "; too many for a dimension, so they are counted"
                measured += 1
        elif measured < MEASURED_MAX:
            measured += 1
            if _ID.search(column.name) and column.type != "double":
                measures.append(Measure("approx_distinct", column.name))
                reasons[column.name] += "; named like an identity, so they are counted, not summed"
            else:
                measures += [Measure(each, column.name) for each in ("sum", "min", "max")]
                reasons[column.name] += "; numbers, so they are summed"
    return Cube(
        name=f"{table.name}_cube",
        table=table.name,
        dimensions=tuple(dimensions),
        measures=tuple(measures),
    )

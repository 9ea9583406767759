"""A table and a cube for the records of a topic, with the reasons, and proof that no record is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rtolap.base.errors import DefinitionError
from rtolap.events.formats.readers import Registries, no_registries
from rtolap.model.cube import Cube, Measure
from rtolap.model.formats.record_format import FormatName, RecordFormat
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER, Column, Table, TimeColumn
from rtolap.project.names import plain_name
from rtolap.project.records import Record, read_as
from rtolap.project.sample import sample_of
from rtolap.project.times import PATTERNS, TimeGuess, time_guesses
from rtolap.project.values import Leaf, column_type

COLUMNS_MAX = 200
DEFAULT_REGISTRY = "default"
DIMENSIONS_MAX = 12  # each one multiplies the rows of a cube; more is a decision
MEASURED_MAX = 20
_DIMENSION_VALUES_MAX = 100
_NO_STEP = re.compile(r"[\x00-\x1f\x7f.\[\]$\"\\]")  # what paths mean otherwise, and what no reader takes
_ID = re.compile(r"(^|_)(id|uuid|code|number|no|key|zip|port|year)$")
_EXPECTED = (
    "a path in every record with epoch seconds, milliseconds or microseconds, ISO 8601, or one of "
    + ", ".join(PATTERNS)
)


class Guess(NamedTuple):
    """A declaration that is proposed, and the reason for it.

    Attributes:
        reasons: by column, why it is as it is.
        left_out: path and reason of what is no column.
        time_reason: why this is the event time.
        looked_at: records of the sample.
        broken: of these, not read: the table refuses them.
        broken_as: what those are not.
    """

    table: Table
    cube: Cube
    reasons: dict[str, str]
    left_out: list[tuple[str, str]]
    time_reason: str
    looked_at: int
    broken: int
    broken_as: str = "a JSON object"


class Source(NamedTuple):
    """The source of the records, and how they are read.

    Attributes:
        form: their format; None: they show it.
        cluster: name of the Kafka cluster, which the table names too.
        registry: name of the registry that has their schemas.
    """

    form: FormatName | None = None
    cluster: str = DEFAULT_KAFKA_CLUSTER
    registry: str = DEFAULT_REGISTRY
    registries: Registries = no_registries


def guess(
    topic: str,
    records: Sequence[Record],
    *,
    now_ms: int,
    time_path: str = "",
    time_format: str = "",
    source: Source = Source(),
) -> Guess:
    """Return the definitions.

    time_path, time_format: the event time, where somebody knows it; empty: it is guessed. Raises
    DefinitionError where no record is read, or none of its paths can be the event time.
    """
    sample = sample_of(topic, records, source.form, source.registry, source.registries)
    leaves, sound, count = sample.leaves, sample.sound, len(sample.sound)
    like = Table(
        name=plain_name(topic, ()),
        topic=topic,
        columns=(),
        time=TimeColumn(""),
        format=sample.format if sample.format != RecordFormat() else "json",
        kafka_cluster=source.cluster,
    )
    columns, reasons, left_out, leaf_of = _columns(leaves, sample.types, count)
    left_out = sample.left_out + left_out
    usable = {leaf.steps: name for name, leaf in leaf_of.items()}
    leaf_column = {column.name: column for column in columns}
    candidates = [
        each
        for each in time_guesses(leaves, count, (time_format,) if time_format else ())
        if each.leaf.steps in usable and (not time_path or ".".join(each.leaf.steps) == time_path)
    ]
    refused = ""

    def why_refused(columns: Sequence[Column], time: TimeColumn) -> str:
        return _refused(_table(like, columns, time), sound, now_ms, source.registries)

    for candidate in candidates:
        time = TimeColumn(usable[candidate.leaf.steps], candidate.format)
        refused = why_refused([leaf_column[time.column]], time)
        if refused:
            continue
        table = _table(like, columns, time)
        if why_refused(columns, time):
            fit, unfit = _without_unfit(table, why_refused)
            table = _table(like, fit, time)
            left_out += unfit
        cube = _cube(table, leaf_of, count, reasons)
        broken = len(records) - count
        how = (candidate.reason, len(records), broken, sample.broken_as)
        return Guess(table, cube, reasons, left_out, *how)
    raise _no_time(topic, leaves, candidates, refused, time_path)


def _table(like: Table, columns: Sequence[Column], time: TimeColumn) -> Table:
    return msgspec.structs.replace(like, columns=tuple(columns), time=time)


def _without_unfit(
    table: Table, why_refused: Callable[[Sequence[Column], TimeColumn], str]
) -> tuple[list[Column], list[tuple[str, str]]]:
    """Return the columns without those that refuse records by themselves, and why each does.

    Raises DefinitionError where the rest still refuses one.
    """
    time = table.column(table.time.column)
    fit: list[Column] = []
    unfit: list[tuple[str, str]] = []
    for column in table.columns:
        pair = [time] if column == time else [time, column]
        why = why_refused(pair, table.time)
        if why:
            unfit.append((column.path or column.name, why))
        else:
            fit.append(column)
    why = why_refused(fit, table.time)
    if why:
        raise DefinitionError(
            f"no table was found that takes the records of topic {table.topic}",
            expected="records that the columns take which each of them takes alone",
            found=why,
            action="declare the table by hand",
        )
    return fit, unfit


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
    leaves: Sequence[Leaf], types: Mapping[tuple[str, ...], str], records: int
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
        declared = types.get(leaf.steps)
        why_not = _why_not(leaf, declared, kinds, len(columns))
        if why_not:
            left_out.append((path, why_not))
            continue
        kind = declared or column_type(leaf)
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


def _why_not(leaf: Leaf, declared: str | None, kinds: dict[tuple[str, ...], set[str]], taken: int) -> str:
    """Return why a path is no column; empty where it is one. declared: its type by a schema."""
    if declared is not None and not any(not step or _NO_STEP.search(step) for step in leaf.steps):
        return "" if taken < COLUMNS_MAX else f"more than {COLUMNS_MAX} columns"
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


def _refused(table: Table, records: Sequence[Record], now_ms: int, registries: Registries) -> str:
    """Return the first reason for which the table refuses a record when all of its columns are read."""
    names = [column.name for column in table.columns]
    decoded = read_as(table, names, records, now_ms=now_ms, registries=registries)
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

"""A cube declares which dimensions and measures of a table are kept, for how long, in which segments and
cuboids.

Physical columns, the same in a receiver's memory, in fragments, staged parts and history:

| column | holds |
|---|---|
| a dimension's own name | its value, null allowed |
| `hour_start`, … | a derived time dimension: local time in the table's zone, a timestamp without a zone |
| `__rows` | bigint, number of events |
| `<column>__<accumulator>` | a partial of the column's values, see `rtolap.aggregates` |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, get_args

import msgspec

from rtolap.aggregates.accumulator import GivenForm, Partial
from rtolap.aggregates.approx_percentile import KLL_K_DEFAULT
from rtolap.aggregates.count import EVENTS, Count
from rtolap.aggregates.function import LG_K_DEFAULT, LG_MAX_DEFAULT
from rtolap.aggregates.group_concat import BYTES_MAX_DEFAULT
from rtolap.aggregates.registry import AGGREGATES
from rtolap.column_types import TIMESTAMP, ColumnType
from rtolap.model.application import CubeWatermark
from rtolap.model.expressions.grammar import parse_expression
from rtolap.model.expressions.nodes import names_of
from rtolap.model.filtered import (
    condition_name,
    conditions_of,
    filtered_columns_of,
    filtered_name,
    with_inputs,
)
from rtolap.model.table import Column, Table

MinutesUnit = Literal["minute", "five_minute", "ten_minute", "fifteen_minute", "thirty_minute"]
TimeUnit = Literal["second", MinutesUnit, "hour", "day", "week", "month", "quarter", "year"]
TIME_UNITS: tuple[TimeUnit, ...] = get_args(TimeUnit)  # finer before coarser
MINUTES: Mapping[TimeUnit, int] = {
    "minute": 1,
    "five_minute": 5,
    "ten_minute": 10,
    "fifteen_minute": 15,
    "thirty_minute": 30,
}
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
WEEKDAYS: tuple[Weekday, ...] = get_args(Weekday)
if TYPE_CHECKING:
    MeasureFunction = str
else:  # a definition with another word is refused as it is read
    MeasureFunction = Literal[tuple(AGGREGATES)]

ROWS = EVENTS.name


class Measure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A declared measure.

    Attributes:
        lg_k: of HLL sketches, see `aggregates.approx_distinct`.
        k: of KLL sketches, see `aggregates.approx_percentile`, and of `aggregates.approx_top_k`.
        where: only events that fulfil this expression count; None: all events.
        name: of the column that stands for the filtered values; None: it follows from column and condition.
        bytes_max: of joined texts, see `aggregates.group_concat`.
        input: what events hold in the column: values, or sketches of values that are merged.
    """

    function: MeasureFunction
    column: str | None = None
    lg_k: int = LG_K_DEFAULT
    k: int = KLL_K_DEFAULT
    lg_max: int = LG_MAX_DEFAULT
    where: str | None = None
    name: str | None = None
    input: Literal["values", "sketch"] = "values"
    bytes_max: int = BYTES_MAX_DEFAULT

    @property
    def source(self) -> str | None:
        """The column whose values are aggregated, a filtered one's name if there is a condition; None: whole
        events."""
        if self.where is None:
            return self.column
        if self.name is not None:
            return self.name
        return condition_name(self.where) if self.column is None else filtered_name(self.column, self.where)

    @property
    def adds_values(self) -> bool:
        """True if a value that is 0 changes the result, as a SUM of NULL is another than one of 0."""
        return any(each.algebra == "sum" for each in AGGREGATES[self.function].accumulators())

    def __str__(self) -> str:
        condition = "" if self.where is None else f" where {self.where}"
        return f"{self.function}({self.column or '*'}){condition}"


class AggregationGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A family of cuboids over `include`. Kylin's four rules for leaving combinations out:

    mandatory dimensions are in every cuboid; of a hierarchy (year, month, day) only prefixes occur;
    joint dimensions come together or not at all.
    """

    include: tuple[str, ...]
    mandatory: tuple[str, ...] = ()
    hierarchies: tuple[tuple[str, ...], ...] = ()
    joints: tuple[tuple[str, ...], ...] = ()


class SegmentPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Window and closing rule. All in milliseconds of event time."""

    window_ms: int = 3_600_000
    allowed_lateness_ms: int = 0
    sliding_window_ms: int = 7_200_000
    sliding_window_max_ms: int = 43_200_000


class RetentionPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The retention of a cube's segments.

    Attributes:
        policy: FULL_BUILD uploads and builds closed segments; PURGE retains them in receivers only.
        after_ms: age of a segment's end, by the low watermark, at which it is dropped; None never drops it.
    """

    policy: Literal["FULL_BUILD", "PURGE"] = "FULL_BUILD"
    after_ms: int | None = None


class MergePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The policy for merging small segments of history into sets of files.

    Attributes:
        to: intervals of UTC that segments are merged to; none: they stay apart.
        after_ms: how far the low watermark has to be beyond an interval's end, so that most late events have
            come.
    """

    to: tuple[Literal["day", "month"], ...] = ()
    after_ms: int = 86_400_000


class LatePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The policy for late events.

    Attributes:
        merge_after_ms: wall time for which a late delta waits for others before it is uploaded and merged.
    """

    policy: Literal["merge", "drop"] = "merge"
    merge_after_ms: int = 300_000


class Revision(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The place of a cube among those that statements see as one, by the name of the first.

    Each revision holds the events of a range of time of its own. `rtolap alter` makes them.

    Attributes:
        of: name of the first revision.
        number: 1 for the first.
        since_ms: a start of segments before which it holds no event; None: it is the first.
        until_ms: a start of segments, from which on the next revision holds the events; None: there is none.
        renamed: column of this revision → the column of the revision before that it goes on with.
        older: the policy for statements that need a column of events before `since_ms` which the revision
            before does not have: the column is NULL there, or the statement is refused; or this revision is
            filled with these events, and they are NULL until then.
        fills_from_ms: a start of segments of this revision and the one before. It takes events from there on,
            and `since_ms` moves back to it as it is filled with what it has not read; None: it fills nothing.
        filled_at: (partition, offset) up to which the revision had read when its moment moved back: answers
            hold at least what lies below. Empty before.
        filled_by: whether all of that comes from the topic again, or what history holds comes from batches.
        retired_ms: time at which statements stopped reading it, because all of it was purged; None: they do.
    """

    of: str
    number: int
    since_ms: int | None = None
    until_ms: int | None = None
    renamed: dict[str, str] = {}
    older: Literal["null", "refuse", "fill"] = "null"
    fills_from_ms: int | None = None
    filled_by: Literal["topic", "batch"] = "topic"
    filled_at: tuple[tuple[int, int], ...] = ()
    retired_ms: int | None = None

    @property
    def bounds_ms(self) -> tuple[int | None, int | None]:
        """Return the event times between which its events are, the second one excluded."""
        return self.since_ms, self.until_ms

    @property
    def reads_from_ms(self) -> int | None:
        """Return the event time from which on receivers take events: some of them may be there to fill."""
        return self.since_ms if self.fills_from_ms is None else self.fills_from_ms


class Cube(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A declared cube over a stream table.

    Attributes:
        week_starts_on: the first day of the weeks of `week_start`.
        time_filters: the policy for a condition on the event time whose instant does not begin a retained
            unit: the condition takes in the whole unit and the answer says so, or it is refused.
        truncation: the policy for events that were read and that the topic's log has lost: the receivers
            stop, or they drop them and read on where the logs diverge. Events in history or in closed
            segments are never dropped.
        revision: None of a cube whose columns and window were never changed; nobody declares it.
    """

    name: str
    table: str
    dimensions: tuple[str, ...]
    time_dimensions: tuple[TimeUnit, ...] = ("hour", "day")
    week_starts_on: Weekday = "monday"
    time_filters: Literal["align", "refuse"] = "align"
    aggregation_groups: tuple[AggregationGroup, ...] = ()
    measures: tuple[Measure, ...] = ()
    segment: SegmentPolicy = SegmentPolicy()
    retention: RetentionPolicy = RetentionPolicy()
    late: LatePolicy = LatePolicy()
    merge: MergePolicy = MergePolicy()
    truncation: Literal["stop", "drop"] = "stop"
    start: Literal["earliest", "latest"] = "earliest"
    consumer_tasks_max: int = 3
    watermark: CubeWatermark | None = None
    revision: Revision | None = None

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Return physical names of the derived time dimensions, finest first."""
        return tuple(f"{unit}_start" for unit in TIME_UNITS if unit in self.time_dimensions)

    @property
    def all_dimensions(self) -> tuple[str, ...]:
        """Return the dimensions of the base cuboid: derived time dimensions, then the declared ones."""
        return self.time_columns + self.dimensions

    @property
    def days_to_first_weekday(self) -> int:
        """The number of days from Monday to the first day of the week, 0 to 6."""
        return WEEKDAYS.index(self.week_starts_on)

    @property
    def finest_unit(self) -> TimeUnit | None:
        for unit in TIME_UNITS:
            if unit in self.time_dimensions:
                return unit
        return None


class Schema(msgspec.Struct, frozen=True, dict=True):
    """A cube together with its table: everything physical follows from the two."""

    table: Table
    cube: Cube

    def dimension_type(self, name: str) -> ColumnType:
        if name in self.cube.time_columns:
            return TIMESTAMP
        return self.table.column(name).column_type

    @cached_property  # each batch, merge and answer asks for it
    def partials(self) -> tuple[Partial, ...]:
        """Return the measure columns, `__rows` first, each once, in a stable order."""
        found: dict[str, Partial] = {ROWS: EVENTS}
        for measure in self.cube.measures:
            for partial in self.partials_of(measure):
                found.setdefault(partial.name, partial)
        return tuple(found.values())

    def partials_of(self, measure: Measure) -> tuple[Partial, ...]:
        """Return the physical columns that answer one declared measure."""
        function = AGGREGATES[measure.function]
        if measure.source is None:
            return function.partials_of_events()
        kind = self.column(measure.source).column_type
        size = measure.k if function.takes_k else measure.lg_k
        size = measure.bytes_max if function.takes_bytes_max else size
        partials = function.partials(measure.source, kind, size, measure.lg_max)
        if measure.where is None or not measure.adds_values:
            return partials
        condition = self.conditions[measure.where]
        return partials + Count().partials(condition, self.column(condition).column_type, LG_K_DEFAULT)

    def column(self, name: str) -> Column:
        """Return a column of the table, or of a filtered measure. Raises NotFound."""
        return self.filtered_columns.get(name) or self.table.column(name)

    @cached_property
    def conditions(self) -> Mapping[str, str]:
        """Condition of measures → the column that is 1 where it holds, and null elsewhere."""
        return conditions_of(self.cube.measures)

    @cached_property
    def filtered_columns(self) -> Mapping[str, Column]:
        """Columns that filtered measures aggregate, by name."""
        return filtered_columns_of(self.table, self.cube.measures)

    @cached_property
    def given_sketches(self) -> Mapping[str, GivenForm]:
        """Return the columns of the table in which events bring sketches along, and the form of those."""
        found: dict[str, GivenForm] = {}
        for measure in self.cube.measures:
            if measure.input == "sketch" and measure.column is not None:
                for partial in self.partials_of(measure):
                    if partial.accumulator.given_form is not None:
                        found[measure.column] = partial.accumulator.given_form
        return found

    @property
    def source_columns(self) -> tuple[str, ...]:
        """Table columns that the cube reads: dimensions, measure arguments, the event time, the mark of
        heartbeats, and the host where an application counts on it."""
        names = dict.fromkeys((*self.cube.dimensions, self.table.time.column))
        if self.table.heartbeat_column is not None:
            names.setdefault(self.table.heartbeat_column)
        if self.cube.watermark is not None and self.table.host_column is not None:
            names.setdefault(self.table.host_column)
        for measure in self.cube.measures:
            if measure.source is not None:
                names.setdefault(measure.source)
        for name in self.conditions.values():
            names.setdefault(name)
        return tuple(names)

    @cached_property
    def needed_columns(self) -> tuple[Column, ...]:
        """Source columns, those of the table's condition, and all that computed ones are made of, each behind
        what it is made of."""
        names = dict.fromkeys(self.source_columns)
        if self.table.where is not None:
            names.update(dict.fromkeys(names_of(parse_expression(self.table.where))))
        return with_inputs(self.table, [self.column(name) for name in names])

    @property
    def read_columns(self) -> tuple[str, ...]:
        """Table columns that are read from a record: source columns, and what computed ones are made of."""
        return tuple(column.name for column in self.needed_columns if column.expression is None)


class Cuboid(msgspec.Struct, frozen=True):
    """A subset of a cube's dimensions, in the cube's order."""

    dimensions: tuple[str, ...]

    @property
    def name(self) -> str:
        """`base`-independent and path-safe: dimension names joined by `+`, or `_all` for none."""
        return "+".join(self.dimensions) or "_all"


class Sized(Protocol):
    """A cuboid that is stored somewhere, with the number of its rows."""

    @property
    def dimensions(self) -> Sequence[str]: ...

    @property
    def rows(self) -> int: ...


S = TypeVar("S", bound=Sized)


def smallest_covering(stored: Iterable[S], needed: Collection[str]) -> S | None:
    """Return the one with the fewest rows that holds every dimension that is read or filtered by; None where
    none does. History and receivers choose by it."""
    wanted = frozenset(needed)
    covering = [cuboid for cuboid in stored if wanted.issubset(cuboid.dimensions)]
    return min(covering, key=lambda cuboid: (cuboid.rows, len(cuboid.dimensions)), default=None)


def cuboids(cube: Cube) -> tuple[Cuboid, ...]:
    """Return the base cuboid, then those of the aggregation groups, larger before smaller, each once."""
    order = {name: position for position, name in enumerate(cube.all_dimensions)}
    wanted: set[frozenset[str]] = set()
    for group in cube.aggregation_groups:
        wanted.update(_group_cuboids(group))
    wanted.discard(frozenset(cube.all_dimensions))
    ordered = [tuple(sorted(dimensions, key=order.__getitem__)) for dimensions in wanted]
    ordered.sort(key=lambda dimensions: (-len(dimensions), dimensions))
    return (Cuboid(cube.all_dimensions), *(Cuboid(dimensions) for dimensions in ordered))


def _group_cuboids(group: AggregationGroup) -> set[frozenset[str]]:
    bound = set(group.mandatory).union(*group.hierarchies, *group.joints)
    # Each choice is a list of alternatives of which a cuboid takes exactly one.
    choices: list[list[frozenset[str]]] = [
        [frozenset(), frozenset((name,))] for name in group.include if name not in bound
    ]
    choices += [[frozenset(), frozenset(joint)] for joint in group.joints]
    choices += [
        [frozenset(hierarchy[:depth]) for depth in range(len(hierarchy) + 1)]
        for hierarchy in group.hierarchies
    ]
    found = {frozenset(group.mandatory)}
    for alternatives in choices:
        found = {chosen | alternative for chosen in found for alternative in alternatives}
    return found


def smallest_parents(all_cuboids: tuple[Cuboid, ...], sizes: dict[str, int]) -> dict[str, str]:
    """Return, for each cuboid but the first, the name of the cheapest built cuboid that contains it.

    `sizes` gives known sizes by name, all in rows or all in bytes; an unknown one counts as large as its
    number of dimensions suggests. Greedy from the largest cuboid down, as a build goes.
    """
    parents: dict[str, str] = {}
    for position, cuboid in enumerate(all_cuboids[1:], start=1):
        candidates = [
            other for other in all_cuboids[:position] if set(cuboid.dimensions) <= set(other.dimensions)
        ]
        best = min(
            candidates,
            key=lambda other: (sizes.get(other.name, len(other.dimensions) << 40), len(other.dimensions)),
        )
        parents[cuboid.name] = best.name
    return parents

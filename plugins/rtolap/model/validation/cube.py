"""The check that a cube is sound, given a table that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod

from rtolap.aggregates.accumulator import LG_MAX_MAX, LG_MAX_MIN
from rtolap.aggregates.group_concat import BYTES_MAX_MAX, BYTES_MAX_MIN
from rtolap.aggregates.registry import AGGREGATES
from rtolap.column_types import BINARY
from rtolap.model.cube import TIME_UNITS, AggregationGroup, Cube, Measure, Schema, cuboids
from rtolap.model.durations import format_duration
from rtolap.model.problems import Key, Problem, bound_problems, did_you_mean, unknown_name
from rtolap.model.validation.conditions import filter_problems
from rtolap.model.validation.sketches import given_sketch_problems

WINDOW_MIN_MS = 1000  # segment names count seconds
WINDOW_MAX_MS = 366 * 86_400_000
CONSUMER_TASKS_MAX = 1024
_DAY_MS = 86_400_000

DIMENSIONS_MAX = 64
GROUP_COMBINATIONS_MAX = 4096
CUBOIDS_MAX = 512  # each one is a file in each segment, and one of the grouping sets of its build
LG_K_MIN, LG_K_MAX = 4, 21  # what Apache DataSketches takes
KLL_K_MIN, KLL_K_MAX = 8, 4096  # its bounds are 8 and 65535; a sketch has some 24 k bytes


def _merge_problems(cube: Cube) -> list[Problem]:
    where, window = ("merge", "to"), cube.segment.window_ms
    found = []
    if cube.merge.to and cube.retention.policy == "PURGE":
        found.append(Problem(where, "nothing to merge: the cube keeps no history", found="retention PURGE"))
    for level in cube.merge.to:
        if 2 * window > (_DAY_MS if level == "day" else 28 * _DAY_MS):
            found.append(
                Problem(
                    where,
                    f"a {level} has less than two segments",
                    expected=f"segments of half a {level} at most",
                    found=_spell_duration(window),
                )
            )
    return found


def _policy_problems(cube: Cube) -> Iterator[Problem]:
    segment, retention, late = cube.segment, cube.retention, cube.late
    window = segment.window_ms
    if not WINDOW_MIN_MS <= window <= WINDOW_MAX_MS:
        bounds = f"{format_duration(WINDOW_MIN_MS)} to {format_duration(WINDOW_MAX_MS)}"
        yield Problem(
            ("segment", "window_ms"), "out of bounds", expected=bounds, found=_spell_duration(window)
        )
    elif window % WINDOW_MIN_MS or (_DAY_MS % window and window % _DAY_MS):
        yield Problem(
            ("segment", "window_ms"),
            "segments would not line up with days",
            expected="whole seconds that divide a day, or whole days",
            found=_spell_duration(window),
        )
    for name, value in (
        ("allowed_lateness_ms", segment.allowed_lateness_ms),
        ("sliding_window_ms", segment.sliding_window_ms),
        ("sliding_window_max_ms", segment.sliding_window_max_ms),
    ):
        yield from bound_problems(("segment", name), value, 0)
    if segment.sliding_window_max_ms < segment.sliding_window_ms:
        yield Problem(
            ("segment", "sliding_window_max_ms"),
            "shorter than the sliding window it bounds",
            expected=f"at least {_spell_duration(segment.sliding_window_ms)}",
            found=_spell_duration(segment.sliding_window_max_ms),
        )
    if retention.after_ms is None:
        if retention.policy == "PURGE":
            yield Problem(("retention",), "PURGE needs a time", expected="the key after, as 2d", found="none")
    else:
        yield from bound_problems(("retention", "after_ms"), retention.after_ms, 0)
    yield from bound_problems(("late", "merge_after_ms"), late.merge_after_ms, 0)
    yield from bound_problems(("merge", "after_ms"), cube.merge.after_ms, 0)
    yield from _merge_problems(cube)
    yield from bound_problems(("consumer_tasks_max",), cube.consumer_tasks_max, 1, CONSUMER_TASKS_MAX)


def _spell_duration(duration_ms: int) -> str:
    return format_duration(duration_ms) if duration_ms >= 0 else f"{duration_ms} ms"


def cube_problems(schema: Schema) -> tuple[Problem, ...]:
    found: list[Problem] = []
    if schema.cube.revision is not None:
        found.append(
            Problem(
                ("revision",), "nobody declares it", expected="no such key: `rtolap alter` makes revisions"
            )
        )
    if schema.cube.table != schema.table.name:
        found.append(
            Problem(("table",), "another table", expected=schema.table.name, found=repr(schema.cube.table))
        )
    found += _dimension_problems(schema)
    found += _measure_problems(schema)
    found += filter_problems(schema)
    group_faults = [
        problem
        for position, group in enumerate(schema.cube.aggregation_groups)
        for problem in _group_problems(group, ("aggregation_groups", position), schema.cube.all_dimensions)
    ]
    found += group_faults
    if not group_faults and (total := len(cuboids(schema.cube))) > CUBOIDS_MAX:
        found.append(
            Problem(
                ("aggregation_groups",),
                "too many cuboids",
                expected=f"at most {CUBOIDS_MAX}",
                found=str(total),
                hint="make dimensions mandatory or joint, or leave some out",
            )
        )
    found += _policy_problems(schema.cube)
    return tuple(found)


def _dimension_problems(schema: Schema) -> Iterator[Problem]:
    cube, table = schema.cube, schema.table
    columns = [column.name for column in table.columns]
    binary = {column.name for column in table.columns if column.column_type == BINARY}
    if not cube.all_dimensions:
        yield Problem(("dimensions",), "a cube without dimensions", expected="at least one", found="none")
    if len(cube.all_dimensions) > DIMENSIONS_MAX:
        expected = f"at most {DIMENSIONS_MAX}"
        yield Problem(
            ("dimensions",), "too many dimensions", expected=expected, found=str(len(cube.all_dimensions))
        )
    for position, name in enumerate(cube.dimensions):
        key: Key = ("dimensions", position)
        if name in columns:
            if name in cube.dimensions[:position]:
                yield Problem(key, "dimension is declared twice", found=repr(name))
            if name in binary:
                expected = "a column of values"
                yield Problem(key, "bytes are no dimension", expected=expected, found=f"{name} {BINARY}")
            continue
        hint = did_you_mean(name, columns)
        unit = name.removesuffix("_start")
        if unit in TIME_UNITS:
            hint = f"put {unit} into time_dimensions"
        yield Problem(
            key, "no such column", expected=f"a column of table {table.name}", found=repr(name), hint=hint
        )
    yield from [
        Problem(("time_dimensions", position), "declared twice", found=repr(unit))
        for position, unit in enumerate(cube.time_dimensions)
        if unit in cube.time_dimensions[:position]
    ]


def _measure_problems(schema: Schema) -> Iterator[Problem]:
    seen: set[tuple[str, str | None]] = set()
    for position, measure in enumerate(schema.cube.measures):
        key: Key = ("measures", position)
        identity = (measure.function, measure.source)
        if identity in seen:
            yield Problem(key, "measure is declared twice", found=str(measure))
        seen.add(identity)
        yield from _one_measure(schema, measure, key)


def _one_measure(schema: Schema, measure: Measure, key: Key) -> Iterator[Problem]:
    names = [column.name for column in schema.table.columns]
    function = AGGREGATES[measure.function]
    if measure.column is None:
        if function.takes_events:
            return
        yield Problem(key, f"{measure.function} needs a column", expected="the key column", found="none")
        return
    if measure.column not in names:
        expected = f"a column of table {schema.table.name}"
        yield unknown_name((*key, "column"), "no such column", measure.column, names, expected)
        return
    if function.takes_lg_k:
        yield from bound_problems((*key, "lg_k"), measure.lg_k, LG_K_MIN, LG_K_MAX)
    if function.takes_k:
        yield from bound_problems((*key, "k"), measure.k, KLL_K_MIN, KLL_K_MAX)
    if function.takes_lg_max:
        yield from bound_problems((*key, "lg_max"), measure.lg_max, LG_MAX_MIN, LG_MAX_MAX)
    if function.takes_bytes_max:
        yield from bound_problems((*key, "bytes_max"), measure.bytes_max, BYTES_MAX_MIN, BYTES_MAX_MAX)
    column_type = schema.table.column(measure.column).column_type
    yield from given_sketch_problems(schema, measure, column_type, key)
    expected = "" if measure.input == "sketch" else function.mismatch(column_type)
    if expected and column_type == BINARY and function.takes_sketches:
        expected += ", or input: sketch"
    if function.reads_source and measure.column == schema.table.time.column:
        expected = "another column than the event time, of which min and max say the same"
    if expected:
        yield Problem(
            (*key, "column"),
            f"{measure.function} does not fit the column",
            expected=expected,
            found=f"{measure.column} {column_type}",
        )


def _group_problems(group: AggregationGroup, key: Key, dimensions: tuple[str, ...]) -> list[Problem]:
    found: list[Problem] = []
    for position, name in enumerate(group.include):
        if name not in dimensions:
            at: Key = (*key, "include", position)
            found.append(unknown_name(at, "no such dimension", name, dimensions, "a dimension of the cube"))
        elif name in group.include[:position]:
            found.append(Problem((*key, "include", position), "included twice", found=repr(name)))
    rules: list[tuple[Key, tuple[str, ...]]] = [((*key, "mandatory"), group.mandatory)]
    for rule, families in (("hierarchies", group.hierarchies), ("joints", group.joints)):
        for position, family in enumerate(families):
            rules.append(((*key, rule, position), family))
            if len(family) < 2:
                found.append(
                    Problem(
                        (*key, rule, position),
                        "too short",
                        expected="two or more dimensions",
                        found=str(family),
                    )
                )
    used = Counter(name for _, family in rules for name in family)
    for rule_key, family in rules:
        for position, name in enumerate(family):
            if name not in group.include:
                at = (*rule_key, position)
                found.append(
                    unknown_name(at, "not in the group", name, group.include, "a dimension of include")
                )
            elif used[name] > 1:
                found.append(
                    Problem(
                        (*rule_key, position),
                        "bound twice",
                        expected="each dimension in one of mandatory, a hierarchy, a joint",
                        found=repr(name),
                    )
                )
    if not found and (combinations := _combinations(group)) > GROUP_COMBINATIONS_MAX:
        found.append(
            Problem(
                key,
                "too many combinations",
                expected=f"at most {GROUP_COMBINATIONS_MAX}",
                found=str(combinations),
                hint="make dimensions mandatory or joint, or leave some out",
            )
        )
    return found


def _combinations(group: AggregationGroup) -> int:
    bound = set(group.mandatory).union(*group.hierarchies, *group.joints)
    free = sum(1 for name in group.include if name not in bound)
    choices = 1 << (free + len(group.joints))
    return choices * prod(len(hierarchy) + 1 for hierarchy in group.hierarchies)

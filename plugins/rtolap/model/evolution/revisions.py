"""Revisions of a cube: cubes of their own, each with the events of a range of time. Statements see one cube.

    since                 since                  the newest
    ───────── flights ────┼── flights_r2 ────────┼── flights_r3 ──────▶ event time

A revision has its own columns, window, receivers' state, segments and history, so that nothing that is stored
ever changes its form. Statements name the first one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import lcm
from typing import Any

import msgspec

from rtolap.base.errors import Refused
from rtolap.model.cube import Cube, Revision, Schema
from rtolap.model.evolution.cube_changes import changed_settings

_NUMBERED = re.compile(r"(?P<of>.+)_r(?P<number>[1-9][0-9]*)")

REVISED = frozenset(("dimensions", "time_dimensions", "measures", "segment.window_ms"))


def revision_name(of: str, number: int) -> str:
    """Return the name of the cube that holds a revision."""
    return of if number == 1 else f"{of}_r{number}"


def numbered(name: str) -> tuple[str, int]:
    """Return the cube and the number of the revision that a cube of this name may hold: 1 where no other cube
    can have named it."""
    match = _NUMBERED.fullmatch(name)
    return (name, 1) if match is None else (match["of"], int(match["number"]))


def series_of(cubes: Mapping[str, Schema]) -> dict[str, tuple[Schema, ...]]:
    """Return name of the first → its revisions, oldest first, of all cubes that are part of several.

    Retired ones are left out: nothing of their time is in an answer.
    """
    found: dict[str, list[tuple[int, Schema]]] = defaultdict(list)
    for schema in cubes.values():
        if (revision := schema.cube.revision) is not None and revision.retired_ms is None:
            found[revision.of].append((revision.number, schema))
    for of, numbered in found.items():
        if of in cubes and cubes[of].cube.revision is None:  # it was read before the second one was made
            numbered.append((1, cubes[of]))
    return {
        of: tuple(schema for _, schema in sorted(numbered, key=lambda each: each[0]))
        for of, numbered in found.items()
    }


def seen_cubes(cubes: Mapping[str, Schema], series: Mapping[str, tuple[Schema, ...]]) -> dict[str, Schema]:
    """Return the cubes as statements see them: of each series the newest, by the first one's name."""
    within = {schema.cube.name for revisions in series.values() for schema in revisions}
    seen = {
        name: schema for name, schema in cubes.items() if name not in within and schema.cube.revision is None
    }
    for of, revisions in series.items():
        newest = revisions[-1]
        seen[of] = Schema(newest.table, declared(newest.cube))
    return seen


def declared(cube: Cube) -> Cube:
    """Return a cube as its file declares it: by the name that statements know, and without a revision."""
    if cube.revision is None:
        return cube
    return msgspec.structs.replace(cube, name=cube.revision.of, revision=None)


def takes_revision(before: Cube, after: Cube) -> tuple[str, ...]:
    """Return the changed settings that take a revision. Both as they are declared."""
    return tuple(name for name in changed_settings(before, after) if name in REVISED)


def first_start_ms(before: Cube, after: Cube, ends_ms: Iterable[int]) -> int:
    """Return the first moment, at the end of all segments that there are or later, where segments of both
    definitions begin."""
    step_ms = common_window_ms(before, after)
    return -(-max(ends_ms, default=0) // step_ms) * step_ms


def common_window_ms(before: Cube, after: Cube) -> int:
    return lcm(before.segment.window_ms, after.segment.window_ms)


def check_renamed(before: Schema, after: Schema, renamed: Mapping[str, str]) -> None:
    """Raise Refused for columns that cannot go on with others.

    `renamed`: column of `after` → column of `before`.
    """
    for new, old in renamed.items():
        problem = _rename_problem(before, after, new, old)
        if problem is not None:
            raise Refused(
                f"column {new} cannot go on with {old}",
                expected="a column that the change drops, for one that it adds, of its type or int → bigint",
                found=problem,
            )


def _rename_problem(before: Schema, after: Schema, new: str, old: str) -> str | None:
    for schema, name, other in ((after, new, before), (before, old, after)):
        if name not in schema.source_columns:
            return f"no column {name} in the {'new' if schema is after else 'running'} definition"
        if name in other.source_columns:
            return f"{name} is in both definitions"
    kinds = (before.column(old).column_type, after.column(new).column_type)
    if kinds[0] != kinds[1] and (kinds[0].kind, kinds[1].kind) != ("int", "bigint"):
        return f"{kinds[0]} → {kinds[1]}"
    return None


def ended(cube: Cube, until_ms: int) -> Cube:
    """Return the newest revision as it is once another one follows."""
    revision = cube.revision or Revision(cube.name, 1)
    return msgspec.structs.replace(cube, revision=msgspec.structs.replace(revision, until_ms=until_ms))


def following(before: Cube, after: Cube, since_ms: int, **policy: Any) -> Cube:
    """Return the revision that follows the newest one. `after`: as declared; `policy`: see `Revision`."""
    number = 2 if before.revision is None else before.revision.number + 1
    revision = Revision(after.name, number, since_ms=since_ms, **policy)
    return msgspec.structs.replace(after, name=revision_name(after.name, number), revision=revision)

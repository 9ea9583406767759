"""Changes of a running cube's definition: which there may be, and what each means.

A cube may change what no stored row depends on. Partials of other measures, rows of other dimensions and
other windows are other data: that takes another cube.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from rtolap.base.complete import complete
from rtolap.base.errors import Refused
from rtolap.model.cube import Cube, cuboids


class Follower(StrEnum):
    """The parts of the cluster that follow a setting."""

    BUILDS = "builds"
    RECEIVERS = "receivers"  # they begin again with the cube, from their checkpoints
    RETENTION = "retention"
    STATEMENTS = "statements"
    MERGES = "merges"
    ASSIGNMENT = "assignment"


class _Rule(NamedTuple):
    followers: frozenset[Follower]
    meaning: str


def _rule(meaning: str, *followers: Follower) -> _Rule:
    return _Rule(frozenset(followers), meaning)


_CLOSING = "segments that are still open close by it"
RULES: Mapping[str, _Rule] = {
    "aggregation_groups": _rule(
        "segments that are built from now on have these cuboids; READY ones keep theirs until they are built "
        "again; answers stay the same",
        Follower.BUILDS,
        Follower.RECEIVERS,
    ),
    "retention.after_ms": _rule(
        "segments whose end is further behind the low watermark are dropped for good", Follower.RETENTION
    ),
    "late.merge_after_ms": _rule("late events wait this long for others", Follower.RECEIVERS),
    "segment.allowed_lateness_ms": _rule(_CLOSING, Follower.RECEIVERS),
    "segment.sliding_window_ms": _rule(_CLOSING, Follower.RECEIVERS),
    "segment.sliding_window_max_ms": _rule(_CLOSING, Follower.RECEIVERS),
    "time_filters": _rule(
        "conditions on a moment within a unit of time are aligned, or refused", Follower.STATEMENTS
    ),
    "merge.to": _rule("the next merge goes by it; sets that are there stay", Follower.MERGES),
    "merge.after_ms": _rule("the next merge waits so long behind the end of an interval", Follower.MERGES),
    "truncation": _rule("how a log that has lost its tail is met", Follower.RECEIVERS),
    "consumer_tasks_max": _rule("the next assignment goes by it", Follower.ASSIGNMENT),
}
_PARTS = ("retention", "late", "segment", "merge")  # settings of a cube that have settings themselves


class CubeChange(msgspec.Struct, frozen=True):
    """A changed setting.

    Attributes:
        setting: as the definition has it, `retention.after_ms`.
        meaning: what follows from it, in words.
    """

    setting: str
    before: Any
    after: Any
    meaning: str

    @property
    def followers(self) -> frozenset[Follower]:
        return RULES[self.setting].followers


def cube_changes(before: Cube, after: Cube) -> tuple[CubeChange, ...]:
    """Return what changes. Raises Refused naming what a running cube cannot change."""
    old, new = _settings(before), _settings(after)
    changed = changed_settings(before, after)
    fixed = [name for name in changed if name not in RULES]
    if fixed:
        raise Refused(
            f"a running cube cannot change {', '.join(fixed)}",
            expected=f"changes of {', '.join(RULES)} alone",
            found="; ".join(f"{name}: {_short(old[name])} → {_short(new[name])}" for name in fixed),
            action="declare another cube beside it; it reads what the topic has, and `rtolap batch` adds "
            "what the topic has no more",
        )
    return tuple(CubeChange(name, old[name], new[name], RULES[name].meaning) for name in changed)


def changed_settings(before: Cube, after: Cube) -> tuple[str, ...]:
    """Return the names of the settings that differ, `retention.after_ms`."""
    old, new = _settings(before), _settings(after)
    return tuple(name for name in old if old[name] != new[name])


def begins_again(before: Cube, after: Cube) -> bool:
    """Return True if receivers of the first definition have to take the other one.

    The moment from which on statements read a revision is nothing to them: they take events from
    `reads_from_ms` on.
    """
    before, after = _as_received(before), _as_received(after)
    if before == after:
        return False
    changed = changed_settings(before, after)
    return any(name not in RULES or Follower.RECEIVERS in RULES[name].followers for name in changed)


def _as_received(cube: Cube) -> Cube:
    if cube.revision is None or cube.revision.fills_from_ms is None:
        return cube
    revision = cube.revision
    received = msgspec.structs.replace(revision, since_ms=revision.reads_from_ms, filled_at=())
    return msgspec.structs.replace(cube, revision=received)


def new_cuboids(before: Cube, after: Cube) -> tuple[str, ...]:
    """Return the cuboids that only the second definition has."""
    known = {cuboid.name for cuboid in cuboids(before)}
    return tuple(cuboid.name for cuboid in cuboids(after) if cuboid.name not in known)


def gone_cuboids(before: Cube, after: Cube) -> tuple[str, ...]:
    """Return the cuboids that only the first definition has."""
    return new_cuboids(after, before)


def _settings(cube: Cube) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in complete(cube).items():
        if name in _PARTS:
            found.update({f"{name}.{inner}": each for inner, each in value.items()})
        else:
            found[name] = value
    return found


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"

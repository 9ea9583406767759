"""The leader's duties towards a replica set: one table of marks and looks, whose actions it performs.

```
            lives                      missing                      lost
 open       SERVING  forget, keep      MISSING   note, keep         LOST      note, give
 drained    DRAINING forget, move      DRAINING  note, move         DRAINING  note, give
 drained, without partitions           DRAINED   note or forget
 open, lost, without partitions        LOST      note
```
Nothing but the replica set's record and the cubes' assignments says in which state it is, so each leader
finds the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Mark(StrEnum):
    """The wish in a replica set's record: it is given partitions, or somebody has it drained."""

    OPEN = "OPEN"
    DRAINED = "DRAINED"


class Look(StrEnum):
    """The state of a replica set's receivers, as the leader sees it."""

    LIVES = "LIVES"
    MISSING = "MISSING"
    LOST = "LOST"


class SetState(StrEnum):
    """A replica set.

    SERVING: it has what it has.
    MISSING: none of its receivers lives; it keeps its partitions.
    LOST: none has lived for the declared time; its partitions move to others.
    DRAINING: its partitions move to others, as somebody has asked.
    DRAINED: it is drained and has no partitions.
    """

    SERVING = "SERVING"
    MISSING = "MISSING"
    LOST = "LOST"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"


class Action(StrEnum):
    """NOTE: write since when none lives. FORGET: one lives again. KEEP: cancel moves that were planned to
    relieve it. MOVE: plan moves off it, a few cubes at a time, with warm-up. GIVE: move all at once."""

    NOTE = "NOTE"
    FORGET = "FORGET"
    KEEP = "KEEP"
    MOVE = "MOVE"
    GIVE = "GIVE"


class Duty(msgspec.Struct, frozen=True):
    state: SetState
    actions: tuple[Action, ...]


TABLE: Mapping[tuple[Mark, Look, bool], Duty] = {
    # (mark, look, has it partitions?)
    (Mark.OPEN, Look.LIVES, True): Duty(SetState.SERVING, (Action.FORGET, Action.KEEP)),
    (Mark.OPEN, Look.LIVES, False): Duty(SetState.SERVING, (Action.FORGET,)),
    (Mark.OPEN, Look.MISSING, True): Duty(SetState.MISSING, (Action.NOTE, Action.KEEP)),
    (Mark.OPEN, Look.MISSING, False): Duty(SetState.MISSING, (Action.NOTE,)),
    (Mark.OPEN, Look.LOST, True): Duty(SetState.LOST, (Action.NOTE, Action.GIVE)),
    (Mark.OPEN, Look.LOST, False): Duty(SetState.LOST, (Action.NOTE,)),
    (Mark.DRAINED, Look.LIVES, True): Duty(SetState.DRAINING, (Action.FORGET, Action.MOVE)),
    (Mark.DRAINED, Look.LIVES, False): Duty(SetState.DRAINED, (Action.FORGET,)),
    (Mark.DRAINED, Look.MISSING, True): Duty(SetState.DRAINING, (Action.NOTE, Action.MOVE)),
    (Mark.DRAINED, Look.MISSING, False): Duty(SetState.DRAINED, (Action.NOTE,)),
    (Mark.DRAINED, Look.LOST, True): Duty(SetState.DRAINING, (Action.NOTE, Action.GIVE)),
    (Mark.DRAINED, Look.LOST, False): Duty(SetState.DRAINED, (Action.NOTE,)),
}


class Looked(msgspec.Struct, frozen=True):
    """A replica set at one moment.

    Attributes:
        draining: as its record says.
        lives: whether one of its receivers lives.
        holds: whether it has partitions, or gets some by a move that runs.
        relieved: whether a move runs that a leader has planned to relieve it.
        missing_since_ms: as its record says.
    """

    draining: bool
    lives: bool
    holds: bool
    relieved: bool = False
    missing_since_ms: int | None = None


def looks(sets: Mapping[str, Looked], now_ms: int, lost_after_ms: int) -> dict[str, Look]:
    """Return what each replica set looks like.

    It is LOST once none of its receivers has lived for `lost_after_ms`; 0: never. It stays MISSING where more
    than half of the replica sets in use have no living receiver: then something else has failed, and the
    others would carry a multiple of what they are made for. In use are those that have partitions, or a
    living receiver.
    """
    used = [one for one in sets.values() if one.holds or one.lives]
    outage = 2 * sum(not one.lives for one in used) > len(used)

    def look(one: Looked) -> Look:
        if one.lives:
            return Look.LIVES
        since_ms = one.missing_since_ms
        if outage or not lost_after_ms or since_ms is None or now_ms - since_ms < lost_after_ms:
            return Look.MISSING
        return Look.LOST

    return {name: look(one) for name, one in sets.items()}


def duties(sets: Mapping[str, Looked], now_ms: int, lost_after_ms: int) -> dict[str, Duty]:
    """Return what the leader has to do about each replica set."""
    seen = looks(sets, now_ms, lost_after_ms)
    return {
        name: TABLE[Mark.DRAINED if one.draining else Mark.OPEN, seen[name], one.holds]
        for name, one in sets.items()
    }

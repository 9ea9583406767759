"""Segments: windows of event time, their names, their life as one pure table, and their staged parts.

                    CLOSE               PARTS_JOINED                PROMOTE
        ACTIVE ───────────▶ IMMUTABLE ───────────────▶ REMOTE_PERSISTED ────────▶ READY ⟲ MERGE, ADOPT
          │                   │  ▲ ▲                      │ │ ▲                   │  │
          │                   │  │ └─ PARTS_LOST, WITHDRAWN ┘ │ │                   │  │
          │                   │  │ └──── BASE_RESTORED ──────┤ │                   │  │
          │ PURGE             │  └─── CLOSE, BASE_LOST ──────┼─┼───────────────────┘  │
          └───────────────────┴───── PURGE ──────────────────┘ └─ REQUEUE, REPLACE ───┤
                              ▼                                                      │
                           PURGED ◀──────────────────── PURGE ───────────────────────┘

A READY segment whose late delta is closed goes round again: while it is IMMUTABLE or REMOTE_PERSISTED its
present version keeps answering, until the next one is promoted. REQUEUE rebuilds it from what it has.
PARTS_LOST leads from REMOTE_PERSISTED back to IMMUTABLE: a staged part is missing or damaged, and receivers,
which hold a version until it is READY, upload it again.
BASE_LOST leads to IMMUTABLE too: the READY version has lost what builds start from, and the parts of the next
one hold all of the segment, read again from Kafka. BASE_RESTORED takes that back: its files are there again.
REPLACE leads to REMOTE_PERSISTED from any state but PURGED: a staged batch holds all of the segment, and the
next version is made of it. A segment without a record begins its life so. WITHDRAWN takes a batch back that
is not READY yet, where late events wait for their upload.
ADOPT leads to READY from any state but PURGED: a version that a backup of the metadata does not name yet
stands whole in the object store, and a restore takes it with the vector that its manifest states.
MERGE leaves a READY segment READY: its version is now a member of a merged set, which answers for all of its
members together (see `rtolap.metadata.merged_sets`).
PURGED is for ever: a replay does not bring such a segment back.

The table orders nothing to be done. Every service acts on the state that it reads in the record: an order
that is given with a transition would be lost with the process that has committed it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache

import msgspec

from rtolap.base.errors import DefinitionError
from rtolap.base.transitions import step
from rtolap.model.offsets import Offsets, PartRange

_NAME_FORMAT = "%Y%m%d%H%M%S"
_NAME_LENGTH = 14


class SegmentRange(msgspec.Struct, frozen=True, order=True):
    """`[start_ms, end_ms)` in UTC. Ordered by start."""

    start_ms: int
    end_ms: int

    @property
    def name(self) -> str:
        """Return the name, `20130101000000_20130102000000`, which sorts by time and is safe as a path and as
        a znode."""
        return f"{_stamp(self.start_ms)}_{_stamp(self.end_ms)}"


def segment_of(event_ms: int, window_ms: int) -> SegmentRange:
    """Return the segment that holds an event; floor division, so instants before 1970 work too."""
    start_ms = event_ms // window_ms * window_ms
    return SegmentRange(start_ms, start_ms + window_ms)


def parse_segment_name(name: str) -> SegmentRange:
    start, underscore, end = name.partition("_")
    try:
        if not underscore or len(start) != _NAME_LENGTH or len(end) != _NAME_LENGTH:
            raise ValueError(name)
        return SegmentRange(_instant_ms(start), _instant_ms(end))
    except ValueError:
        raise DefinitionError(
            "not a segment name", expected="YYYYMMDDhhmmss_YYYYMMDDhhmmss in UTC", found=repr(name)
        ) from None


@lru_cache(maxsize=4096)  # a day of minutes twice over: names are made with every statement and step
def _stamp(instant_ms: int) -> str:
    return datetime.fromtimestamp(instant_ms / 1000, UTC).strftime(_NAME_FORMAT)


def _instant_ms(stamp: str) -> int:
    return int(datetime.strptime(stamp, _NAME_FORMAT).replace(tzinfo=UTC).timestamp()) * 1000


class SegmentState(StrEnum):
    ACTIVE = "ACTIVE"
    IMMUTABLE = "IMMUTABLE"
    REMOTE_PERSISTED = "REMOTE_PERSISTED"
    READY = "READY"
    PURGED = "PURGED"


class SegmentEvent(StrEnum):
    CLOSE = "CLOSE"
    PARTS_JOINED = "PARTS_JOINED"
    PARTS_LOST = "PARTS_LOST"
    BASE_LOST = "BASE_LOST"
    BASE_RESTORED = "BASE_RESTORED"
    PROMOTE = "PROMOTE"
    REQUEUE = "REQUEUE"
    REPLACE = "REPLACE"
    WITHDRAWN = "WITHDRAWN"
    MERGE = "MERGE"
    ADOPT = "ADOPT"
    PURGE = "PURGE"


_S, _E = SegmentState, SegmentEvent

TRANSITIONS: dict[tuple[SegmentState, SegmentEvent], SegmentState] = {
    (_S.ACTIVE, _E.CLOSE): _S.IMMUTABLE,
    (_S.IMMUTABLE, _E.CLOSE): _S.IMMUTABLE,  # another replica set closes its share
    (_S.READY, _E.CLOSE): _S.IMMUTABLE,  # a late delta
    (_S.IMMUTABLE, _E.PARTS_JOINED): _S.REMOTE_PERSISTED,
    (_S.IMMUTABLE, _E.PARTS_LOST): _S.IMMUTABLE,
    (_S.REMOTE_PERSISTED, _E.PARTS_LOST): _S.IMMUTABLE,
    (_S.READY, _E.BASE_LOST): _S.IMMUTABLE,
    (_S.IMMUTABLE, _E.BASE_LOST): _S.IMMUTABLE,
    (_S.REMOTE_PERSISTED, _E.BASE_LOST): _S.IMMUTABLE,
    (_S.IMMUTABLE, _E.BASE_RESTORED): _S.IMMUTABLE,
    (_S.REMOTE_PERSISTED, _E.BASE_RESTORED): _S.IMMUTABLE,
    (_S.READY, _E.REQUEUE): _S.REMOTE_PERSISTED,
    (_S.ACTIVE, _E.REPLACE): _S.REMOTE_PERSISTED,
    (_S.IMMUTABLE, _E.REPLACE): _S.REMOTE_PERSISTED,
    (_S.REMOTE_PERSISTED, _E.REPLACE): _S.REMOTE_PERSISTED,
    (_S.READY, _E.REPLACE): _S.REMOTE_PERSISTED,
    (_S.REMOTE_PERSISTED, _E.WITHDRAWN): _S.IMMUTABLE,
    (_S.REMOTE_PERSISTED, _E.PROMOTE): _S.READY,
    (_S.READY, _E.MERGE): _S.READY,
    (_S.ACTIVE, _E.ADOPT): _S.READY,
    (_S.IMMUTABLE, _E.ADOPT): _S.READY,
    (_S.REMOTE_PERSISTED, _E.ADOPT): _S.READY,
    (_S.READY, _E.ADOPT): _S.READY,
    (_S.ACTIVE, _E.PURGE): _S.PURGED,
    (_S.IMMUTABLE, _E.PURGE): _S.PURGED,
    (_S.REMOTE_PERSISTED, _E.PURGE): _S.PURGED,
    (_S.READY, _E.PURGE): _S.PURGED,
}


def transition(
    state: SegmentState, event: SegmentEvent, *, subject: str = "segment", history: object = ()
) -> SegmentState:
    """Return the next state. Raises IllegalTransition with the segment's state history."""
    return step(TRANSITIONS, state, event, subject=subject, history=history)


class StagedPart(msgspec.Struct, frozen=True):
    """Files that one replica set uploaded for one version of a segment.

    Attributes:
        path: a folder in the object store, relative to its root, with a manifest and Parquet files. It has no
            Parquet files when the ranges held no event of the segment.
        begins: partition → offset below which the part holds no event; reading the part's events again starts
            there.
    """

    replica_set: str
    path: str
    ranges: tuple[PartRange, ...]
    rows: int
    events: int
    bytes: int
    begins: Offsets = {}

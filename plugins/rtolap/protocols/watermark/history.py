"""Messages of the watermarks' history over REST, and of who held them. Conventions as in `messages`."""

from __future__ import annotations

from pydantic import Field

from rtolap.model.application import LevelRole
from rtolap.protocols.coordinator.messages.base import Message
from rtolap.protocols.watermark.messages import ApprovalInfo


class UnitInfo(Message):
    """One (processor, key group) of a level. `oldest_work_ms`: what it has taken in and not finished, None
    if nothing. `holds`: the level's output cannot go beyond it. `awaited`: known from a former leader, it has
    not reported to this one yet, and counts as holding the output where that stands."""

    level: str
    processor: str
    key_group: int
    oldest_work_ms: int | None = None
    behind_ms: int | None = None
    lease_left_ms: int
    awaited: bool = False
    holds: bool = False


class UnitsInfo(Message):
    """`counts`: how many units each level has, of which `units` lists those with the oldest work."""

    application: str
    now_ms: int
    counts: dict[str, int]
    units: tuple[UnitInfo, ...] = ()


class HostTrace(Message):
    """A host in the samples in which it was among those that hold its source most: that owe the most events,
    where the rule is `deficit`, else the furthest behind. `at`: positions in `at_ms` of the history;
    `latest_ms`: what it had been read up to in each, None if it was never seen."""

    host: str
    at: tuple[int, ...]
    latest_ms: tuple[int | None, ...]


class UnitTrace(Message):
    """A unit in the samples in which its work was among the oldest of its level; see HostTrace."""

    processor: str
    key_group: int
    at: tuple[int, ...]
    oldest_work_ms: tuple[int, ...]


class LevelHistory(Message):
    """`input_ms`, `output_ms` and `holding` (hosts not beyond the input watermark) have an entry per
    sample. Of a source that knows no hosts, `hosts` are its partitions; of every source those that have not
    spoken to this leader yet, which then hold it and no host does."""

    role: LevelRole
    input_ms: tuple[int | None, ...]
    output_ms: tuple[int | None, ...]
    holding: tuple[int, ...]
    hosts: tuple[HostTrace, ...] = ()
    units: tuple[UnitTrace, ...] = ()


class ApplicationHistory(Message):
    """Watermarks against the clock, a sample at each of `at_ms`, levels after their upstreams.

    The leader remembers it, from `since_ms` on (None: nothing yet), and it ends with that leader.
    """

    application: str
    epoch: int
    now_ms: int
    since_ms: int | None = None
    at_ms: tuple[int, ...] = ()
    global_ms: tuple[int | None, ...] = ()
    levels: dict[str, LevelHistory] = Field(default_factory=dict)
    approvals: tuple[ApprovalInfo, ...] = ()

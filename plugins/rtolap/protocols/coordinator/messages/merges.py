"""Merges: small segments of history in one set of files."""

from __future__ import annotations

from typing import Literal

from rtolap.protocols.rest.messages import Definition, Message

Level = Literal["day", "month"]


class MergeRequest(Message):
    """A request to plan merges.

    Attributes:
        to: the levels; none: those that the cube declares.
        dry_run: nothing is written: the answer says what would be planned.
    """

    to: tuple[Level, ...] = ()
    dry_run: bool = False


class PlannedMerge(Message):
    """A planned merge.

    Attributes:
        cube: whose segments they are; of a cube with revisions, the revision.
        merge: its id; "" in a dry run.
        interval: `YYYYMMDDhhmmss_YYYYMMDDhhmmss`, in UTC.
        segments: number of its members.
        spec: the JSON of `model.merging.MergeSpec`, which `merge_segments.py` reads; {} in a dry run.
    """

    cube: str
    merge: str
    level: Level
    interval: str
    segments: int
    events: int
    spec: Definition


class RefusedMerge(Message):
    """An interval that cannot be merged now, and why."""

    cube: str
    level: Level
    interval: str
    reason: str


class MergePlans(Message):
    """The merges that were planned.

    Attributes:
        levels: those that were looked at.
        merges: the planned ones, oldest first.
        left: intervals that can be merged and were not planned: plan again, when these are committed.
        merged: intervals that are merged already.
        too_new: intervals that the watermark is not far enough beyond.
    """

    cube: str
    levels: tuple[Level, ...]
    merges: tuple[PlannedMerge, ...] = ()
    refused: tuple[RefusedMerge, ...] = ()
    left: int = 0
    merged: int = 0
    too_new: int = 0
    dry_run: bool = False


class CommittedMerge(Message):
    """A merge whose members name its set.

    Attributes:
        committed: False where they did before.
    """

    cube: str
    merge: str
    level: Level
    interval: str
    segments: int
    events: int
    committed: bool

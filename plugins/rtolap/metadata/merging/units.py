"""Units of a read of history: a merged set, or a version by itself. Pure.

A set holds the rows of all its members, merged. So it answers for all of them together, or not at all:

    unit of a read = a set whose members are all wanted, and still name it    any cuboid, once
                   | a version by itself                                      its base, where it is a member

A version that has replaced a member, a purged member, or a member that is not asked for leaves the others of
its set to answer by themselves. Nobody has to be told: whoever counts the members sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rtolap.base.errors import Corrupted
from rtolap.metadata.records import MergedSet, SegmentRecord
from rtolap.model.merging.intervals import LEVELS
from rtolap.model.segment import SegmentRange


class HistoryUnit(NamedTuple):
    """A unit that a read of history opens: a folder, and the versions that it answers for.

    Attributes:
        location: of a merged set, or of a version.
        records: the versions, by start. All rows of the folder are theirs.
        level: of the merged set; "" for a version by itself.
        is_base_only: of a member its other cuboids may be gone: its set has them.
    """

    location: str
    records: tuple[SegmentRecord, ...]
    level: str
    is_base_only: bool

    @property
    def key(self) -> str:
        """A key of what may be read of it: the folder, and which cuboids."""
        return f"{self.location}\0base" if self.is_base_only else self.location

    @property
    def cube(self) -> str:
        return self.records[0].cube

    @property
    def title(self) -> str:
        first, last = self.records[0], self.records[-1]
        if self.level:
            name = SegmentRange(first.start_ms, last.end_ms).name
            return f"{first.cube}/{name}, {len(self.records)} segments merged to a {self.level}"
        return f"{first.cube}/{first.name} v{first.version}"


def history_units(records: Iterable[SegmentRecord]) -> list[HistoryUnit]:
    """Divide versions into units, each version in one. `records`: READY versions that are wanted, by start.

    Coarser sets come first. A set counts only members that no coarser one has taken. Raises Corrupted for a
    version without a location.
    """
    left = list(records)
    units: list[HistoryUnit] = []
    for level in reversed(LEVELS):
        found = _sets(left, level)
        if not found:
            continue
        units += [HistoryUnit(each.location, tuple(members), level, False) for each, members in found]
        taken = {record.start_ms for _, members in found for record in members}
        left = [record for record in left if record.start_ms not in taken]
    units += [HistoryUnit(location_of(record), (record,), "", bool(record.merged)) for record in left]
    return sorted(units, key=lambda unit: unit.records[0].start_ms) if len(units) > len(left) else units


def whole_sets(records: Iterable[SegmentRecord]) -> dict[str, list[SegmentRecord]]:
    """Return the location of each set all of whose members are among the records, with these."""
    ordered = list(records)
    return {each.location: members for level in LEVELS for each, members in _sets(ordered, level)}


def _sets(records: Sequence[SegmentRecord], level: str) -> list[tuple[MergedSet, list[SegmentRecord]]]:
    """Return the sets of a level whose members are all among the records."""
    by_set: dict[MergedSet, list[SegmentRecord]] = {}
    for record in records:
        for each in record.merged:
            if each.level == level:
                by_set.setdefault(each, []).append(record)
    return [(each, members) for each, members in by_set.items() if len(members) == each.members]


def location_of(record: SegmentRecord) -> str:
    """Return the folder of the READY version. Raises Corrupted where the record names none."""
    if record.location is None:
        raise Corrupted(
            f"{record.cube}/{record.name} is at version {record.version} without a location",
            action="queue the segment to be built again",
        )
    return record.location

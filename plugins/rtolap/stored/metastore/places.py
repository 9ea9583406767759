"""Sets of records of a topic by partition and offset, as ranges: what a batch refuses often lies together.

A range is [start, end). The ranges of a partition are sorted, apart from each other, and not empty, so equal
sets are equal values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Self

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.model.offsets import Offsets

Range = tuple[int, int]
Ranges = tuple[Range, ...]
_END = 1 << 62  # beyond each offset
# Whether an offset belongs to a result, by whether it is in the one set and in the other.
_Belongs = Callable[[bool, bool], bool]


class Places(msgspec.Struct, frozen=True):
    """A set of records. `ranges`: by partition; a partition without records is not in it."""

    ranges: dict[int, Ranges] = {}

    @classmethod
    def of(cls, records: Iterable[tuple[int, int]]) -> Self:
        """Return the set of these (partition, offset)."""
        found: dict[int, list[Range]] = {}
        for partition, offset in sorted(set(records)):
            ranges = found.setdefault(partition, [])
            if ranges and ranges[-1][1] == offset:
                ranges[-1] = (ranges[-1][0], offset + 1)
            else:
                ranges.append((offset, offset + 1))
        return cls({partition: tuple(ranges) for partition, ranges in found.items()})

    @classmethod
    def from_offsets(cls, offsets: Mapping[int, int]) -> Self:
        """Return every record at or beyond these offsets."""
        return cls({partition: ((at, _END),) for partition, at in offsets.items()})

    @classmethod
    def decoded(cls, text: str | bytes) -> Self:
        return cls(decode_json(text, dict[int, Ranges]))

    def encoded(self) -> str:
        return msgspec.json.encode(self.ranges).decode()

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __len__(self) -> int:
        return sum(end - start for ranges in self.ranges.values() for start, end in ranges)

    def __contains__(self, record: tuple[int, int]) -> bool:
        partition, offset = record
        return any(start <= offset < end for start, end in self.ranges.get(partition, ()))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the records in order."""
        for partition in sorted(self.ranges):
            for start, end in self.ranges[partition]:
                for offset in range(start, end):
                    yield partition, offset

    def __or__(self, other: Places) -> Places:
        return self._with(other, lambda mine, others: mine or others)

    def __and__(self, other: Places) -> Places:
        return self._with(other, lambda mine, others: mine and others)

    def __sub__(self, other: Places) -> Places:
        return self._with(other, lambda mine, others: mine and not others)

    def _with(self, other: Places, belongs: _Belongs) -> Places:
        partitions = self.ranges.keys() | other.ranges.keys()
        found = {
            partition: _combined(self.ranges.get(partition, ()), other.ranges.get(partition, ()), belongs)
            for partition in sorted(partitions)
        }
        return Places({partition: ranges for partition, ranges in found.items() if ranges})

    def at_or_beyond(self, offsets: Offsets) -> Places:
        """Return those at or beyond these offsets; of a partition that they do not name, all."""
        unnamed = {partition: 0 for partition in self.ranges if partition not in offsets}
        return self & Places.from_offsets({**unnamed, **offsets})


def _combined(mine: Ranges, others: Ranges, belongs: _Belongs) -> Ranges:
    """Return the ranges of offsets for which `belongs` holds, by one walk over the borders of both."""
    borders = sorted([(at, 0) for one in mine for at in one] + [(at, 1) for one in others for at in one])
    inside = [False, False]
    found: list[Range] = []
    since: int | None = None
    for place, (at, whose) in enumerate(borders):
        inside[whose] = not inside[whose]
        if place + 1 < len(borders) and borders[place + 1][0] == at:
            continue  # more changes at this offset
        holds = belongs(inside[0], inside[1])
        if holds and since is None:
            since = at
        elif not holds and since is not None:
            found.append((since, at))
            since = None
    return tuple(found)

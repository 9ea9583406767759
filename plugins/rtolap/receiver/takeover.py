"""What a receiver has to have read before it may close by an application. Pure.

A watermark is computed from what readers reported. A closing misses no more than the watermark's bound says
if it happens at positions that are not behind those reports. The present leader's own reports are of states
that it holds. A former leader's may be further than the present one has read, and so may what was decided by
them. Three facts keep that apart:

  1. Once the server has taken this reader's first report, it counts on nobody before it: the generation is
     larger, and what an older one says is refused.
  2. Windows that the source's watermark of that moment does not let close can only be let go by a later
     one, so by this reader's own reports. (The sink's may be smaller, held by other levels: it can still
     rise by what a former reader said.)
  3. The others may be due to a former reader. It had read at most to the log's end of that moment, so from
     the positions on that reach a log end looked up afterwards, they may close as well.

A partition that stands still holds nothing back by this, but for the windows of 3: whether the others may
go on without it is the application's rule to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rtolap.model.offsets import Offsets

TERM_BITS = 32  # of a generation; the assignment's epoch stands above them


def generation_of(base: int, assignment_epoch: int, term: int) -> int:
    """Grows with each leader of the replica set, with each assignment, and over re-creations of the cube."""
    return (base + assignment_epoch) << TERM_BITS | term


@dataclass(frozen=True)
class Takeover:
    """The server has taken the first report of this generation, of these partitions.

    watermark_ms        of the cube's source at that moment, or of its sink if that is larger
    approved_until_ms   what people had let go by then
    ends                log ends that were looked up afterwards; None before
    """

    generation: int
    partitions: frozenset[int]
    watermark_ms: int | None = None
    approved_until_ms: int | None = None
    ends: Offsets | None = None

    def caught_up(self, positions: Mapping[int, int]) -> bool:
        """Does it hold everything that a former reader may have reported?"""
        if self.ends is None or not positions.keys() <= self.partitions:
            return False
        return all(position >= self.ends.get(p, position + 1) for p, position in positions.items())

    def may_close(self, end_ms: int, lateness_ms: int, positions: Mapping[int, int]) -> bool:
        """A window that the application lets close, at these positions."""
        if not positions.keys() <= self.partitions:
            return False
        known = (self.watermark_ms, end_ms + lateness_ms), (self.approved_until_ms, end_ms)
        later = all(at_ms is None or at_ms < needed_ms for at_ms, needed_ms in known)
        return later or self.caught_up(positions)

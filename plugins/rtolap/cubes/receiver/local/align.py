"""The exactness rule as arithmetic: which version does an offset of a segment belong to?

For one segment and one partition, with n = the record's version:

    offset   …  covered[p]            target[p]
    ────────────┤──────────────────────┤──────────────▶
      history   │     version n + 1    │  version n + 2      (no target: version n + 1 all the way)

Rank 0 means "not ours": history holds it, the segment is purged, the partition belongs to another replica
set, or the late policy drops it. Rank r > 0 means version n + r.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rtolap.metadata.records import SegmentRecord
from rtolap.model.offsets import Offsets
from rtolap.model.segment import SegmentState

Ranges = dict[int, tuple[int, int]]  # partition → [start, end)
Int64s = npt.NDArray[np.int64]

OFFSET_MAX = np.iinfo(np.int64).max
CANDIDATES_MAX = 64  # windows between a batch's ends that are looked up one by one, without sorting the batch


@dataclass(frozen=True)
class Vectors:
    """A record's statement about offsets.

    Attributes:
        drop_late: True where all that is behind vector 1 is dropped.
    """

    version: int = 0
    covered: Offsets = field(default_factory=dict)
    target: Offsets = field(default_factory=dict)
    purged: bool = False
    drop_late: bool = False

    def cuts(self, partition: int) -> tuple[int, int]:
        """Return offsets at which rank 1 and rank 2 begin."""
        return self.covered.get(partition, 0), self.target.get(partition, OFFSET_MAX)

    def rank(self, partition: int, offset: int) -> int:
        first, second = self.cuts(partition)
        if self.purged or offset < first:
            return 0
        rank = 1 if offset < second else 2
        return 0 if self.is_dropped(rank) else rank

    def is_dropped(self, rank: int) -> bool:
        return self.drop_late and self.version + rank > 1


NO_VECTORS = Vectors()


def vectors_of(record: SegmentRecord | None, *, drop_late: bool) -> Vectors:
    if record is None:
        return Vectors(drop_late=True) if drop_late else NO_VECTORS
    return Vectors(
        version=record.version,
        covered=record.covered,
        target=record.target,
        purged=record.state is SegmentState.PURGED,
        drop_late=drop_late,
    )


@dataclass(frozen=True)
class VersionedRange:
    """`[start, end)` of one partition, all of one version; version 0 is dropped."""

    partition: int
    start: int
    end: int
    version: int


_NO_CUTS: Mapping[int, int] = {}


def pieces(
    vectors: Vectors, ranges: Ranges, owned: Collection[int], cuts: Mapping[int, int] = _NO_CUTS
) -> tuple[VersionedRange, ...]:
    """Cut ranges at the vectors. Ranges of partitions that are not `owned` come out as version 0, and so does
    what lies at or beyond an offset of `cuts`: the log has lost it."""
    piece_list: list[VersionedRange] = []
    for partition, (start, end) in sorted(ranges.items()):
        if partition not in owned:
            piece_list.append(VersionedRange(partition, start, end, 0))
            continue
        first, second = vectors.cuts(partition)
        lost = cuts.get(partition, OFFSET_MAX)
        edges = sorted({start, end, *(cut for cut in (first, second, lost) if start < cut < end)})
        for left, right in pairwise(edges):
            rank = vectors.rank(partition, left) if left < lost else 0
            version = vectors.version + rank if rank else 0
            if piece_list and (piece_list[-1].partition, piece_list[-1].version) == (
                partition,
                version,
            ):
                piece_list[-1] = VersionedRange(partition, piece_list[-1].start, right, version)
            else:
                piece_list.append(VersionedRange(partition, left, right, version))
    return tuple(piece_list)


def versions_of(
    vectors: Vectors, ranges: Ranges, owned: Collection[int], cuts: Mapping[int, int] = _NO_CUTS
) -> tuple[int, ...]:
    """Return versions that a table made out of `ranges` may hold events of, ascending.

    (0,): drop it; (n,): it belongs to version n; more than one: it straddles and has to be realigned.
    """
    return tuple(sorted({piece.version for piece in pieces(vectors, ranges, owned, cuts)}))


@dataclass(frozen=True)
class BatchSplit:
    """Rows of a batch by rank.

    Attributes:
        ranks: None where all rows are of rank 1, in segments without history.
        late_rows: numbers of the rows that came after their segment's first closing.
    """

    ranks: npt.NDArray[np.int8] | None
    late: Int64s  # rows by partition that came after their segment's first closing, kept or dropped
    dropped: Int64s  # rows by partition that will not be counted: purged, or late under the drop policy
    late_rows: npt.NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))

    def rows(self, rank: int) -> npt.NDArray[np.bool_] | None:
        """Return the mask of a rank's rows; None if these are all rows."""
        return None if self.ranks is None else self.ranks == rank


def split_batch(
    segment_ms: Int64s,
    partition: Int64s,
    offset: Int64s,
    vectors: Mapping[int, Vectors],
    *,
    window_ms: int,
    horizon_ms: int | None,
) -> BatchSplit:
    """Return the rank of each row. `vectors` holds the segments that have a record, by start.

    Costs two reductions and a few lookups when no segment of the batch has a record.
    """
    width = int(partition.max(initial=-1)) + 1
    none = np.zeros(width, np.int64)
    if not len(segment_ms):
        return BatchSplit(None, none, none)
    low, high = int(segment_ms.min()), int(segment_ms.max())
    known = _known(segment_ms, low, high, vectors, window_ms)
    below_horizon = horizon_ms is not None and low + window_ms <= horizon_ms
    if not known and not below_horizon:
        return BatchSplit(None, none, none)
    ranks = np.ones(len(segment_ms), np.int8)
    late = np.zeros(len(segment_ms), np.bool_)
    dropped = np.zeros(len(segment_ms), np.bool_)
    for start_ms in known:
        _rank_segment(
            vectors[start_ms], np.flatnonzero(segment_ms == start_ms), partition, offset, ranks, late, dropped
        )
    if below_horizon:
        assert horizon_ms is not None
        gone = segment_ms + window_ms <= horizon_ms
        ranks[gone] = 0
        late[gone] = False
        dropped |= gone
    return BatchSplit(
        ranks,
        np.bincount(partition[late], minlength=width),
        np.bincount(partition[dropped], minlength=width),
        np.flatnonzero(late),
    )


def _known(
    segment_ms: Int64s, low: int, high: int, vectors: Mapping[int, Vectors], window_ms: int
) -> list[int]:
    if not vectors:
        return []
    if (high - low) // window_ms < CANDIDATES_MAX:
        return [start for start in range(low, high + 1, window_ms) if start in vectors]
    return [int(start) for start in np.unique(segment_ms) if int(start) in vectors]


def _rank_segment(
    vectors: Vectors,
    rows: npt.NDArray[np.intp],
    partition: Int64s,
    offset: Int64s,
    ranks: npt.NDArray[np.int8],
    late: npt.NDArray[np.bool_],
    dropped: npt.NDArray[np.bool_],
) -> None:
    if not len(rows):
        return
    if vectors.purged:
        ranks[rows] = 0
        dropped[rows] = True
        return
    at, offsets = partition[rows], offset[rows]
    cuts = np.array([vectors.cuts(p) for p in range(int(at.max()) + 1)], np.int64)
    row_ranks = (offsets >= cuts[at, 0]).astype(np.int8)
    row_ranks += (row_ranks > 0) & (offsets >= cuts[at, 1])
    behind = row_ranks + vectors.version > 1
    behind &= row_ranks > 0
    late[rows] = behind
    if vectors.drop_late:
        dropped[rows] = behind
        row_ranks[behind] = 0
    ranks[rows] = row_ranks

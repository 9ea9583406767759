"""Rows and bytes of the cuboids of a segment, estimated out of a sample of its events.

The segment with the most sampled events stands for all. Its rows are those of the sample, and of what the
sample has not seen: further groups, because their number still grew at the sample's end, and further minutes
where the sample covers a part of the segment's time. Bytes are those of a sampled row in a file of history.

How the number of groups grows: with the events n it is d(n), and each further event is a new group with a
chance of f1/n, where f1 groups have one event (Good, 1953). So the exponent of its growth is f1/d; how that
falls is known too, because d and f1 of half of the sample follow from the counts. The exponent is let fall on
as it did. Duj1 (Haas and Stokes, 1998), which PostgreSQL's ANALYZE uses, finds a quarter of the groups of a
long tail from an eighth of the events; this finds 0.7 to 1.4 of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.columnar.schema import EVENT_MS, physical_schema
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables, to_plain
from rtolap.cubes.format.build_batch import encoded
from rtolap.model.cube import MINUTES, ROWS, Schema, TimeUnit

_UNIT_MS: dict[TimeUnit, int] = {
    "second": 1_000,
    **{unit: minutes * 60_000 for unit, minutes in MINUTES.items()},
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
    "month": 30 * 86_400_000,
    "quarter": 91 * 86_400_000,
    "year": 365 * 86_400_000,
}
_STEADY = 0.9999  # an exponent that falls less is one that does not


@dataclass(frozen=True)
class CuboidSize:
    """The size of a cuboid in a whole segment; `sampled_rows` are those that the sample has of it."""

    dimensions: tuple[str, ...]
    rows: int
    bytes: int
    sampled_rows: int

    @property
    def name(self) -> str:
        return "+".join(self.dimensions) or "_all"


@dataclass(frozen=True)
class SegmentSample:
    """The sampled events of one segment.

    Attributes:
        base: their base cuboid, in local form.
        events: number of sampled events.
        covered: part of the segment's time in which they lie, above 0 and at most 1.
        all_events: of the whole segment, as far as is known.
    """

    schema: Schema
    base: pa.Table
    events: int
    covered: float
    all_events: float

    def size(self, dimensions: Sequence[str]) -> CuboidSize:
        """Estimate the size of one cuboid."""
        table = merge_tables(self.schema, [self.base], dimensions)
        counts = pc.cast(table.column(ROWS), pa.int64()).to_numpy()
        grows = self._grows_with_time(dimensions)
        within = self.all_events * self.covered if grows else self.all_events
        rows = distinct_groups(counts, self.events, within) / (self.covered if grows else 1.0)
        rows = max(float(table.num_rows), min(rows, max(self.all_events, self.events)))
        of_rows, of_none = (
            self._file_bytes(table, dimensions),
            self._file_bytes(table.slice(0, 0), dimensions),
        )
        a_row = (of_rows - of_none) / max(1, table.num_rows)
        return CuboidSize(tuple(dimensions), round(rows), round(of_none + a_row * rows), table.num_rows)

    def _grows_with_time(self, dimensions: Sequence[str]) -> bool:
        """Return True if a later moment of the segment may be another group."""
        units = {f"{unit}_start": length_ms for unit, length_ms in _UNIT_MS.items()}
        return any(units.get(name, self._window_ms) < self._window_ms for name in dimensions)

    def _file_bytes(self, table: pa.Table, dimensions: Sequence[str]) -> int:
        target = physical_schema(self.schema, dimensions, plain=True)
        plain = to_plain(self.schema, table.select(target.names)).cast(target)
        return len(encoded(target, plain.combine_chunks().to_batches())[0])

    @property
    def _window_ms(self) -> int:
        return self.schema.cube.segment.window_ms


def distinct_groups(counts: NDArray[np.int64], sampled: int, all_events: float) -> float:
    """Return an estimate of the number of groups of all events.

    Args:
        counts: number of sampled events, by group.
        sampled: their sum.
    """
    groups, once = len(counts), int(np.count_nonzero(counts == 1))
    if all_events <= sampled or not once:
        return float(groups)
    absent = 0.5**counts  # the chance that a group has no event in half of the sample
    half_groups, half_once = float((1 - absent).sum()), float((counts * absent).sum())
    exponent, half_exponent = once / groups, half_once / half_groups
    falls = min(1.0, exponent / half_exponent)  # with each doubling of the events
    doublings = math.log2(all_events / sampled)
    fallen = doublings if falls > _STEADY else (falls**doublings - 1) / math.log(falls)
    return min(all_events, groups * 2 ** (exponent * fallen))


def segment_sample(schema: Schema, events: pa.Table, events_per_segment: int | None = None) -> SegmentSample:
    """Return the sample of the segment that has the most events.

    Args:
        events: decoded events; at least one.
        events_per_segment: None: as many as the sampled rate gives, of a sample without gaps.
    """
    segments = aggregate_events(schema, events)
    sampled = {start_ms: int(pc.sum(base.column(ROWS)).as_py()) for start_ms, base in segments.items()}
    start_ms = max(sampled, key=lambda each: (sampled[each], each))
    count, window_ms = sampled[start_ms], schema.cube.segment.window_ms
    times = events.column(EVENT_MS).to_numpy()
    times = times[(times >= start_ms) & (times < start_ms + window_ms)]
    unit_ms = _UNIT_MS[schema.cube.finest_unit] if schema.cube.finest_unit else window_ms
    # the first and the last unit count whole: their groups are there
    covered_ms = (int(times.max()) // unit_ms - int(times.min()) // unit_ms + 1) * unit_ms
    if len(np.unique(times // unit_ms)) == 1:
        covered_ms = max(1, min(unit_ms, int(times.max() - times.min()) + 1))
    covered = min(1.0, covered_ms / window_ms)
    all_events = float(events_per_segment or count / covered)
    return SegmentSample(schema, segments[start_ms], count, covered, max(all_events, float(count)))


def per_day(value: int, schema: Schema) -> int:
    """Return what a day has of something that a segment has."""
    return round(value * (timedelta(days=1) / timedelta(milliseconds=schema.cube.segment.window_ms)))

"""Time dimensions and segments of a batch of instants, computed on distinct values only.

Events of one batch share few minutes, so instants are first cut to buckets, buckets are made distinct,
and zones and calendars are consulted once a bucket.

Local times are naive microseconds in the table's zone. When clocks go back, two UTC hours share one local
hour, as a reader of local times expects.
"""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.model.cube import MINUTES, TIME_UNITS, Schema, TimeUnit

_FINE_BUCKET_MS = 1_000
_COARSE_BUCKET_MS = 60_000
_WHOLE_MINUTES_SINCE_MS = 63_072_000_000  # 1972: since then every zone is off UTC by whole minutes


class TimeKeys(NamedTuple):
    """`codes[i]` is the row's place in the other columns, which hold one entry a distinct combination."""

    codes: NDArray[np.int64]
    segment_ms: NDArray[np.int64]
    columns: dict[str, pa.Array]  # time dimensions by physical name, finest first


def time_keys(schema: Schema, event_ms: NDArray[np.int64]) -> TimeKeys:
    """Segment start and all time dimensions of every event, dictionary-encoded together."""
    bucket_ms = _bucket_ms(schema, event_ms)
    buckets = pa.array(event_ms // bucket_ms).dictionary_encode()
    start_ms = buckets.dictionary.to_numpy() * bucket_ms
    units = tuple(unit for unit in TIME_UNITS if unit in schema.cube.time_dimensions)
    first_weekday, window_ms = schema.cube.days_to_first_weekday, schema.cube.segment.window_ms
    known = _of_buckets(start_ms.tobytes(), schema.table.time.zone, units, first_weekday, window_ms)
    return known._replace(codes=known.codes[buckets.indices.to_numpy()])


@lru_cache(maxsize=64)  # one batch after the other has the same few minutes
def _of_buckets(
    starts_ms: bytes, zone: str, units: tuple[TimeUnit, ...], first_weekday: int, window_ms: int
) -> TimeKeys:
    """The keys of bucket starts (little-endian 64-bit). Nobody writes into them."""
    start_ms = np.frombuffer(starts_ms, np.int64)
    segment_ms = start_ms // window_ms * window_ms
    local = local_time(start_ms, zone)
    starts = [floor_local(local, unit, first_weekday).cast(pa.int64()).to_numpy() for unit in units]
    distinct, inverse = np.unique(np.stack([segment_ms, *starts], axis=1), axis=0, return_inverse=True)
    columns = {
        f"{unit}_start": pa.array(np.ascontiguousarray(distinct[:, place])).cast(pa.timestamp("us"))
        for place, unit in enumerate(units, start=1)
    }
    codes = inverse.reshape(-1).astype(np.int64)
    return TimeKeys(codes, np.ascontiguousarray(distinct[:, 0]), columns)


def segment_starts_ms(schema: Schema, event_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Start of each event's segment, in UTC."""
    window_ms = schema.cube.segment.window_ms
    return event_ms // window_ms * window_ms


def local_time(instant_ms: NDArray[np.int64], zone: str) -> pa.Array:
    """Instants → naive local microseconds."""
    instants = pa.array(instant_ms * 1000).cast(pa.timestamp("us"))
    if zone == "UTC":
        return instants
    return pc.local_timestamp(instants.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone)))


def floor_local(local: pa.Array, unit: TimeUnit, first_weekday: int) -> pa.Array:
    """Start of the unit that holds each local time. `first_weekday` of weeks: 0 is Monday."""
    if unit in MINUTES:
        return pc.floor_temporal(local, multiple=MINUTES[unit], unit="minute")
    if unit == "week":
        shift = pa.scalar(timedelta(days=first_weekday), pa.duration("us"))
        return pc.add(pc.floor_temporal(pc.subtract(local, shift), unit="week"), shift)
    return pc.floor_temporal(local, unit=unit)


def _bucket_ms(schema: Schema, event_ms: NDArray[np.int64]) -> int:
    """The widest bucket that never straddles a segment or a unit of local time."""
    window_ms = schema.cube.segment.window_ms
    early = len(event_ms) > 0 and int(event_ms.min()) < _WHOLE_MINUTES_SINCE_MS
    by_seconds = "second" in schema.cube.time_dimensions
    widest = _FINE_BUCKET_MS if early or by_seconds else _COARSE_BUCKET_MS
    return int(np.gcd(widest, window_ms))

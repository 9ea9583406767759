"""Turns events into partial aggregates, and partial aggregates into fewer of them.

All in local form (see `schema`), one grouping for all segments of a batch. A null dimension is a group of its
own, as in SQL. Each function defines what it stores of a group's events and how that merges: see
`rtolap.aggregates`.

Time dimensions and segments are derived from distinct values only. Events of one batch share few minutes, so
instants are first cut to buckets, buckets are made distinct, and zones and calendars are consulted once a
bucket. Local times are naive microseconds in the table's zone. When clocks go back, two UTC hours share one
local hour, as a reader of local times expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.aggregates.accumulator import Partial
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.grouped import GroupedArray, plain_partial
from rtolap.columnar.picked import EventOrder
from rtolap.columnar.schema import EVENT_MS, OFFSET, PARTITION, physical_schema, select_partials
from rtolap.columnar.time_zones import local_time
from rtolap.model.cube import MINUTES, TIME_UNITS, Schema, TimeUnit
from rtolap.scan.groups import Groups, group, keys_of_groups
from rtolap.scan.keys import Coded, code, compact
from rtolap.scan.merge import key_columns, merge_by_codes

# Segments of one batch that get tables of their own; of more (a replay), tables share memory by slices.
_COPIED_SEGMENTS_MAX = 8
_SLICE_ROWS = 1 << 17  # their numbers and one column of values fit a processor's cache
_SLICE_ROWS_MIN = 1 << 12  # fewer are merged with the others at once
_ROWS_PER_KEY_MIN = 4

_FINE_BUCKET_MS = 1_000
_COARSE_BUCKET_MS = 60_000
_WHOLE_MINUTES_SINCE_MS = 63_072_000_000  # 1972: since then every zone is off UTC by whole minutes


def aggregate_events(schema: Schema, table: pa.Table) -> dict[int, pa.Table]:
    """Aggregate decoded events into a local table of all dimensions and partials for each segment start in
    ms, ascending."""
    if table.num_rows == 0:
        return {}
    columns = {name: single_chunk(table.column(name)) for name in table.column_names}
    times = time_keys(schema, columns[EVENT_MS].to_numpy())
    time_key = Coded(times.codes, len(times.segment_ms), None)
    keys = {name: code(columns[name]) for name in schema.cube.dimensions}
    groups = group([time_key, *keys.values()], table.num_rows)
    time_of_group = times.codes[groups.first]
    arrays = [column.take(pa.array(time_of_group)) for column in times.columns.values()]
    arrays += [keys_of_groups(key, groups) for key in keys.values()]
    arrays += [_initial(partial, columns, groups) for partial in schema.partials]
    whole = pa.Table.from_arrays(arrays, schema=physical_schema(schema, plain=False))
    return _by_segment(whole, times.segment_ms[time_of_group])


def merge_tables(
    schema: Schema,
    tables: Sequence[pa.Table],
    dimensions: Sequence[str] | None = None,
    partials: Sequence[str] | None = None,
) -> pa.Table:
    """Merge local tables into one, grouped by `dimensions` (None: all), with `partials` (None: all).

    No dimensions gives one row, or none when there are no rows at all.
    """
    target = physical_schema(schema, dimensions, partials, plain=False)
    chosen = select_partials(schema, partials)
    names = target.names[: len(target) - len(chosen)]
    chosen_columns = [table.select(target.names) for table in tables if table.num_rows]
    pieces = _reduced_in_slices(chosen_columns, names, chosen)
    if not pieces:
        return target.empty_table()
    together = pa.concat_tables([_compacted(piece) for piece in pieces] if len(pieces) > 1 else pieces)
    merged = merge_by_codes(together, key_columns(together, names), chosen, local=True)
    return pa.Table.from_arrays(merged.columns, schema=target)


def _reduced_in_slices(
    tables: Sequence[pa.Table],
    names: Sequence[str],
    chosen: Sequence[Partial],
) -> list[pa.Table]:
    """Return the same rows with those of each slice merged by themselves, where that leaves few.

    A slice stays in the processor's cache, needs no common dictionary and, having few possible keys, no hash.
    """
    if sum(table.num_rows for table in tables) <= _SLICE_ROWS_MIN:
        return list(tables)
    pieces: list[pa.Table] = []
    pays = True  # until a slice says no: its neighbours are like it
    for table in tables:
        for first in range(0, table.num_rows, _SLICE_ROWS):
            rows = table.slice(first, _SLICE_ROWS)
            if pays and rows.num_rows >= _SLICE_ROWS_MIN:
                keys = _few_keys(rows, names)
                pays = keys is not None
                if keys is not None:
                    rows = merge_by_codes(rows, keys, chosen, local=True)
            pieces.append(rows)
    return pieces


def _few_keys(table: pa.Table, names: Sequence[str]) -> dict[str, Coded] | None:
    """Return the coded keys, or None where so many are possible that merging may leave most rows as they
    are.
    """
    possible_max = table.num_rows // _ROWS_PER_KEY_MIN
    columns = [single_chunk(table.column(name)) for name in names]
    in_dictionaries = [len(column.dictionary) + 1 for column in columns if _is_dictionary(column)]
    if prod(in_dictionaries) > possible_max:
        return None
    keys = {name: code(column) for name, column in zip(names, columns, strict=True)}
    return keys if prod(key.radix for key in keys.values()) <= possible_max else None


def _compacted(table: pa.Table) -> pa.Table:
    columns = [compact(single_chunk(column)) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _is_dictionary(column: pa.Array) -> bool:
    return bool(pa.types.is_dictionary(column.type))


def to_plain(schema: Schema, table: pa.Table) -> pa.Table:
    """Return a plain table of the same columns: plain strings, sketches as compact HLL_8 bytes."""
    partials = {partial.name: partial for partial in schema.partials}
    arrays = []
    for name in table.column_names:
        column = single_chunk(table.column(name))
        if name in partials:
            column = plain_partial(column, partials[name])
        elif pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        arrays.append(column)
    return pa.Table.from_arrays(arrays, names=table.column_names)


def _initial(partial: Partial, columns: dict[str, pa.Array], groups: Groups) -> pa.Array:
    column = columns[EVENT_MS if partial.source is None else partial.source]
    order = EventOrder(*(columns[name].to_numpy() for name in (EVENT_MS, PARTITION, OFFSET)))
    return partial.accumulator.begin(GroupedArray(column, groups.ids, groups.size, order), partial.type)


def _by_segment(table: pa.Table, segment_ms: np.typing.NDArray[np.int64]) -> dict[int, pa.Table]:
    starts = np.unique(segment_ms)
    if len(starts) == 1:
        return {int(starts[0]): table}
    if len(starts) <= _COPIED_SEGMENTS_MAX:
        return {int(start): table.filter(pa.array(segment_ms == start)) for start in starts}
    order = np.argsort(segment_ms, kind="stable")
    bounds = [*np.searchsorted(segment_ms[order], starts), len(order)]
    ordered = table.take(pa.array(order))
    return {
        int(start): ordered.slice(first, last - first)
        for start, (first, last) in zip(starts, pairwise(bounds), strict=True)
    }


class TimeKeys(NamedTuple):
    """Keys of the rows' time units.

    Attributes:
        codes: for each row, its place in the other columns, which hold one entry for each distinct
            combination.
    """

    codes: NDArray[np.int64]
    segment_ms: NDArray[np.int64]
    columns: dict[str, pa.Array]  # time dimensions by physical name, finest first


def time_keys(schema: Schema, event_ms: NDArray[np.int64]) -> TimeKeys:
    """Return segment start and all time dimensions of each event, dictionary-encoded together."""
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
    """Return the keys of bucket starts (little-endian 64-bit). Nobody writes into them."""
    start_ms = np.frombuffer(starts_ms, np.int64)
    segment_ms = start_ms // window_ms * window_ms
    local = local_time(start_ms, zone)
    starts = [_floor_local(local, unit, first_weekday).cast(pa.int64()).to_numpy() for unit in units]
    distinct, inverse = np.unique(np.stack([segment_ms, *starts], axis=1), axis=0, return_inverse=True)
    columns = {
        f"{unit}_start": pa.array(np.ascontiguousarray(distinct[:, place])).cast(pa.timestamp("us"))
        for place, unit in enumerate(units, start=1)
    }
    codes = inverse.reshape(-1).astype(np.int64)
    return TimeKeys(codes, np.ascontiguousarray(distinct[:, 0]), columns)


def _floor_local(local: pa.Array, unit: TimeUnit, first_weekday: int) -> pa.Array:
    """Start of the unit that holds each local time. `first_weekday` of weeks: 0 is Monday."""
    if unit in MINUTES:
        return pc.floor_temporal(local, multiple=MINUTES[unit], unit="minute")
    if unit == "week":
        shift = pa.scalar(timedelta(days=first_weekday), pa.duration("us"))
        return pc.add(pc.floor_temporal(pc.subtract(local, shift), unit="week"), shift)
    return pc.floor_temporal(local, unit=unit)


def _bucket_ms(schema: Schema, event_ms: NDArray[np.int64]) -> int:
    """Return the widest bucket that never straddles a segment or a unit of local time."""
    window_ms = schema.cube.segment.window_ms
    early = len(event_ms) > 0 and int(event_ms.min()) < _WHOLE_MINUTES_SINCE_MS
    by_seconds = "second" in schema.cube.time_dimensions
    widest = _FINE_BUCKET_MS if early or by_seconds else _COARSE_BUCKET_MS
    return int(np.gcd(widest, window_ms))

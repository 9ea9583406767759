"""The earliest or latest value of each group, as bytes that order as events do: see `aggregates.by_time`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.aggregates.by_time import KEY_BYTES
from rtolap.aggregates.extremes import INT64_MAX, INT64_MIN
from rtolap.base.errors import Corrupted

_SIGN = np.uint64(1 << 63)  # turns signed numbers into unsigned ones of the same order
_END = (1 << 31) - 1  # without an end Arrow makes room for fewer bytes than none
_KEY = np.dtype([("event_ms", ">u8"), ("partition", ">u4"), ("offset", ">u8")])


class EventOrder(NamedTuple):
    """The key by which events are ordered, an element for each event."""

    event_ms: NDArray[np.int64]
    partition: NDArray[np.int32]
    offset: NDArray[np.int64]


def pick(
    column: pa.Array, ids: NDArray[np.int64], groups: int, order: EventOrder, *, latest: bool
) -> pa.BinaryArray:
    """Return the key and the value of the first or last event of each group that has a value; else null."""
    chosen = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    extreme = np.maximum if latest else np.minimum
    for part in order:  # of those that are equal so far, the last or first of each group
        numbers, own = np.asarray(part, np.int64)[chosen], ids[chosen]
        best = np.full(groups, INT64_MIN if latest else INT64_MAX, np.int64)
        extreme.at(best, own, numbers)
        chosen = chosen[numbers == best[own]]
    event_ms, partition, offset = (np.asarray(part)[chosen] for part in order)
    keys = np.empty(len(chosen), _KEY)
    keys["event_ms"] = event_ms.astype(np.int64).view(np.uint64) ^ _SIGN
    keys["partition"] = partition
    keys["offset"] = offset
    raw = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(KEY_BYTES), len(chosen), [None, pa.py_buffer(keys.tobytes())]
    )
    values = pc.cast(column.take(pa.array(chosen)), pa.string())
    joined = pc.binary_join_element_wise(raw.cast(pa.binary()), values.cast(pa.binary()), pa.scalar(b""))
    place_of_group = np.full(groups, -1, np.int64)
    place_of_group[ids[chosen]] = np.arange(len(chosen))
    return joined.take(pa.array(place_of_group, mask=place_of_group < 0))


def texts(picked: pa.Array) -> pa.StringArray:
    """Return the values as text. Raises Corrupted for bytes that are no picked value."""
    shortest = pc.min(pc.binary_length(picked)).as_py()
    if shortest is not None and shortest < KEY_BYTES:
        raise Corrupted(
            "bytes are no value of FIRST or LAST", expected=f"{KEY_BYTES} or more", found=shortest
        )
    values = pc.binary_slice(picked, KEY_BYTES, _END)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise Corrupted("bytes are no value of FIRST or LAST", found=str(error)) from error

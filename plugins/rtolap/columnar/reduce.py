"""Reductions by group number: exact, null as SQL has it, one pass of numpy or Arrow a column.

Whole numbers and decimals are summed in four limbs of 32 bits, the topmost with its sign, so no batch can
overflow a limb's 64 bits: they hold 2^31 rows. Values beyond the type of the result are refused, never
wrapped. Small values take one 64-bit sum instead, after a look at their range.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.base.errors import Refused
from rtolap.columnar.group_ids import Ids, fold_at, with_values
from rtolap.columnar.hll_image import prune_coupons
from rtolap.columnar.schema import COUPONS
from rtolap.columnar.sum_bounds import DECIMAL_MAX, largest_of, sum_fits, whole_words

_LIMB = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_INT32_MAX = (1 << 31) - 1
_LONG_DIGITS = 18  # of decimals that 64 bits always hold


def count_rows(ids: Ids, groups: int) -> pa.Array:
    return pa.array(np.bincount(ids, minlength=groups).astype(np.int64))


def count_valid(column: pa.Array, ids: Ids, groups: int) -> pa.Array:
    return count_rows(ids[_valid(column)] if column.null_count else ids, groups)


def sum_values(column: pa.Array, ids: Ids, groups: int, target: pa.DataType) -> pa.Array:
    """Sum of the non-null values as `target`; null for a group without any. Refused beyond what it holds."""
    if column.null_count:
        column, ids = with_values(column, ids)
        seen = np.bincount(ids, minlength=groups) > 0
    else:
        seen = np.ones(groups, bool) if len(ids) else np.zeros(groups, bool)
    absent = None if seen.all() else ~seen
    if pa.types.is_floating(target):
        totals = np.bincount(ids, column.cast(pa.float64()).to_numpy(), minlength=groups)
        return pa.array(totals, target, mask=absent)
    low, high = _words(column)
    if _fits(low, high, len(ids)):
        sums = np.zeros(groups, np.int64)
        fold_at(np.add, sums, ids, low.view(np.int64))
        if pa.types.is_integer(target):
            return pa.array(sums, target, mask=absent)
        wide = pa.decimal128(38, target.scale)  # below 38 digits
        return decimals_of_words(sums.view(np.uint64), (sums >> 63).view(np.uint64), wide, absent)
    sum_low, sum_high = _sum_limbs(low, high, ids, groups)
    if pa.types.is_integer(target):
        totals = sum_low.view(np.int64)
        if not np.array_equal(sum_high.view(np.int64), totals >> 63):
            raise Refused("a sum needs more than 64 bits", expected=str(target))
        return pa.array(totals, target, mask=absent)
    return _checked(decimals_of_words(sum_low, sum_high, pa.decimal128(38, target.scale), absent))


def extreme(column: pa.Array, ids: Ids, groups: int, op: str) -> pa.Array:
    """Return the least or greatest value of each group (`op` is "min" or "max"). Strings compare by their
    bytes, nulls are ignored, and a group without a value gives null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return _extreme_longs(column, ids, groups, op)
    table = pa.table({"group": ids, "value": column})
    grouped = table.group_by("group", use_threads=False).aggregate([("value", op)])
    places = np.full(groups, len(grouped), np.int64)
    places[grouped.column("group").to_numpy()] = np.arange(len(grouped))
    return pa.concat_arrays([*grouped.column(f"value_{op}").chunks, pa.nulls(1, kind)]).take(pa.array(places))


def fold_longs(column: pa.Array, ids: Ids, groups: int, ufunc: str, neutral: int) -> pa.Array:
    """Merge integers by a binary function of numpy, as 64-bit integers. A group without values is null."""
    column, ids = with_values(column, ids)
    totals = np.full(groups, neutral, np.int64)
    fold_at(getattr(np, ufunc), totals, ids, column.cast(pa.int64()).to_numpy())
    absent = np.bincount(ids, minlength=groups) == 0
    return pa.array(totals, mask=absent if absent.any() else None)


def distinct_coupons(coupons: pa.Array, ids: Ids, groups: int, lg_k: int) -> pa.ListArray:
    """Return the distinct non-null coupons of each group, sorted.

    Coupons that do not affect the sketch are dropped.
    """
    coupons, ids = with_values(coupons, ids)
    packed = (ids.astype(np.uint64) << _SHIFT) | coupons.to_numpy().astype(np.uint64)
    packed = np.unique(packed)
    flat = (packed & _LIMB).astype(np.uint32)
    lengths = np.bincount((packed >> _SHIFT).astype(np.int64), minlength=groups)
    if int(lengths.max(initial=0)) > 1 << lg_k:
        parts = [prune_coupons(part, lg_k) for part in np.split(flat, np.cumsum(lengths)[:-1])]
        lengths = np.array([len(part) for part in parts], np.int64)
        flat = np.concatenate(parts)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    if offsets[-1] > (1 << 31) - 1:
        raise Refused("one table holds too many sketch coupons", expected="< 2^31", found=int(offsets[-1]))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(flat), type=COUPONS)


def merge_coupons(lists: pa.ListArray, ids: Ids, groups: int, lg_k: int) -> pa.ListArray:
    lengths = np.array(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    return distinct_coupons(lists.flatten(), np.repeat(ids, lengths), groups, lg_k)


def longs_of_decimals(column: pa.Array) -> pa.Array | None:
    """Return the unscaled values as 64-bit numbers; None where one of them needs more."""
    if not len(column):
        return pa.array([], pa.int64())
    low, high = whole_words(column).T
    absent = None
    if column.null_count:  # under a null lies anything
        absent = ~_valid(column)
        low, high = np.where(absent, 0, low), np.where(absent, 0, high)
    if column.type.precision > _LONG_DIGITS and not np.array_equal(high, low >> 63):
        return None
    return pa.array(np.ascontiguousarray(low), mask=absent)


def decimals_of_longs(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return decimals of these unscaled values, which `kind` holds."""
    absent = None if not column.null_count else ~_valid(column)
    low = column.fill_null(0).to_numpy()
    return decimals_of_words(low.view(np.uint64), (low >> 63).view(np.uint64), kind, absent)


def decimals_of_words(
    low: NDArray[np.uint64], high: NDArray[np.uint64], kind: pa.DataType, absent: NDArray[np.bool_] | None
) -> pa.Array:
    """Return decimals out of the low and high words of their unscaled values. `absent`: where null is."""
    words = np.empty((len(low), 2), "<u8")
    words[:, 0], words[:, 1] = low, high
    validity = None
    if absent is not None:
        validity = pa.array(~absent).buffers()[1]
    return pa.Array.from_buffers(kind, len(low), [validity, pa.py_buffer(words)])


def sums_fit_longs(column: pa.Array) -> bool:
    """Tell whether no sum of any of these whole numbers can leave 64 bits."""
    bounds = pc.min_max(column)
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    return least is None or sum_fits(max(abs(least), abs(most)), len(column))


def _valid(column: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _words(column: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.uint64] | None]:
    """Return non-null whole numbers or decimals as 128-bit two's complement: the low words, and the high
    words if they are needed."""
    if not pa.types.is_decimal(column.type):
        return column.cast(pa.int64()).to_numpy().view(np.uint64), None
    words = whole_words(column).view(np.uint64)
    return words[:, 0], None if column.type.precision <= 18 else words[:, 1]


def _fits(low: NDArray[np.uint64], high: NDArray[np.uint64] | None, rows: int) -> bool:
    """Return True when no sum of `rows` such values can leave 64 bits."""
    # All bits of all values together are no smaller than the largest: mostly that is proof enough.
    bits = int(np.bitwise_or.reduce(low))
    if sum_fits(bits, rows) and (high is None or not np.bitwise_or.reduce(high)):
        return True
    values = low.view(np.int64)
    if high is not None and not np.array_equal(high.view(np.int64), values >> 63):
        return False
    return sum_fits(largest_of(values), rows)


def _sum_limbs(
    low: NDArray[np.uint64], high: NDArray[np.uint64] | None, ids: Ids, groups: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    top = (low.view(np.int64) >> 63).view(np.uint64) if high is None else high
    carry = np.zeros(groups, np.uint64)
    limbs = []
    for limb in (low & _LIMB, low >> _SHIFT, top & _LIMB):
        total = carry
        fold_at(np.add, total, ids, limb)
        limbs.append(total & _LIMB)
        carry = total >> _SHIFT
    signed = carry.view(np.int64)
    fold_at(np.add, signed, ids, top.view(np.int64) >> 32)
    if len(signed) and max(int(signed.max()), -int(signed.min()) - 1) > _INT32_MAX:
        raise Refused("a sum needs more than 38 digits", expected="decimal(38)")
    return limbs[0] | limbs[1] << _SHIFT, limbs[2] | signed.view(np.uint64) << _SHIFT


def _checked(wide: pa.Array) -> pa.Array:
    bounds = pc.min_max(wide).as_py()
    if bounds["max"] is not None and max(_unscaled(bounds["max"]), _unscaled(bounds["min"])) > DECIMAL_MAX:
        raise Refused("a sum needs more than 38 digits", found=str(bounds["max"]), expected="decimal(38)")
    return wide


def _unscaled(value: object) -> int:
    _, digits, _ = value.as_tuple()  # type: ignore[attr-defined]
    return int("".join(map(str, digits)))


def _extreme_longs(column: pa.Array, ids: Ids, groups: int, op: str) -> pa.Array:
    kind = column.type
    has_nulls = column.null_count > 0
    column, ids = with_values(column, ids)
    storage = pa.int32() if kind.bit_width == 32 else pa.int64()
    values = column.cast(storage).to_numpy()
    limits = np.iinfo(values.dtype)
    extremes = np.full(groups, limits.max if op == "min" else limits.min, values.dtype)
    fold_at(np.minimum if op == "min" else np.maximum, extremes, ids, values)
    absent = np.bincount(ids, minlength=groups) == 0 if has_nulls else None
    return pa.array(extremes, storage, mask=absent).cast(kind)

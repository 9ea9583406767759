"""Numbers brought into a column's type: null where they do not fit."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

_WIDE_PRECISION = 76  # of the widest decimal: rounding up may need a digit more than the column has
_BOUNDS = {32: 1 << 31, 64: 1 << 63}


def rounded(raw: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Round decimals with more digits behind the point to `wanted`, halves away from zero."""
    wide = pa.decimal256(_WIDE_PRECISION, raw.type.scale)
    nearest = pc.round(raw.cast(wide), ndigits=wanted.scale, round_mode="half_towards_infinity")
    return _within(nearest, wanted).cast(wanted)


def fitting(raw: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return values as `wanted`, which has no fewer digits behind the point. Doubles must be finite."""
    if pa.types.is_floating(wanted):
        column = raw.cast(wanted)
        return pc.if_else(pc.is_finite(column), column, pa.scalar(None, wanted))
    if pa.types.is_decimal(wanted):
        scale = raw.type.scale if pa.types.is_decimal(raw.type) else 0
        return _within(raw.cast(pa.decimal256(_WIDE_PRECISION, scale)), wanted).cast(wanted)
    if pa.types.is_integer(wanted):
        if pa.types.is_decimal(raw.type):
            bound = pa.scalar(Decimal(_BOUNDS[wanted.bit_width]), pa.decimal256(_WIDE_PRECISION, 0))
            wide = raw.cast(bound.type)
            fits = pc.and_(pc.less(wide, bound), pc.greater_equal(wide, pc.negate(bound)))
            return pc.if_else(fits, wide, pa.scalar(None, bound.type)).cast(wanted)
        bound = _BOUNDS[wanted.bit_width]
        fits = pc.and_(pc.less_equal(raw, bound - 1), pc.greater_equal(raw, -bound))
        return pc.if_else(fits, raw, pa.scalar(None, raw.type)).cast(wanted)
    return raw.cast(wanted)


def _within(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the values that have no more digits before the point than `wanted` has."""
    bound = pa.scalar(Decimal(10) ** (wanted.precision - wanted.scale), values.type)
    return pc.if_else(pc.less(pc.abs(values), bound), values, pa.scalar(None, values.type))

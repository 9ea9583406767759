"""Variances in the embedded engine, out of exact sums: see `aggregates.variance`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rtolap.aggregates.variance import LOW_BITS, variance
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.sum_bounds import whole_words

_WORD_BITS = 64


def exact_variance(counts: Any, totals: Any, high: Any, low: Any, missing: Any) -> Any:
    """Return the variance of each group as doubles, null of too few values. It is an Arrow UDF.

    Args:
        counts: of values, int64.
        totals: sums as text, with all their digits behind the point.
        high: sums of the upper parts of the squares, decimal(38, 0).
        low: those of the lower parts.
        missing: 0 for a population, 1 for a sample.
    """
    columns = counts.to_pylist(), totals.to_pylist(), _integers(high), _integers(low), missing.to_pylist()
    return pa.array([_variance(*group) for group in zip(*columns, strict=True)], pa.float64())


def _variance(count: int | None, total: str | None, high: int, low: int, missing: int) -> float | None:
    if not count or total is None:  # no value at all, so no square
        return None
    whole, _, behind = total.partition(".")
    return variance(count, int(whole + behind), (high << LOW_BITS) + low, missing, len(behind))


def _integers(decimals: Any) -> list[int]:
    """Return the values; anything under a null. A loop over `Decimal` objects takes ten times as long."""
    words = whole_words(single_chunk(decimals))
    lower = words[:, 0].view("uint64").tolist()
    return [(top << _WORD_BITS) | bits for top, bits in zip(words[:, 1].tolist(), lower, strict=True)]

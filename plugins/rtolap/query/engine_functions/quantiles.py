"""Quantiles in the embedded engine, out of lists of KLL sketches: see `aggregates.approx_percentile`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rtolap.columnar.kll import quantile


def kll_quantile(lists: Any, ranks: Any) -> Any:
    """Return the quantile of each list's values as doubles. It is an Arrow UDF over list<binary> and double.

    Null for a list without values, and for a rank outside of 0 to 1. Raises Corrupted for bytes that are no
    KLL sketch.
    """
    pairs = zip(lists.to_pylist(), ranks.to_pylist(), strict=True)
    found = [None if images is None or rank is None else quantile(images, rank) for images, rank in pairs]
    return pa.array(found, pa.float64())

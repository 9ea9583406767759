"""Apache DataSketches in the embedded engine: a list of HLL sketches → the number of distinct values."""

from __future__ import annotations

from typing import Any

import datasketches
import pyarrow as pa

LG_K_MAX = 21  # a union takes the precision of the least precise sketch that it is given


def hll_estimate(lists: Any) -> Any:
    """Arrow UDF over list<binary>: rounded estimates; 0 for an empty list, nulls within are skipped."""
    estimates = [_estimate(sketches) for sketches in lists.to_pylist()]
    return pa.array(estimates, pa.float64())


def _estimate(sketches: list[bytes | None] | None) -> float:
    union = datasketches.hll_union(LG_K_MAX)
    for data in sketches or ():
        if data is not None:
            union.update(datasketches.hll_sketch.deserialize(data))
    return float(round(union.get_estimate()))

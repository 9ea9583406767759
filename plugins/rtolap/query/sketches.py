"""Sketches in the embedded engine: a list of HLL sketches → the number of distinct values.

The estimate is a function of the set of values alone: however they lie in memory, fragments and history, and
in whatever order their sketches are united, it is the same to the last bit.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rtolap.format.hll_image import estimate, merge_sketches


def hll_estimate(lists: Any) -> Any:
    """Arrow UDF over list<binary>: rounded estimates; 0 for an empty list, nulls within are skipped.

    Raises Corrupted for bytes that are no HLL sketch.
    """
    return pa.array([_estimate(images) for images in lists.to_pylist()], pa.float64())


def _estimate(images: list[bytes | None] | None) -> float:
    present = [image for image in images or () if image is not None]
    return float(round(estimate(merge_sketches(present)))) if present else 0.0

"""Sketches in the embedded engine: a list of HLL sketches, or of bitmaps → the number of distinct values.

The estimate is a function of the set of values alone: however they lie in memory, fragments and history, and
in whatever order their sketches are united, it is the same to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rtolap.columnar.hll_groups import merge_groups
from rtolap.columnar.hll_image import estimate
from rtolap.columnar.sketches import bitmap_of_image, merge_bitmaps

HLL_ESTIMATE = "hll_estimate"  # as they are registered in the engine
BITMAP_SIZE = "bitmap_size"


def hll_estimate(lists: Any) -> Any:
    """Return rounded estimates. It is an Arrow UDF over list<binary>.

    An empty list gives 0, and nulls within a list are skipped. Raises Corrupted for bytes that are no HLL
    sketch.
    """
    arrays = lists.chunks if isinstance(lists, pa.ChunkedArray) else [lists]
    return pa.array([number for array in arrays for number in _estimates(array)], pa.float64())


def bitmap_size(lists: Any) -> Any:
    """Return exact numbers. It is an Arrow UDF over list<binary>.

    An empty list gives 0, and nulls within a list are skipped. Raises Corrupted for bytes that are no 64-bit
    roaring bitmap.
    """
    arrays = lists.chunks if isinstance(lists, pa.ChunkedArray) else [lists]
    return pa.array([size for array in arrays for size in _sizes(array)], pa.int64())


def _sizes(lists: pa.ListArray) -> list[int]:
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    groups = np.repeat(np.arange(len(lists)), lengths)
    united = merge_bitmaps(lists.flatten(), groups, len(lists)).to_pylist()
    return [0 if image is None else len(bitmap_of_image(image)) for image in united]


def _estimates(lists: pa.ListArray) -> list[float]:
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    groups = np.repeat(np.arange(len(lists)), lengths)
    united = merge_groups(lists.flatten(), groups, len(lists)).to_pylist()
    return [0.0 if image is None else float(round(estimate(image))) for image in united]

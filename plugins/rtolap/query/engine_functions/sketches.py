"""Sketches in the embedded engine: a list of HLL sketches, or of bitmaps → the number of distinct values.

The estimate is a function of the set of values alone: however they lie in memory, fragments and history, and
in whatever order their sketches are united, it is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rtolap.columnar.group_ids import Ids
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
    images = united_lists(lists, merge_groups)
    found = [0.0 if image is None else float(round(estimate(image))) for image in images]
    return pa.array(found, pa.float64())


def bitmap_size(lists: Any) -> Any:
    """Return exact numbers. It is an Arrow UDF over list<binary>.

    An empty list gives 0, and nulls within a list are skipped. Raises Corrupted for bytes that are no 64-bit
    roaring bitmap.
    """
    images = united_lists(lists, merge_bitmaps)
    return pa.array([0 if image is None else len(bitmap_of_image(image)) for image in images], pa.int64())


def united_lists(lists: Any, unite: Callable[[pa.Array, Ids, int], pa.Array]) -> Iterator[Any]:
    """Yield what `unite` makes of each list; it takes the items, the list of each, and how many there are."""
    for chunk in lists.chunks if isinstance(lists, pa.ChunkedArray) else [lists]:
        lengths = chunk.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        owners = np.repeat(np.arange(len(chunk)), lengths)
        yield from unite(chunk.flatten(), owners, len(chunk)).to_pylist()

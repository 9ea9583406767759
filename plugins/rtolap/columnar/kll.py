"""KLL sketches of doubles, group by group, in the public format of Apache DataSketches.

A sketch is an operation by itself: what is looped over are groups, and rows of partials, never events.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasketches import kll_doubles_sketch
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted
from rtolap.columnar.group_ids import Ids, with_values
from rtolap.columnar.sketch_groups import BROKEN, unite_sketches, united

K_MIN, K_MAX = 8, 65_535  # what Apache DataSketches takes


def sketch_groups(column: pa.Array, ids: Ids, groups: int, k: int) -> pa.BinaryArray:
    """Return a sketch of each group's values, as doubles; null for a group without any."""
    column, ids = with_values(column, ids)
    values = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    order = np.argsort(ids, kind="stable")
    values = values[order]
    ends = np.cumsum(np.bincount(ids, minlength=groups)).tolist()
    made = [_sketch(values[start:end], k) if end > start else None for start, end in pairwise((0, *ends))]
    return pa.array(made, pa.binary())


def unite_groups(images: pa.Array | pa.ChunkedArray, ids: Ids, groups: int, k: int) -> pa.BinaryArray:
    """Return the union of each group's sketches; null for a group without any. Raises Corrupted for bytes
    that are no KLL sketch of doubles."""
    return unite_sketches(images, ids, groups, lambda: kll_doubles_sketch(k), read_sketch)


def read_sketch(image: bytes) -> kll_doubles_sketch:
    """Return the sketch of the bytes. Raises Corrupted."""
    try:
        return kll_doubles_sketch.deserialize(image)
    except BROKEN as error:
        raise Corrupted("bytes are no KLL sketch of doubles", found=str(error)) from error


def quantile(images: list[bytes | None], rank: float) -> float | None:
    """Return the smallest value below or at which that share of all values lies, within the error of the
    sketches; None of no value."""
    sketch = united(images, read_sketch)
    if sketch is None or sketch.is_empty() or not 0 <= rank <= 1 or math.isnan(rank):
        return None
    return float(sketch.get_quantile(rank, inclusive=True))


def _sketch(values: NDArray[np.float64], k: int) -> bytes:
    sketch = kll_doubles_sketch(k)
    sketch.update(values)
    return bytes(sketch.serialize())

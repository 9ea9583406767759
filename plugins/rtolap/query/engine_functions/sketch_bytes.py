"""Sketches as bytes in the embedded engine, out of lists of sketches: see `aggregates.sketch_bytes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from rtolap.columnar import kll, top_k
from rtolap.columnar.hll_groups import merge_groups
from rtolap.columnar.hll_image import is_empty
from rtolap.columnar.sketch_groups import Mergeable, united
from rtolap.query.engine_functions.sketches import united_lists


def hll_bytes(lists: Any) -> Any:
    """Return compact HLL_8 sketches, the union of each list. It is an Arrow UDF over list<binary>.

    Equal sets of values give equal bytes. Null for a list without values. Raises Corrupted for bytes that are
    no HLL sketch.
    """
    images = united_lists(lists, merge_groups)
    return pa.array([None if image is None or is_empty(image) else image for image in images], pa.binary())


def kll_bytes(lists: Any) -> Any:
    """Return KLL sketches of doubles, the union of each list. It is an Arrow UDF over list<binary>.

    Null for a list without values. Raises Corrupted for bytes that are no KLL sketch.
    """
    return _united(lists, kll.read_sketch)


def frequent_items_bytes(lists: Any) -> Any:
    """Return frequent-items sketches of texts, the union of each list. It is an Arrow UDF over list<binary>.

    Null for a list without values. Raises Corrupted for bytes that are no such sketch.
    """
    return _united(lists, top_k.read_sketch)


def _united(lists: Any, read: Callable[[bytes], Mergeable]) -> pa.BinaryArray:
    found: list[bytes | None] = []
    for images in lists.to_pylist():
        sketch = united(images or (), read)
        found.append(None if sketch is None or sketch.is_empty() else bytes(sketch.serialize()))
    return pa.array(found, pa.binary())

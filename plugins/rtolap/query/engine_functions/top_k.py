"""The most frequent values in the embedded engine, out of sketches: see `aggregates.approx_top_k`."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from rtolap.aggregates.approx_top_k import TOP_MAX
from rtolap.columnar.top_k import most_frequent


def top_k_json(lists: Any, counts: Any) -> Any:
    """Return the most frequent values of each list as a text of JSON. It is an Arrow UDF over
    list<binary> and bigint.

    The text is an array of objects with `value`, `estimate`, `lower` and `upper`. Null for a list without
    values, and for a number outside of 1 to TOP_MAX. Raises Corrupted for bytes that are no such sketch.
    """
    pairs = zip(lists.to_pylist(), counts.to_pylist(), strict=True)
    return pa.array([_text(images, count) for images, count in pairs], pa.string())


def _text(images: list[bytes | None] | None, count: int | None) -> str | None:
    if images is None or count is None or not 1 <= count <= TOP_MAX:
        return None
    found = most_frequent(images, count)
    return json.dumps([each._asdict() for each in found], ensure_ascii=False) if found else None

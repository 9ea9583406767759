"""Values of FIRST and LAST in the embedded engine: see `aggregates.by_time`."""

from __future__ import annotations

from typing import Any

from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.picked import texts


def picked_text(column: Any) -> Any:
    """Return the value of each partial as text, and null for null. It is an Arrow UDF over binary.

    Raises Corrupted for bytes that are no such partial.
    """
    return texts(single_chunk(column))

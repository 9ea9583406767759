"""Sketches of a library united group by group: what KLL and frequent-items sketches have in common.

A sketch is an operation by itself: what is looped over are groups and rows of partials, never events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Exceptions that Apache DataSketches raises of bytes that are no sketch.
BROKEN = (ValueError, IndexError, RuntimeError, MemoryError)


class Mergeable(Protocol):
    """A sketch of the library."""

    def merge(self, sketch: Any) -> None: ...

    def serialize(self) -> bytes: ...

    def is_empty(self) -> bool: ...


S = TypeVar("S", bound=Mergeable)


def united(images: Iterable[bytes | None], read: Callable[[bytes], S]) -> S | None:
    """Return the union of sketches; None where all are None. Raises what `read` does of broken bytes."""
    union: S | None = None
    for image in images:
        if image is None:
            continue
        sketch = read(image)
        if union is None:
            union = sketch
        else:
            union.merge(sketch)
    return union


def unite_sketches(
    images: pa.Array | pa.ChunkedArray,
    ids: NDArray[np.int64],
    groups: int,
    new: Callable[[], S],
    read: Callable[[bytes], S],
) -> pa.BinaryArray:
    """Return the union of each group's sketches; null for a group without any.

    Raises what `read` does of broken bytes. The only sketch of a group keeps its bytes: mostly it stays so.
    """
    united: dict[int, S] = {}
    alone: dict[int, bytes] = {}
    for group, image in zip(ids.tolist(), images.to_pylist(), strict=True):
        if image is None:
            continue
        if group not in united and group not in alone:
            read(image)
            alone[group] = image
            continue
        if group not in united:
            united[group] = new()
            united[group].merge(read(alone.pop(group)))
        united[group].merge(read(image))
    return written(united, groups, alone)


def written(
    sketches: Mapping[int, Mergeable], groups: int, alone: Mapping[int, bytes] | None = None
) -> pa.BinaryArray:
    """Return the bytes of each group's sketch; `alone`: of groups that have them already."""
    images = dict(alone or {}) | {group: bytes(sketch.serialize()) for group, sketch in sketches.items()}
    return pa.array([images.get(group) for group in range(groups)], pa.binary())

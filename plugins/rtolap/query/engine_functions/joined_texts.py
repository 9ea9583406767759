"""Joined texts in the embedded engine, out of lists of partials: see `aggregates.group_concat`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rtolap.base.errors import Corrupted
from rtolap.columnar.joined_texts import shown_texts


def joined_texts(lists: Any, separators: Any) -> Any:
    """Return the texts of each list, joined. It is an Arrow UDF over list<binary> and text.

    Null for a list without values, and for a null separator. Raises Corrupted for other bytes.
    """
    pairs = zip(lists.to_pylist(), separators.to_pylist(), strict=True)
    return pa.array([_joined(images, separator) for images, separator in pairs], pa.string())


def texts_are_cut(lists: Any) -> Any:
    """Return whether a list has more texts than its measure keeps. It is an Arrow UDF over list<binary>."""
    found = [None if images is None else shown_texts(images) for images in lists.to_pylist()]
    return pa.array([shown is not None and shown.is_cut for shown in found], pa.bool_())


def _joined(images: list[bytes | None] | None, separator: str | None) -> str | None:
    shown = None if images is None or separator is None else shown_texts(images)
    if shown is None or separator is None:
        return None
    try:
        return separator.join(text.decode() for text in shown.texts)
    except UnicodeDecodeError as error:
        raise Corrupted("bytes are no joined texts", found=str(error)) from error

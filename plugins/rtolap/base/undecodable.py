"""The errors that msgspec raises for unexpected bytes: its own, and those of deep nesting."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted

UNDECODABLE: tuple[type[Exception], ...] = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
T = TypeVar("T")


def decode_own(data: bytes | str, kind: type[T], damage: str, *, action: str | None = None) -> T:
    """Decode JSON that this product has written. Raises Corrupted, which says `damage`."""
    try:
        return decode_json(data, kind)
    except UNDECODABLE as error:
        raise Corrupted(damage, found=str(error), action=action) from error

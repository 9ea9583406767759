"""Records to bytes and back.

Unknown fields are ignored, so that a newer writer does not stop an older reader.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from rtolap.base.undecodable import decode_own

T = TypeVar("T")


def encode(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


def decode(data: bytes, kind: type[T], where: str) -> T:
    return decode_own(
        data,
        kind,
        f"{where} does not hold a {kind.__name__}",
        action="restore the node from a backup, or remove it if the cube can be replayed",
    )

"""CRC-32 in the embedded engine, which has none: a function over a column of bytes."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa

CRC32 = "crc32_of"  # as it is registered in the engine


def crc32(column: Any) -> Any:
    """Return MySQL's CRC32 of each value, and null for null. It is an Arrow UDF over binary."""
    return pa.array(
        [None if value is None else zlib.crc32(value) for value in column.to_pylist()], pa.int64()
    )

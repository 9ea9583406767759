"""Cell blocks as a region server answers a read with: puts, one behind the other."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def cell_block(cells: Iterable[tuple[bytes, bytes, bytes, bytes]], timestamp_ms: int = 1) -> bytes:
    """Return a block of cells, which are row, family, qualifier, value."""
    block = b""
    for row, family, qualifier, value in cells:
        key = struct.pack(">h", len(row)) + row + bytes([len(family)]) + family + qualifier
        key += struct.pack(">qB", timestamp_ms, 4)
        cell = struct.pack(">ii", len(key), len(value)) + key + value
        block += struct.pack(">i", len(cell)) + cell
    return block

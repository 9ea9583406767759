"""Damage to the bytes of a fragment, in place: also for who has it mapped, and as Arrow can read them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from rtolap.model.cube import ROWS


def damage_count(file: Path, row: int = 0) -> None:
    """Change the number of events of a row of an `.arrow` file: what only a checksum tells, and a wrong count
    otherwise."""
    content = pa.py_buffer(file.read_bytes())
    counts = pa.ipc.open_file(content).read_all().column(ROWS).chunk(0)
    at = counts.buffers()[1].address - content.address + row * (counts.type.bit_width // 8)
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes([content[at] ^ 0xFF]))

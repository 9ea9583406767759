"""Damage to bytes of files, in place: also for who has them mapped or has compared them before."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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


def change_bit(file: Path, at: int, bit: int = 0) -> None:
    """Change a bit of a file, whose times stay. Done again, the file is as it was."""
    about = file.stat()
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 1 << bit]))
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))


def column_spans(file: Path, name: str) -> list[tuple[int, int]]:
    """Return begin and end of the pages of a column of a Parquet file, with their headers, by row group. The
    byte before an end is of the values in a page."""
    spans = []
    metadata = pq.read_metadata(file)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema == name:
                begin = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)))
                spans.append((begin, begin + column.total_compressed_size))
    return spans


def change_unnoticed(file: Path, name: str) -> tuple[int, int]:
    """Change a bit of a column of a Parquet file so that a reader without checksums reads another value.

    Return its place, for `change_bit`.
    """
    whole = pq.read_table(file)
    for begin, end in column_spans(file, name):
        for at in range(end - 1, begin, -1):
            for bit in range(8):
                change_bit(file, at, bit)
                try:
                    if not pq.read_table(file).equals(whole):
                        return at, bit
                except (OSError, pa.ArrowException):
                    pass
                change_bit(file, at, bit)
    raise AssertionError(f"every change of {name} is noticed")

"""The number of rows that are merged at once: bounded in rows and in their bytes.

Arrow's texts of one array end at 2 GiB, and a row of some kilobytes gets there with the usual number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rtolap.stored.engine.files.sorted_file import SortedFile
from rtolap.stored.engine.settings import TabletSettings


def piece_rows(files: Iterable[tuple[SortedFile, Sequence[str]]], settings: TabletSettings) -> int:
    """Return how many rows of these files, each with the columns that are read, to merge at once; never less
    than a block.
    """
    widest = max((_row_bytes(file, columns) for file, columns in files), default=1)
    fitting = max(settings.block_rows, settings.memtable_bytes_max // widest)
    return min(settings.merge_rows_max, fitting)


def _row_bytes(file: SortedFile, columns: Sequence[str]) -> int:
    """In memory, by the widest of some blocks: on the disk they may be compressed."""
    if not file.rows or not columns:
        return 1
    reader, size = file.reader(columns), file.footer.block_rows
    widest = 1
    for block in sorted({0, file.blocks // 2, file.blocks - 1}):
        table = reader.slice(block * size, (block + 1) * size)
        widest = max(widest, int(table.nbytes) // table.num_rows)
    return widest

"""Bounds of one tablet."""

from __future__ import annotations

import msgspec

from rtolap.stored.engine.files.writer import BLOCK_ROWS, Compression


class TabletSettings(msgspec.Struct, frozen=True):
    """Memory: a load holds `memtable_bytes_max` and, while it is flushed, about twice that again. Merging
    (compaction, reading aggregate tables) holds `merge_rows_max` rows, or fewer where these are more than
    `memtable_bytes_max`, and a block of every file.

    `compaction_bytes_max` bounds what one run reads; what is larger by itself is left alone. A run begins
    with `compaction_files_min` files of like size, or with one that has `rewrite_deleted_ppm` deleted rows.
    A log longer than `log_bytes_max`, and than twice its first record, starts over.
    """

    memtable_bytes_max: int = 64 << 20
    merge_rows_max: int = 262_144
    compaction_bytes_max: int = 1 << 30
    compaction_files_min: int = 4
    rewrite_deleted_ppm: int = 300_000
    block_rows: int = BLOCK_ROWS
    log_bytes_max: int = 1 << 20
    load_compression: Compression | None = None
    compaction_compression: Compression | None = "lz4"

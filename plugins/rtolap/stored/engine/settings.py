"""Bounds of one tablet."""

from __future__ import annotations

import msgspec

from rtolap.stored.engine.files.writer import BLOCK_ROWS, Compression


class TabletSettings(msgspec.Struct, frozen=True):
    """The settings of tablets.

    Attributes:
        memtable_bytes_max: the rows that a load holds in memory. While they are flushed, it takes about three
            times as much.
        merge_rows_max: the rows that compactions and reads of aggregate tables merge at once; fewer where
            they exceed `memtable_bytes_max`. A block of every file is in memory too.
        compaction_bytes_max: the most bytes that one compaction reads. A larger file is not compacted.
        compaction_files_min: the number of files of like size that start a compaction.
        rewrite_deleted_ppm: the part of deleted rows, per million, from which a single file is compacted.
        log_bytes_max: a log that is longer than this, and than twice its first record, is started again.
        load_compression: the compression of files that loads write; None for none.
        compaction_compression: the compression of files that compactions write; None for none.
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

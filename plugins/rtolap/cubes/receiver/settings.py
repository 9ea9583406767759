"""Bounds of a receiver, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReceiverSettings:
    """Bounds and intervals of a receiver's cubes.

    Attributes:
        batch_records_max: largest number of records of a batch; a larger batch falls out of the processor's
            cache and slows down.
        batch_bytes_max: bytes of one batch's values; the batch ends with the record that reaches them.
        flush_rows: aggregated rows in memory before a checkpoint writes them out.
        flush_bytes: aggregated bytes in memory before a checkpoint writes them out.
        checkpoint_interval_s: bounds what a restart reads again.
        fragments_max: fragments of one version of a segment before they are merged.
        merge_rows_max: rows that a merge reads at once; it makes no larger fragments.
        merge_bytes_max: bytes that a merge reads at once; it makes no larger fragments. A merge takes about
            two and a half times as much memory.
        unbuilt_segments_max: closed segments that wait for history; above it the consumer pauses.
        disk_free_bytes_min: the consumer pauses below it and resumes at twice as much.
        idle_after_s: silence at the log's end after which a partition no longer delays the watermark.
        realign_records_max: number of records that are read again at once.
        result_bytes_max: bytes of results of repeated statements, for one cube; results beyond are forgotten.
            The codes of its tables, for statements that come once, take as much at most.
        cuboid_bytes_max: bytes of small cuboids beside the fragments of one cube; 0 makes none.
        retry_s: pause after a failed flush, merge, upload or realignment.
    """

    batch_records_max: int = 50_000
    batch_bytes_max: int = 64 << 20
    flush_rows: int = 50_000
    flush_bytes: int = 256 << 20
    checkpoint_interval_s: float = 300.0
    fragments_max: int = 8
    merge_rows_max: int = 2_000_000
    merge_bytes_max: int = 64 << 20
    unbuilt_segments_max: int = 100
    disk_free_bytes_min: int = 512 << 20
    idle_after_s: float = 5.0
    realign_records_max: int = 50_000
    result_bytes_max: int = 32 << 20
    cuboid_bytes_max: int = 32 << 20
    retry_s: float = 5.0

"""Bounds of a receiver, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReceiverSettings:
    """batch_records_max         a batch beyond this falls out of the processor's cache and slows down
    batch_bytes_max           values of one batch; it ends with the record that reaches it
    flush_rows, flush_bytes   aggregated rows and bytes in memory before a checkpoint writes them out
    checkpoint_interval_s     bounds what a restart reads again
    fragments_max             fragments of one version of a segment before they are merged
    merge_rows_max, merge_bytes_max   a merge reads no more than this at once, and makes no larger fragments
    unbuilt_segments_max      closed segments that wait for history; above it the consumer pauses
    disk_free_bytes_min       below it the consumer pauses; it resumes at twice as much
    idle_after_s              silence at the log's end after which a partition does not hold the watermark
    realign_records_max       records read again in one go
    result_bytes_max          results of statements that come again, of one cube; those beyond are forgotten
    cuboid_bytes_max          small cuboids beside the fragments of one cube; 0: none are made
    retry_s                   pause after a failed flush, merge, upload or realignment
    """

    batch_records_max: int = 50_000
    batch_bytes_max: int = 64 << 20
    flush_rows: int = 50_000
    flush_bytes: int = 256 << 20
    checkpoint_interval_s: float = 300.0
    fragments_max: int = 8
    merge_rows_max: int = 2_000_000
    merge_bytes_max: int = 512 << 20
    unbuilt_segments_max: int = 100
    disk_free_bytes_min: int = 512 << 20
    idle_after_s: float = 5.0
    realign_records_max: int = 50_000
    result_bytes_max: int = 32 << 20
    cuboid_bytes_max: int = 32 << 20
    retry_s: float = 5.0

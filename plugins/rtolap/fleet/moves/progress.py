"""The progress of a move's copies, and whether they gain on what is written to the partition meanwhile.

A copy whose throttle is near the rate of writes grows all the time and never ends. It may not grow at all,
because what leaders send to replicas in sync counts against the throttle too. The bytes that the copy lacks
are therefore the measure. Over `pace_ms` they have to shrink by a share of the copied bytes; otherwise the
move is behind.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rtolap.fleet.moves.look import Look
from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.records import MoveRecord, PaceStart
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.kafka.administration.values import PartitionDescription, Replica


class Copies(NamedTuple):
    """Sizes of the copies of one move.

    Attributes:
        left_bytes: Bytes that the copies lack. None where the leader does not report its size.
        source_bytes: Size of the leader's replica. None where the leader does not report it.
    """

    copied_bytes: int
    left_bytes: int | None
    source_bytes: int | None


def copies_of(move: PlannedMove, described: PartitionDescription, look: Look) -> Copies:
    """Return the sizes of copies between brokers and between disks. Replicas that stay do not count."""
    leader = look.replicas.get(Replica(move.partition, described.leader))
    source_bytes = None if leader is None else leader.size_bytes
    copied_bytes, left_bytes = 0, 0
    for broker, path in move.coming().items():
        replica = Replica(move.partition, broker)
        placed, coming = look.replicas.get(replica), look.coming.get(replica)
        placed_bytes = 0 if placed is None else placed.size_bytes
        coming_bytes = 0 if coming is None else coming.size_bytes
        if broker not in move.before:
            copied_bytes += placed_bytes + coming_bytes
            left_bytes += max(0, (source_bytes or 0) - placed_bytes)
        elif placed is not None and placed.path == path:
            copied_bytes += placed_bytes
        else:
            copied_bytes += coming_bytes
            left_bytes += max(0, placed_bytes - coming_bytes)
    return Copies(copied_bytes, None if source_bytes is None else left_bytes, source_bytes)


def with_progress(
    record: MoveRecord,
    move: PlannedMove,
    described: PartitionDescription,
    look: Look,
    now_ms: int,
    settings: MoverSettings,
) -> MoveRecord:
    """Return the same record where nothing has grown."""
    copies = copies_of(move, described, look)
    record = _with_pace(record, copies, now_ms, settings)
    if copies.copied_bytes < record.copied_bytes:
        if not all(broker in look.reporting for broker in move.after):
            return record
        # a disk was exchanged for another
        return msgspec.structs.replace(record, copied_bytes=copies.copied_bytes, bytes_per_s=0.0, pace=None)
    if copies.copied_bytes == record.copied_bytes:
        return record
    elapsed_s = max(0.001, (now_ms - record.progressed_ms) / 1000)
    grown_bytes = copies.copied_bytes - record.copied_bytes
    return msgspec.structs.replace(
        record,
        copied_bytes=copies.copied_bytes,
        bytes_per_s=grown_bytes / elapsed_s if record.copied_bytes else 0.0,
        left_bytes=copies.left_bytes,
        progressed_ms=now_ms,
    )


def _with_pace(record: MoveRecord, copies: Copies, now_ms: int, settings: MoverSettings) -> MoveRecord:
    if copies.left_bytes is None or copies.source_bytes is None:
        return record
    begun = record.pace
    start = PaceStart(now_ms, copies.copied_bytes, copies.left_bytes, copies.source_bytes)
    if begun is None:
        return msgspec.structs.replace(record, pace=start)
    elapsed_ms = now_ms - begun.at_ms
    copied_bytes = copies.copied_bytes - begun.copied_bytes
    if elapsed_ms < (settings.pace_ms if copied_bytes else 2 * settings.pace_ms):
        return record  # a low throttle lets a fetch pass now and then: it is waited for
    gained_bytes = begun.left_bytes - copies.left_bytes
    return msgspec.structs.replace(
        record,
        pace=start,
        written_bytes_per_s=max(0, copies.source_bytes - begun.source_bytes) * 1000 / elapsed_ms,
        behind=copies.left_bytes > 0 and gained_bytes < settings.gain_share * copied_bytes,
    )

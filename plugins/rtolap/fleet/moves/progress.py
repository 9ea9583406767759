"""The progress of a move's copies, and whether they gain on what is written to the partition meanwhile.

A copy under a throttle that is near the rate of writes grows all the time and never ends, or not at all, for
what leaders send to replicas in sync counts against the throttle too. So what it lacks is what tells: over
`pace_ms` it must lack less by a share of what was copied; otherwise the move is behind.
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
    """left_bytes, source_bytes: None where the leader does not tell."""

    copied_bytes: int
    left_bytes: int | None
    source_bytes: int | None


def copies_of(move: PlannedMove, described: PartitionDescription, look: Look) -> Copies:
    """Return copies between brokers and between disks; replicas that stay where they are take no part."""
    leader = look.held.get(Replica(move.partition, described.leader))
    source_bytes = None if leader is None else leader.size_bytes
    copied_bytes, left_bytes = 0, 0
    for broker, path in move.coming().items():
        replica = Replica(move.partition, broker)
        held, coming = look.held.get(replica), look.coming.get(replica)
        held_bytes = 0 if held is None else held.size_bytes
        coming_bytes = 0 if coming is None else coming.size_bytes
        if broker not in move.before:
            copied_bytes += held_bytes + coming_bytes
            left_bytes += max(0, (source_bytes or 0) - held_bytes)
        elif held is not None and held.path == path:
            copied_bytes += held_bytes
        else:
            copied_bytes += coming_bytes
            left_bytes += max(0, held_bytes - coming_bytes)
    return Copies(copied_bytes, None if source_bytes is None else left_bytes, source_bytes)


def with_progress(
    kept: MoveRecord,
    move: PlannedMove,
    described: PartitionDescription,
    look: Look,
    now_ms: int,
    settings: MoverSettings,
) -> MoveRecord:
    """Return the same record where nothing has grown."""
    copies = copies_of(move, described, look)
    kept = _with_pace(kept, copies, now_ms, settings)
    if copies.copied_bytes < kept.copied_bytes:
        if not all(broker in look.told for broker in move.after):
            return kept
        # a disk was exchanged for another
        return msgspec.structs.replace(kept, copied_bytes=copies.copied_bytes, bytes_per_s=0.0, pace=None)
    if copies.copied_bytes == kept.copied_bytes:
        return kept
    elapsed_s = max(0.001, (now_ms - kept.progressed_ms) / 1000)
    grown_bytes = copies.copied_bytes - kept.copied_bytes
    return msgspec.structs.replace(
        kept,
        copied_bytes=copies.copied_bytes,
        bytes_per_s=grown_bytes / elapsed_s if kept.copied_bytes else 0.0,
        left_bytes=copies.left_bytes,
        progressed_ms=now_ms,
    )


def _with_pace(kept: MoveRecord, copies: Copies, now_ms: int, settings: MoverSettings) -> MoveRecord:
    if copies.left_bytes is None or copies.source_bytes is None:
        return kept
    begun = kept.pace
    start = PaceStart(now_ms, copies.copied_bytes, copies.left_bytes, copies.source_bytes)
    if begun is None:
        return msgspec.structs.replace(kept, pace=start)
    elapsed_ms = now_ms - begun.at_ms
    copied_bytes = copies.copied_bytes - begun.copied_bytes
    if elapsed_ms < (settings.pace_ms if copied_bytes else 2 * settings.pace_ms):
        return kept  # a low throttle lets a fetch pass now and then: it is waited for
    gained_bytes = begun.left_bytes - copies.left_bytes
    return msgspec.structs.replace(
        kept,
        pace=start,
        written_bytes_per_s=max(0, copies.source_bytes - begun.source_bytes) * 1000 / elapsed_ms,
        behind=copies.left_bytes > 0 and gained_bytes < settings.gain_share * copied_bytes,
    )

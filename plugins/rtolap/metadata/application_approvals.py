"""Which approvals of an application are kept: the newest, as many as one node holds."""

from __future__ import annotations

from collections.abc import Sequence

from rtolap.metadata import codec
from rtolap.metadata.records import Approval

APPROVALS_KEPT = 500
BYTES_MAX = 700_000  # a node holds 1 MB


def with_approval(before: Sequence[Approval], approval: Approval) -> tuple[Approval, ...]:
    """Add an approval. Repeating one changes nothing; the one that goes furthest stays: an approval is
    final."""
    if approval in before:
        return tuple(before)
    furthest = max(before, key=lambda earlier: earlier.until_ms, default=approval)
    chosen = {furthest, approval}
    room = BYTES_MAX - sum(map(_size, chosen))
    for earlier in reversed(before):
        if earlier in chosen:
            continue
        room -= _size(earlier)
        if room < 0 or len(chosen) == APPROVALS_KEPT:
            break
        chosen.add(earlier)
    return (*(earlier for earlier in before if earlier in chosen), approval)


def _size(approval: Approval) -> int:
    return len(codec.encode(approval)) + 1

"""Where the copying to remote storage is behind.

Brokers tell offsets and the bytes on their disks. The bytes of what is local only are estimated: the share of
its offsets in the local bytes. A closed segment has at most `segment.bytes`, and the active one, which is not
copied, too; so what is local only holds at least estimate / segment.bytes - 1 closed segments. Where segments
are closed by time they are smaller, and there are more: then brokers' agents, which count them after each
round of copying, tell more than the estimate.
"""

from __future__ import annotations

import numpy as np

from rtolap.fleet.snapshot.model import UNKNOWN, Flags, Int64s
from rtolap.fleet.tiers.view import Tier, TierView

SEGMENTS_BEHIND = 2
"""So many closed segments of a partition that are not copied are a lag: one is copied at any time."""


def uncopied_bytes(view: TierView) -> Int64s:
    """About so many bytes of each partition are local only; `UNKNOWN` where offsets or bytes are."""
    partitions = view.partitions
    local_only = partitions.offsets(Tier.LOCAL_ONLY)
    held = local_only + partitions.offsets(Tier.LOCAL_AND_REMOTE)
    unknown = (local_only == UNKNOWN) | (partitions.local_bytes == UNKNOWN)
    estimate = partitions.local_bytes * (local_only / np.maximum(held, 1))
    return np.where(unknown, UNKNOWN, np.round(estimate).astype(np.int64))


def segments_behind(view: TierView) -> Int64s:
    """At least so many closed segments of each partition are not copied; `UNKNOWN` as above."""
    uncopied = uncopied_bytes(view)
    segment_bytes = np.maximum(view.topics.segment_bytes[view.partitions.topics], 1)
    behind = np.maximum(-(-uncopied // segment_bytes) - 1, 0)
    return np.where(uncopied == UNKNOWN, UNKNOWN, behind)


def lagging(view: TierView, segments: int = SEGMENTS_BEHIND) -> Flags:
    """The partitions whose copying is behind by as many closed segments, or more.

    Where an agent counts as many for each partition of the topic that its broker leads, and no estimate names
    one of them, the one with most that is not copied is named. A topic whose copying is off never lags.
    """
    partitions = view.partitions
    found = segments_behind(view) >= segments
    uncopied = uncopied_bytes(view)
    for topic, broker, counted in zip(
        view.copies.topics, view.copies.brokers, view.copies.lag_segments, strict=True
    ):
        led = np.flatnonzero((partitions.topics == topic) & (partitions.leaders == broker))
        if len(led) and counted >= segments * len(led) and not found[led].any():
            found[led[np.argmax(uncopied[led])]] = True
    return np.asarray(found & view.topics.copied[partitions.topics], np.bool_)

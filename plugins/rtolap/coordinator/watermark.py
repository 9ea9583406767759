"""The low watermark of a cube: a pure rule over what the receivers reported last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec


class Observation(msgspec.Struct, frozen=True):
    """A receiver's newest word about one partition.

    `watermark_ms` is the largest event time it has seen there, `position` is next-to-read, `idle` says that
    it is at the log's end and has had no record for a while, `fresh` that the word is recent.
    """

    position: int
    watermark_ms: int | None
    idle: bool
    fresh: bool = True


def combined(observations: Sequence[Observation]) -> Observation | None:
    """Return one word for a partition out of those of its replicas.

    The largest watermark. Idle only if the replica that has read furthest reports it, and reports it now: an
    old word cannot tell that nothing has arrived since.
    """
    if not observations:
        return None
    furthest = max(observations, key=lambda seen: (seen.position, seen.fresh))
    known = [seen.watermark_ms for seen in observations if seen.watermark_ms is not None]
    return Observation(
        furthest.position, max(known, default=None), furthest.idle and furthest.fresh, furthest.fresh
    )


def low_watermark_ms(
    partitions: Iterable[int], observations: Mapping[int, Sequence[Observation]], previous_ms: int | None
) -> int | None:
    """Return the low watermark of the partitions; None while nothing is known.

    `previous_ms` is the watermark that was published last. The rule:

    1. A partition that was not reported yet holds the watermark where it is.
    2. Of the others, idle ones are left out; the minimum of the rest counts. One of them that has seen no
       event yet holds the watermark too.
    3. If all are idle, the maximum counts, of those that have seen an event.
    4. It never goes backwards.
    """
    words = [combined(observations.get(partition, ())) for partition in partitions]
    if not words or any(word is None for word in words):
        return previous_ms
    known = [word for word in words if word is not None]
    active = [word.watermark_ms for word in known if not word.idle]
    if active:
        seen = [instant_ms for instant_ms in active if instant_ms is not None]
        now_ms = min(seen) if len(seen) == len(active) else None
    else:
        now_ms = max((word.watermark_ms for word in known if word.watermark_ms is not None), default=None)
    if now_ms is None:
        return previous_ms
    return now_ms if previous_ms is None else max(now_ms, previous_ms)

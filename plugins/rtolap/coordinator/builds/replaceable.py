"""The segments that a batch may replace; others are named, with why not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rtolap.base.errors import NotYet, Refused
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.cube import Cube
from rtolap.model.instants import utc_text
from rtolap.model.offsets import Offsets
from rtolap.model.segment import SegmentRange, SegmentState

_REFUSED_SHOWN = 5


def check_replaceable(
    cube: str,
    windows: Sequence[SegmentRange],
    records: Mapping[str, SegmentRecord],
    control: CubeControl,
    *,
    held: Collection[str],
    unknown: Sequence[str],
    until_ms: int,
) -> None:
    """Raise Refused, naming segments that the stream has not finished or that are purged.

    Raises NotYet where a segment has no history, and it is not known of which segments receivers hold events.

    Args:
        records: by the segment's name.
        held: names of the segments without history whose events receivers hold. They would be counted beside
            those of the batch, if it came before they are closed, and be replaced by it otherwise.
        unknown: why `held` may lack some, a line for each reason.
        until_ms: the event time that the stream has passed.
    """
    if not control.assignment and not control.ended:
        raise Refused(
            f"cube {cube} has no place in its topic yet",
            expected="a cube that was enabled once: a batch is followed by what the topic brings",
            action=f"`rtolap cubes enable {cube}`",
        )
    refused = [
        f"{window.name}: {reason}"
        for window in windows
        if (reason := _refusal(window, records.get(window.name), control, held, until_ms))
    ]
    if refused:
        more = f" and {len(refused) - _REFUSED_SHOWN} more" if len(refused) > _REFUSED_SHOWN else ""
        raise Refused(
            f"{len(refused)} segments of {cube} cannot be replaced now",
            expected="segments that are READY, or that the stream has passed without an event",
            found="; ".join(refused[:_REFUSED_SHOWN]) + more,
            action="choose a range without them, or wait; nothing was changed",
        )
    if unknown and any(_is_open(records.get(window.name)) for window in windows):
        more = f" and {len(unknown) - _REFUSED_SHOWN} more" if len(unknown) > _REFUSED_SHOWN else ""
        raise NotYet(
            f"it is not known yet of which segments of {cube} receivers hold events",
            expected="reports of the receivers that own the cube, with all partitions read to their ends",
            found="; ".join(unknown[:_REFUSED_SHOWN]) + more,
            action="ask again in some seconds; if it stays so, `rtolap receivers list` and "
            f"`rtolap describe {cube}` say why",
        )


def _is_open(record: SegmentRecord | None) -> bool:
    return record is None or record.state is SegmentState.ACTIVE


def _refusal(
    window: SegmentRange,
    record: SegmentRecord | None,
    control: CubeControl,
    held: Collection[str],
    until_ms: int,
) -> str | None:
    """Return why a segment cannot be replaced now; None if it can."""
    if control.horizon_ms is not None and window.end_ms <= control.horizon_ms:
        return "purged"
    if record is None or record.state is SegmentState.ACTIVE:
        if window.end_ms > until_ms:
            return "the stream has not passed it"
        return "receivers hold events of it: it is closed and built first" if window.name in held else None
    if record.state is SegmentState.PURGED:
        return "purged"
    if not record.version and not record.pending_batch:
        return f"{record.state.value}, without history: it is built first"
    return None


def check_own_time(cube: Cube, windows: Sequence[SegmentRange]) -> None:
    """Raise Refused for segments that are another revision's of the cube."""
    if cube.revision is None:
        return
    since_ms, until_ms = cube.revision.reads_from_ms, cube.revision.until_ms
    outside = [
        window.name
        for window in windows
        if (since_ms is not None and window.start_ms < since_ms)
        or (until_ms is not None and window.end_ms > until_ms)
    ]
    if outside:
        raise Refused(
            f"{len(outside)} segments are not of {cube.name}, but of another revision of {cube.revision.of}",
            expected="segments "
            + ("" if since_ms is None else f"from {utc_text(since_ms)} on ")
            + ("" if until_ms is None else f"until {utc_text(until_ms)}"),
            found=", ".join(outside[:_REFUSED_SHOWN]),
            action=f"plan a batch for each revision: `rtolap describe {cube.revision.of}` lists them",
        )


def check_settled(
    cube: str,
    windows: Sequence[SegmentRange],
    records: Mapping[str, SegmentRecord],
    filled: Mapping[int, Offsets],
) -> None:
    """Raise Refused for segments that are filled while late events of theirs are being closed: what a batch
    stands for there is not known yet."""
    closing = [
        window.name
        for window in windows
        if window.start_ms in filled
        and (record := records.get(window.name)) is not None
        and record.state not in (SegmentState.ACTIVE, SegmentState.READY)
        and not record.pending_batch
    ]
    if closing:
        raise Refused(
            f"{len(closing)} segments of {cube} cannot be filled now",
            expected="segments that are READY, or have no history",
            found=f"late events being merged: {', '.join(closing[:_REFUSED_SHOWN])}",
            action="wait until they are READY",
        )

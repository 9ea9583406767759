"""Warnings that go with an answer about a cube: it reads nothing, has refused records, or has lost events."""

from __future__ import annotations

from collections.abc import Iterator

from rtolap.metadata.records import CubeControl
from rtolap.model.completeness import offsets_text
from rtolap.model.cube import Schema
from rtolap.model.instants import utc_text
from rtolap.protocols.query.messages import QueryWarning, refused_text
from rtolap.query.plan import ReadStats, TimeRange


def cube_warnings(
    schema: Schema, control: CubeControl, stats: ReadStats, time: TimeRange
) -> tuple[QueryWarning, ...]:
    """Return the warnings of a read of this time; `stats` are what its receivers have said."""
    name = schema.cube.name
    warnings: list[QueryWarning] = []
    if not control.enabled and not control.assignment:
        message = (
            f"cube {name} was never enabled: it has read nothing of topic {schema.table.topic}. "
            f"`rtolap create --enable` starts it"
        )
        warnings.append(QueryWarning("not_enabled", "Warning", message))
    elif not control.enabled or control.paused:
        state = "paused" if control.enabled else "disabled"
        message = f"cube {name} is {state}: the answer holds what it had read before"
        warnings.append(QueryWarning("not_consuming", "Warning", message))
    elif stats.stalled:
        receivers = "; ".join(
            f"receiver {receiver}: {why}" for receiver, why in sorted(stats.stalled.items())
        )
        message = (
            f"cube {name} does not read what arrives: the answer holds what it had read before; {receivers}"
        )
        warnings.append(QueryWarning("not_consuming", "Warning", message))
    if refused := refused_text(stats.refused, stats.refused_example):
        message = (
            f"cube {name}: {refused}; they are in no count, and in topic {schema.table.dead_letter_topic}"
        )
        warnings.append(QueryWarning("records_refused", "Warning", message))
    warnings += _losses(name, control, time)
    return tuple(warnings)


def _losses(name: str, control: CubeControl, time: TimeRange) -> Iterator[QueryWarning]:
    """Yield the losses of segments that the statement's time touches, unless they are purged."""
    for loss in (*control.losses, *control.version_losses):
        purged = control.horizon_ms is not None and loss.end_ms <= control.horizon_ms
        if not purged and loss.overlaps(time.start_ms, time.end_ms):
            message = (
                f"cube {name} lacks events from {utc_text(loss.start_ms)} to {utc_text(loss.end_ms)} at "
                f"most: offsets {offsets_text(loss.ranges)} were lost, which {loss.by} accepted at "
                f"{utc_text(loss.at_ms)}: {loss.reason}"
            )
            yield QueryWarning("events_lost", "Warning", message)

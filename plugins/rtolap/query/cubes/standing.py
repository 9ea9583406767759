"""The warnings that go with every answer about a cube: that it reads nothing, that it has refused records, or
that events are lost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rtolap.metadata.records import CubeControl
from rtolap.model.cube import Schema
from rtolap.model.event_loss import offsets_text
from rtolap.protocols.query.refused_records import refused_text
from rtolap.protocols.query.warning import QueryWarning
from rtolap.query.plan import ReadStats, TimeRange


def cube_warnings(
    schema: Schema, control: CubeControl, stats: ReadStats, time: TimeRange
) -> tuple[QueryWarning, ...]:
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
                f"cube {name} lacks events from {_utc(loss.start_ms)} to {_utc(loss.end_ms)} at most: "
                f"offsets {offsets_text(loss.ranges)} were lost, which {loss.by} accepted at "
                f"{_utc(loss.at_ms)}: {loss.reason}"
            )
            yield QueryWarning("events_lost", "Warning", message)


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")

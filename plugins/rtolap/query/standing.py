"""What has to be told of a cube with every answer: that it reads nothing, or that it has refused records."""

from __future__ import annotations

from rtolap.metadata.records import CubeControl
from rtolap.model.cube import Schema
from rtolap.query.plan import ReadStats
from rtolap.wire.query_warning import QueryWarning
from rtolap.wire.refused_records import refused_text


def cube_warnings(schema: Schema, control: CubeControl, stats: ReadStats) -> tuple[QueryWarning, ...]:
    name = schema.cube.name
    found: list[QueryWarning] = []
    if not control.enabled and not control.assignment:
        message = (
            f"cube {name} was never enabled: it has read nothing of topic {schema.table.topic}. "
            f"`rtolap create --enable` starts it"
        )
        found.append(QueryWarning("not_enabled", "Warning", message))
    elif not control.enabled or control.paused:
        state = "paused" if control.enabled else "disabled"
        message = f"cube {name} is {state}: the answer holds what it had read before"
        found.append(QueryWarning("not_consuming", "Warning", message))
    if told := refused_text(stats.refused, stats.refused_example):
        message = f"cube {name}: {told}; they are in no count, and in topic {schema.table.dead_letter_topic}"
        found.append(QueryWarning("records_refused", "Warning", message))
    return tuple(found)

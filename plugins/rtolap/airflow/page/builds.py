"""Spark builds and merges of a cube, as the agent runs them: how far each is, by its own lines of progress.

Pure: the process, the labels of the last one, and the log → one row a process.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rtolap.airflow.operators.build_batch import PROGRESS_MARK, builds_of, outcomes
from rtolap.airflow.page.tasks import TaskLink, link_of
from rtolap.base.decoding import copied, decode_json
from rtolap.base.undecodable import UNDECODABLE
from rtolap.protocols.agent.messages import LastGeneration, ProcessStatus

# Lines of progress in the order of a build's steps; those of Spark itself stand between them in the log.
_STEPS = {
    "verified": "inputs are verified",
    "read": "rows are read",
    "grouped": "rows are grouped",
    "cuboid": "cuboids are written",
    "moved": "files are moved into place",
    "counted": "events are counted again",
    "alone": "together it failed: segment by segment now",
}
_ENDS = ("built", "merged", "failed")


class SparkStages(msgspec.Struct, frozen=True, kw_only=True):
    """Spark's stages and tasks of a build, as its driver counts them: see `cubes.build.stage_progress`."""

    stages: int
    stages_done: int
    tasks: int
    tasks_done: int
    tasks_failed: int


class BuiltSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of a build. state: `waits`, `built` or `failed`, as far as the log says."""

    segment: str
    version: int
    state: str
    error: str


class BuildProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A Spark process of a cube: the one that runs or whose result waits to be read, or the last one.

    Attributes:
        kind: `build` or `merge`.
        state: of the process; empty for one that has ended and whose result was read.
        step: what it has done last, in words.
        cuboids_done: of `cuboids`, of the segments that are built together now.
        stages: of Spark; None while it has said nothing of them.
        rows: read, or after grouping, of those segments; None while that is not known.
        task: that waits for it, or waited.
    """

    kind: str
    state: str = ""
    reason: str = ""
    started_ms: int | None = None
    step: str = ""
    cuboids_done: int | None = None
    cuboids: int | None = None
    rows: int | None = None
    stages: SparkStages | None = None
    segments: tuple[BuiltSegment, ...] = ()
    task: TaskLink | None


class CubeBuilds(msgspec.Struct, frozen=True):
    now_ms: int
    processes: tuple[BuildProcess, ...]


class Progress(msgspec.Struct, frozen=True):
    """The end of a build's progress, as its log has it. None: not known."""

    step: str = ""
    cuboids_done: int | None = None
    cuboids: int | None = None
    rows: int | None = None
    stages: SparkStages | None = None


class _Line(msgspec.Struct):
    """A line of progress. Fields that an event does not have keep their defaults."""

    event: str
    done: int | None = None
    total: int | None = None
    rows: int | None = None


def progress_in(log: str) -> Progress:
    """Return how far the log says that the last batch of segments is. A line that the beginning of the log
    cuts off, and one that is no progress, is skipped."""
    found = Progress()
    for line in log.splitlines():
        _, mark, text = line.partition(PROGRESS_MARK)
        if not mark:
            continue
        try:
            said = decode_json(text, _Line)
            stages = decode_json(text, SparkStages) if said.event == "spark" else found.stages
        except UNDECODABLE:
            continue
        found = msgspec.structs.replace(found, stages=stages)
        if said.event in ("verified", "alone"):
            if found.step != _STEPS["verified"]:
                found = Progress(_STEPS[said.event], stages=found.stages)
        elif said.event in _STEPS:
            done, total = (
                (said.done, said.total) if said.event == "cuboid" else (found.cuboids_done, found.cuboids)
            )
            rows = found.rows if said.rows is None else said.rows
            found = Progress(_STEPS[said.event], done, total, rows, found.stages)
        elif said.event in _ENDS:
            found = msgspec.structs.replace(found, step=said.event)
    return found


def build_process(
    kind: str, key: str, process: ProcessStatus | None, last: LastGeneration, log: str
) -> BuildProcess | None:
    """Return the row of a process; None where there never was one. process: as it is listed; None once its
    result was read. last: the labels of the last one."""
    if not last.generation:
        return None
    if process is None:
        return BuildProcess(kind=kind, task=link_of(key, last.labels))
    return copied(
        BuildProcess,
        progress_in(log),
        kind=kind,
        state=process.state,
        reason=process.reason,
        started_ms=process.started_ms,
        segments=_segments(process, log),
        task=link_of(key, process.labels, process.state, process.reason),
    )


def _segments(process: ProcessStatus, log: str) -> tuple[BuiltSegment, ...]:
    said: dict[str, Any] = outcomes(log)
    rows = []
    for build in builds_of(process):
        outcome = said.get(build.build_id)
        error = "" if outcome is None else outcome.error or ""
        built = process.state == "SUCCEEDED" or (outcome is not None and outcome.built)
        state = "failed" if error else "built" if built else "waits"
        rows.append(BuiltSegment(segment=build.segment, version=build.version, state=state, error=error))
    return tuple(rows)

"""The batch of one spark-submit: chosen from the queue, noted with the process, read from its log. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.coordinator.messages import BuildSpecMessage, QueueEntry, SegmentInfo

KIND = "build"
SPECS_FILE = "specs.json"
PROGRESS_MARK = "rtolap-progress: "


class Build(msgspec.Struct, frozen=True):
    """A build attempt, identified by the names that promotion and failure need."""

    cube: str
    segment: str
    version: int
    build_id: str


class BuildOutcome(msgspec.Struct, frozen=True):
    """The job's result for one attempt. With `error` None and `built` False the job ended before the
    attempt."""

    built: bool = False
    error: str | None = None


def choose(
    entries: Iterable[QueueEntry],
    cube: str,
    segments_max: int,
    unfinished: Iterable[SegmentInfo],
    awaiting_approval: Collection[QueueEntry] = (),
) -> list[QueueEntry]:
    """Return the cube's oldest segments, up to the first that could not be promoted with those before it.

    Promotion goes in the order of event time. `unfinished`: the cube's IMMUTABLE segments; one that has no
    history yet and is not in the queue holds back all later ones. So does one that is `held`.
    """
    limit_ms = min((segment.start_ms for segment in unfinished if segment.version == 0), default=None)
    chosen: list[QueueEntry] = []
    for entry in entries:
        if entry.cube != cube:
            continue
        blocked = limit_ms is not None and entry.start_ms > limit_ms
        waits = entry.waits_for is not None and entry.waits_for not in {other.segment for other in chosen}
        if blocked or waits or entry in awaiting_approval or len(chosen) == segments_max:
            break
        chosen.append(entry)
    return chosen


def build_of(spec: BuildSpecMessage) -> Build:
    return Build(spec.cube, spec.segment, spec.version, spec.build_id)


def specs_file(specs: Sequence[BuildSpecMessage]) -> str:
    return json.dumps([spec.model_dump(mode="json") for spec in specs])


def labels(builds: Sequence[Build]) -> dict[str, str]:
    return {"kind": KIND, "builds": msgspec.json.encode(list(builds)).decode()}


def builds_of(status: ProcessStatus) -> list[Build]:
    """Return the attempts that a process was started for; none if it is no build."""
    if status.labels.get("kind") != KIND:
        return []
    return decode_json(status.labels["builds"], list[Build])


def outcomes(log: str) -> dict[str, BuildOutcome]:
    """Return what the last progress line of each build says, by build id. Lines that the end of the log cuts
    off are skipped."""
    by_build: dict[str, BuildOutcome] = {}
    for line in log.splitlines():
        _, mark, text = line.partition(PROGRESS_MARK)
        if not mark:
            continue
        try:
            progress: Any = json.loads(text)
        except ValueError:
            continue
        if not isinstance(progress, dict) or "build_id" not in progress:
            continue
        if progress.get("event") == "built":
            by_build[progress["build_id"]] = BuildOutcome(built=True)
        elif progress.get("event") == "failed":
            by_build[progress["build_id"]] = BuildOutcome(error=str(progress.get("error", "failed")))
    return by_build


def argv(options: Sequence[str], job: str) -> list[str]:
    return ["spark-submit", *options, job, "{files}/" + SPECS_FILE]

"""Windows that need a person's approval: they delay a cube's segments, or their builds, for too long."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from rtolap.airflow.windows import Window, explain, window_of
from rtolap.base.errors import DefinitionError
from rtolap.model.durations import parse_duration_ms
from rtolap.model.segment import SegmentRange
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import QueueEntry
from rtolap.protocols.watermark.messages import Explanation

OVERDUE_AFTER_VARIABLE = "rtolap_watermark_overdue_after"
OVERDUE_AFTER = "30m"
_ACTIVE = "ACTIVE"
IncompleteBuilds = Literal["build", "approve"]
POLICY_VARIABLE = "rtolap_incomplete_builds"
FIRST_VERSION = 1


def windows_to_ask_about(
    coordinator: CoordinatorClient, overdue_after: str, windows_max: int, policy: str
) -> list[Window]:
    """Return the windows that are overdue by the coordinator's clock and may not close by now.

    A cube whose application does not exist is passed over: its status says so, and nobody could approve it.
    `policy`: with `approve`, segments that were closed by force and wait for their build count too. Raises
    DefinitionError for an `overdue_after` that is no duration, or an unknown policy.
    """
    overdue_after_ms = parse_duration_ms(overdue_after)
    waiting = windows_of_open_segments(coordinator)
    if incomplete_builds(policy) == "approve":
        waiting |= set(forced(coordinator.queue().entries).values())
    now_ms = {
        name: coordinator.application_watermarks(name).now_ms
        for name in coordinator.applications()
        if any(window.application == name for window in waiting)
    }
    still = [
        window
        for window in waiting
        if window.application in now_ms
        and window.due_ms + overdue_after_ms <= now_ms[window.application]
        and not explain(coordinator, window).may_close
    ]
    return oldest(still, windows_max)


def windows_of_open_segments(coordinator: CoordinatorClient) -> set[Window]:
    """Return the windows of never closed segments with events, of all cubes that close by an application."""
    windows: set[Window] = set()
    for cube in coordinator.cubes():
        for segment in coordinator.segments(cube.name, state=_ACTIVE):
            window = window_of(cube, SegmentRange(segment.start_ms, segment.end_ms))
            if window is not None:
                windows.add(window)
    return windows


def oldest(windows: Iterable[Window], windows_max: int) -> list[Window]:
    """Return at most `windows_max` windows of each application, each end once, with the longest lateness.

    One that a person keeps waiting holds the later ones back: approving a later one would approve it too.
    """
    chosen: list[Window] = []
    taken: dict[str, int] = {}
    for window in sorted({window[:2]: window for window in sorted(windows)}.values()):
        taken[window.application] = taken.get(window.application, 0) + 1
        if taken[window.application] <= windows_max:
            chosen.append(window)
    return chosen


def incomplete_builds(value: str) -> IncompleteBuilds:
    """Return the policy for builds of segments that were closed by force before their window may close.

    `build`: whatever was closed is built. `approve`: what was closed by force waits until its window may
    close, by its watermark or by a person. Raises DefinitionError.
    """
    for known in get_args(IncompleteBuilds):
        if value == known:
            policy: IncompleteBuilds = known
            return policy
    expected = " or ".join(get_args(IncompleteBuilds))
    raise DefinitionError("no such policy for incomplete builds", expected=expected, found=repr(value))


def forced(entries: Iterable[QueueEntry]) -> dict[QueueEntry, Window]:
    """Return the queued segments that were closed by force and whose first version is still to be built.

    Later versions only add events.
    """
    return {
        entry: Window(known.application, known.window_end_ms)
        for entry in entries
        if entry.version == FIRST_VERSION
        and (known := entry.completeness) is not None
        and known.closed_by == "forced"
    }


def waiting_for_approval(
    coordinator: CoordinatorClient, entries: Iterable[QueueEntry]
) -> dict[QueueEntry, Explanation]:
    """Return the forced entries whose window may not close even now, each with the explanation."""
    explanations: dict[Window, Explanation] = {}
    waiting: dict[QueueEntry, Explanation] = {}
    for entry, window in forced(entries).items():
        if window not in explanations:
            explanations[window] = explain(coordinator, window)
        if not explanations[window].may_close:
            waiting[entry] = explanations[window]
    return waiting

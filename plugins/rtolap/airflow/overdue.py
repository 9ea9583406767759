"""Windows that a person is asked about: those that hold a cube's segments for too long."""

from __future__ import annotations

from collections.abc import Iterable

from rtolap.airflow.incomplete import forced, incomplete_builds
from rtolap.airflow.windows import Window, explain, window_of
from rtolap.model.durations import parse_duration_ms
from rtolap.model.segment import SegmentRange
from rtolap.protocols.coordinator.client import CoordinatorClient

OVERDUE_AFTER_VARIABLE = "rtolap_watermark_overdue_after"
OVERDUE_AFTER = "30m"
_ACTIVE = "ACTIVE"


def windows_to_ask_about(
    coordinator: CoordinatorClient, overdue_after: str, windows_max: int, policy: str
) -> list[Window]:
    """Those overdue by the coordinator's clock that may not close by now.

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

"""Windows of a cube that have ended and may not close yet: what is missing, and who is behind.

A person approves them by the question of `rtolap_window_approval`, which the browser asks Airflow for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rtolap.airflow.overdue import forced, oldest
from rtolap.airflow.windows import Window, explain
from rtolap.airflow.words import HOSTS_SHOWN_MAX
from rtolap.base.decoding import copied
from rtolap.model.cube import Cube
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import QueueEntry
from rtolap.protocols.watermark.messages import ApprovalInfo, Explanation

WINDOWS_MAX = 12  # the oldest: to approve a later one would approve those before it too
LOOKS_MAX = 100  # windows that are about to close are passed over
APPROVALS_MAX = 20  # the newest
_ACTIVE = "ACTIVE"


class MissingShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a window's events that a source is expected to owe, and at most owes. None: unknown."""

    source: str
    expected_missing_ppm: int | None
    bound_ppm: int | None


class HostBehindWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A host that a window waits for. share_ppm: of the window's events, how many it may still owe."""

    source: str
    host: str
    latest_ms: int | None
    behind_ms: int | None
    share_ppm: int
    hint: str


class WaitingWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A window that has ended and may not close.

    Attributes:
        window_end: as the parameters of `rtolap_window_approval` have it, by which its question is found.
        run_id: of the one run that the gate starts for it.
        segments: of the cube, that close or are built with it.
        recorded: segment → what was recorded as missing when it was closed by force; it waits for its build.
        hosts: the furthest behind of each source; `hosts_behind` says how many there are.
    """

    window_end: str
    end_ms: int
    due_ms: int
    run_id: str
    conf: dict[str, Any]
    segments: tuple[str, ...]
    recorded: dict[str, MissingShare]
    reasons: tuple[str, ...]
    shares: tuple[MissingShare, ...]
    hosts: tuple[HostBehindWindow, ...]
    hosts_behind: int


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """An approval that the coordinator has recorded, of all windows up to `until_ms`."""

    until_ms: int
    by: str
    reason: str
    at_ms: int


class CubeWindows(msgspec.Struct, frozen=True, kw_only=True):
    """The waiting windows of a cube, the oldest first.

    Attributes:
        application: empty for a cube that closes by its own partitions.
        later: how many later ones have ended that were not looked at.
        error: why the rest is missing; empty if it is not.
    """

    now_ms: int
    application: str = ""
    windows: tuple[WaitingWindow, ...] = ()
    later: int = 0
    approvals: tuple[Approval, ...] = ()
    error: str = ""


def windows_of(coordinator: CoordinatorClient, cube: Cube, *, now_ms: int) -> CubeWindows:
    """Return the windows of open segments, and of segments that were closed by force and not built yet."""
    if cube.watermark is None:
        return CubeWindows(now_ms=now_ms)
    application, lateness_ms = cube.watermark.application, cube.segment.allowed_lateness_ms
    at_ms = coordinator.application_watermarks(application).now_ms
    held: dict[Window, list[str]] = {}
    for segment in coordinator.segments(cube.name, state=_ACTIVE):
        held.setdefault(Window(application, segment.end_ms, lateness_ms), []).append(segment.segment)
    closed = forced(coordinator.queue(cube.name).entries)
    for entry, window in closed.items():
        held.setdefault(window, []).append(entry.segment)
    ended = oldest((window for window in held if window.due_ms <= at_ms), len(held))
    waiting: list[WaitingWindow] = []
    looked = 0
    for window in ended[:LOOKS_MAX]:
        if len(waiting) == WINDOWS_MAX:
            break
        looked += 1
        explanation = explain(coordinator, window)
        if not explanation.may_close:
            names = sorted(name for other in held if other[:2] == window[:2] for name in held[other])
            waiting.append(_waiting(window, explanation, names, closed))
    return CubeWindows(
        now_ms=now_ms,
        application=application,
        windows=tuple(waiting),
        later=len(ended) - looked,
        approvals=_approvals(coordinator.application(application).approvals),
    )


def _waiting(
    window: Window, explanation: Explanation, segments: Sequence[str], closed: dict[QueueEntry, Window]
) -> WaitingWindow:
    conf = window.conf()
    return WaitingWindow(
        window_end=conf["window_end"],
        end_ms=window.end_ms,
        due_ms=window.due_ms,
        run_id=window.run_id,
        conf=conf,
        segments=tuple(segments),
        recorded={
            entry.segment: copied(MissingShare, known, source=known.application)
            for entry in closed
            if entry.segment in segments and (known := entry.completeness) is not None
        },
        reasons=explanation.reasons,
        shares=tuple(
            MissingShare(
                source=source, expected_missing_ppm=missing, bound_ppm=explanation.bound_ppm.get(source)
            )
            for source, missing in sorted(explanation.expected_missing_ppm.items())
        ),
        hosts=tuple(
            copied(HostBehindWindow, each, source=source)
            for source, info in sorted(explanation.hosts.items())
            for each in info.behind[:HOSTS_SHOWN_MAX]
        ),
        hosts_behind=sum(info.holding for info in explanation.hosts.values()),
    )


def _approvals(known: Sequence[ApprovalInfo]) -> tuple[Approval, ...]:
    newest = sorted(known, key=lambda each: each.at_ms, reverse=True)[:APPROVALS_MAX]
    return tuple(copied(Approval, each) for each in newest)

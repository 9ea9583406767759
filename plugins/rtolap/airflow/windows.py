"""Windows of applications: which one is meant, and what is said of it at the end."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from rtolap.airflow.words import iso
from rtolap.base.decoding import convert
from rtolap.base.errors import DefinitionError
from rtolap.model.cube import Cube
from rtolap.model.instants import instant_ms
from rtolap.model.segment import SegmentRange, parse_segment_name
from rtolap.protocols.coordinator.client import AsyncCoordinatorClient, CoordinatorClient
from rtolap.protocols.coordinator.messages import CubeStatus
from rtolap.protocols.watermark.messages import Explanation


class Window(NamedTuple):
    """The windows of `application` that end at `end_ms`, whatever their length.

    A segment of a cube with allowed lateness closes when the watermark is that far beyond its end, or when a
    person has approved its end.
    """

    application: str
    end_ms: int
    lateness_ms: int = 0

    @property
    def due_ms(self) -> int:
        return self.end_ms + self.lateness_ms

    @property
    def run_id(self) -> str:
        """The id of the DAG run for this window, so that a person gets one question about a window."""
        return f"{self.application}__{iso(self.end_ms)}"

    def conf(self) -> dict[str, Any]:
        """Return the parameters of that run."""
        return {
            "application": self.application,
            "window_end": iso(self.end_ms),
            "lateness_ms": self.lateness_ms,
        }

    def judge(self, explanation: Explanation, approved_until_ms: int | None) -> Explanation:
        """Return what holds for this window: `explanation` is of `due_ms`, people may have approved it."""
        if explanation.may_close or approved_until_ms is None or approved_until_ms < self.end_ms:
            return explanation.model_copy(update={"window_end_ms": self.end_ms})
        approval = f"approved up to {iso(approved_until_ms)}"
        return explanation.model_copy(
            update={
                "window_end_ms": self.end_ms,
                "may_close": True,
                "approved": True,
                "reasons": (approval, *explanation.reasons),
            }
        )


def explain(coordinator: CoordinatorClient, window: Window) -> Explanation:
    """Return whether the window may close, and what it waits for if not."""
    explanation = coordinator.explain_window(window.application, window.due_ms)
    marks = coordinator.application_watermarks(window.application)
    return window.judge(explanation, marks.approved_until_ms)


async def explain_async(coordinator: AsyncCoordinatorClient, window: Window) -> Explanation:
    explanation = await coordinator.explain_window(window.application, window.due_ms)
    marks = await coordinator.application_watermarks(window.application)
    return window.judge(explanation, marks.approved_until_ms)


def window_of(cube: CubeStatus, segment: SegmentRange) -> Window | None:
    """Return the window that a segment closes with; None for a cube without an application."""
    declared = convert(cube.definition, Cube)
    if declared.watermark is None:
        return None
    return Window(declared.watermark.application, segment.end_ms, declared.segment.allowed_lateness_ms)


def named_window(
    coordinator: CoordinatorClient,
    *,
    application: str | None,
    window_end: str | int | datetime | None,
    cube: str | None,
    segment: str | None,
    lateness_ms: int | str = 0,
) -> Window:
    """Return the window that the arguments name. Raises DefinitionError, NotFound."""
    if application is not None and window_end is not None and cube is None and segment is None:
        return Window(application, instant_ms(window_end), int(lateness_ms))
    if cube is None or segment is None or application is not None or window_end is not None:
        raise DefinitionError(
            "the window is not given",
            expected="application and window_end, or cube and segment",
            found=f"{application=}, {window_end=}, {cube=}, {segment=}",
        )
    window = window_of(coordinator.cube(cube), parse_segment_name(segment))
    if window is None:
        raise DefinitionError(
            f"cube {cube} closes by no application",
            expected="a cube with `watermark:`",
            action="wait for its low watermark with LowWatermarkSensor",
        )
    return window


def outcome(explanation: Explanation) -> dict[str, Any]:
    """Return the result of a task for a window that may close; shares by source."""
    return {
        "application": explanation.application,
        "window_end": iso(explanation.window_end_ms),
        "approved": explanation.approved,
        "expected_missing_ppm": dict(explanation.expected_missing_ppm),
        "bound_ppm": dict(explanation.bound_ppm),
    }

"""The axes of a timeline: the wall clock below, event time or lag at the side."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING

import numpy as np

from rtolap.draw.figure import load_matplotlib
from rtolap.draw.timeline import Line
from rtolap.model.durations import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DAY_MS = 86_400_000  # matplotlib counts days
_TICKS_MAX = 5
_NICE_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400)
_NOW = "#999999"


def duration(span_ms: float) -> str:
    """Return a duration to the second; less than one is 0s."""
    return format_duration(max(int(span_ms), 0) // 1000 * 1000)


def wall_clock_axis(place: Axes, at_ms: Line) -> None:
    dates = load_matplotlib("dates")
    locator = dates.AutoDateLocator(tz=UTC)
    place.xaxis.set_major_locator(locator)
    place.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=UTC))
    place.set_xlabel("wall clock, UTC")
    first, last = at_ms.min() / DAY_MS, at_ms.max() / DAY_MS
    room = max(last - first, 1000 / DAY_MS)
    place.set_xlim(first, last + 0.01 * room)


class EventTimeAxis:
    """Event time, or lag, on the y axis of one panel."""

    def __init__(self, place: Axes, at_ms: Line, lag: bool) -> None:
        self._place = place
        self._at_ms = at_ms
        self._lag = lag
        self._low, self._high = 0.0, 1.0
        if lag:
            place.yaxis.set_major_formatter(lambda value, _: duration(value))
            place.set_ylabel("behind the clock")
        else:
            dates = load_matplotlib("dates")
            locator = dates.AutoDateLocator(tz=UTC, maxticks=6)
            place.yaxis.set_major_locator(locator)
            place.yaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=UTC, show_offset=False))
            place.set_ylabel("event time")
        place.grid(linewidth=0.3, color="#cccccc")

    def value(self, instants_ms: Line, at_ms: Line) -> Line:
        line: Line = at_ms - instants_ms if self._lag else instants_ms / DAY_MS
        return line

    def now(self) -> None:
        self.line(self._at_ms, _NOW, width=0.8, style=":")

    def line(
        self, instants_ms: Line, colour: str, *, width: float, style: str = "-", alpha: float = 1.0
    ) -> None:
        """Draw a line by steps, since a watermark stands until the next is published."""
        self._place.plot(
            self._at_ms / DAY_MS,
            self.value(instants_ms, self._at_ms),
            color=colour,
            linewidth=width,
            linestyle=style,
            alpha=alpha,
            solid_capstyle="butt",
            drawstyle="default" if instants_ms is self._at_ms else "steps-post",
        )

    def points(self, at_ms: Sequence[int], instants_ms: Sequence[int], colour: str, shape: str) -> None:
        at, instants = np.asarray(at_ms, np.float64), np.asarray(instants_ms, np.float64)
        self._place.plot(
            at / DAY_MS, self.value(instants, at), linestyle="", marker=shape, markersize=3, color=colour
        )

    def limits(self, *marks: Line) -> None:
        """Return limits as far as watermarks and the clock go: a host that stands for days would flatten
        them."""
        values = self.value(np.concatenate([self._at_ms, *marks]), np.tile(self._at_ms, 1 + len(marks)))
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        least = 1000.0 if self._lag else 1000.0 / DAY_MS
        room = max(high - low, least) * 0.06
        self._low, self._high = low - room, max(high, low + least) + room
        if self._lag:
            steps_ms = (step * 1000 for step in _NICE_S if step * 1000 * _TICKS_MAX >= high - low)
            step_ms = next(steps_ms, DAY_MS * 7)
            self._place.set_yticks(np.arange(0, self._high, step_ms))
        self._place.set_ylim((self._high, self._low) if self._lag else (self._low, self._high))

    def name(self, name: str, sample: int, instant_ms: float, colour: str) -> None:
        """Write its name beside the place where it was furthest behind, if that is in the picture: afterwards
        lines jump up, so it stands to the right, but for the last fifth."""
        at = self._at_ms[sample : sample + 1]
        value = float(self.value(np.asarray([instant_ms]), at)[0])
        is_left = at[0] > self._at_ms[0] + 0.8 * (self._at_ms[-1] - self._at_ms[0])
        if self._low <= value <= self._high:
            self._place.annotate(
                name,
                (at[0] / DAY_MS, value),
                xytext=(-5 if is_left else 5, -3),
                textcoords="offset points",
                ha="right" if is_left else "left",
                va="top",
                color=colour,
                fontsize=7,
            )

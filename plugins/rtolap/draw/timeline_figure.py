"""The picture of a timeline: a panel per level, watermarks against the wall clock, who held them beside it.

y  event time; the diagonal is now, and the further a line is below it, the further it is behind
   with `lag`: how far behind the clock, downwards
blue     output, bold, and input of a level        orange   hosts (or partitions) that held it
green    its units' oldest work                    dots     windows that could close, and when
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.draw.figure import Format, load_matplotlib, new_figure, rendered
from rtolap.draw.timeline import Line, Panel, Timeline, Trace
from rtolap.model.durations import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS_MAX = 24
_NAMED = 3  # hosts, and units, of a panel
_UNITS_DRAWN = 24
_NAME_MAX = 28
_DAY_MS = 86_400_000
WIDTH_INCHES, PANEL_INCHES = 11.0, 2.3
_TICKS_MAX = 5
_NICE_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400)
_NOW, _MARK, _GLOBAL, _HOST, _UNIT = "#999999", "#0072b2", "#000000", "#d55e00", "#009e73"


def draw_timeline(found: Timeline, form: Format, *, lag: bool = False) -> bytes:
    """Raises DefinitionError where nothing is remembered yet, for too many levels, and without matplotlib."""
    if not found.at_ms.size:
        raise DefinitionError(
            f"nothing is remembered of {found.application} in that time",
            action="take a longer time, or wait a second or two where its leader has just begun",
        )
    if len(found.panels) > PANELS_MAX:
        raise DefinitionError(
            "too many levels for one picture",
            expected=f"at most {PANELS_MAX}",
            found=len(found.panels),
            action="choose with --level",
        )
    title = f"Watermarks of {found.application}"
    rows = len(found.panels) + 1
    with new_figure(WIDTH_INCHES, 0.8 + PANEL_INCHES * rows) as figure:
        axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        for panel, place in zip(found.panels, axes, strict=False):
            _draw_panel(place, found.at_ms, panel, lag)
        _draw_global(axes[-1], found, lag)
        _time_axis(axes[-1], found.at_ms)
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        return rendered(figure, form, title)


def duration(span_ms: float) -> str:
    """To the second; less than one is 0s."""
    return format_duration(max(int(span_ms), 0) // 1000 * 1000)


def held_by(panel: Panel) -> str:
    """Who held it most, in words; empty where nobody did."""
    hosts, units = _noteworthy(panel)
    said = [f"{_short(one.name)} ({_behind(one)})" for one in (*hosts, *units)]
    more = panel.holding - len(hosts)
    others = "" if more <= 0 else f" and {more} more {'host' if more == 1 else 'hosts'}"
    return f"held by {', '.join(said)}{others}" if said else ""


def _behind(one: Trace) -> str:
    return "never seen" if one.behind_max_ms is None else duration(one.behind_max_ms)


def _noteworthy(panel: Panel) -> tuple[list[Trace], list[Trace]]:
    """Hosts and units that held it, but for those in whose time it was behind for a tenth of the most at
    best."""
    worst_ms = max((one.weight_ms for one in panel.holders), default=0)
    hosts, units = (
        [one for one in held if one.held and one.weight_ms * 10 > worst_ms]
        for held in (panel.hosts, panel.units)
    )
    return hosts[:_NAMED], units[:_NAMED]


def _draw_panel(place: Axes, at_ms: Line, panel: Panel, lag: bool) -> None:
    y = _Axis(place, at_ms, lag)
    y.now()
    hosts, units = _noteworthy(panel)
    named = [*((one, _HOST) for one in hosts), *((one, _UNIT) for one in units)]
    for one, colour in named:
        y.line(_whole(one, at_ms, one.holds), colour, width=5, alpha=0.35)
    for unit in panel.units[:_UNITS_DRAWN]:
        y.line(_whole(unit, at_ms), _UNIT, width=0.6)
    if not np.array_equal(panel.input_ms, panel.output_ms, equal_nan=True):
        y.line(panel.input_ms, _MARK, width=0.8, style="--")
    y.line(panel.output_ms, _MARK, width=1.6)
    y.limits(panel.input_ms, panel.output_ms)
    for one, colour in named:
        if one.worst is not None:
            y.name(_short(one.name), one.worst, at_ms[one.worst] - (one.behind_max_ms or 0), colour)
    place.set_title(f"{panel.level} ({panel.role})", loc="left", fontsize=9, fontweight="bold")
    place.set_title(held_by(panel), loc="right", fontsize=8, color=_HOST)


def _draw_global(place: Axes, found: Timeline, lag: bool) -> None:
    y = _Axis(place, found.at_ms, lag)
    y.now()
    y.line(found.global_ms, _GLOBAL, width=1.8)
    y.limits(found.global_ms)
    complete = [one for one in found.closings if one.by is None]
    let_go = [one for one in found.closings if one.by is not None]
    for closings, colour, shape in ((complete, _MARK, "o"), (let_go, _HOST, "v")):
        y.points([one.at_ms for one in closings], [one.end_ms for one in closings], colour, shape)
    for one in found.approvals:
        place.axvline(one.at_ms / _DAY_MS, color=_HOST, linewidth=0.8, linestyle=":")
        place.text(
            one.at_ms / _DAY_MS,
            0.02,
            f" let go by {_short(one.by)}",
            transform=place.get_xaxis_transform(),
            color=_HOST,
            fontsize=7,
        )
    place.set_title("global low watermark", loc="left", fontsize=9, fontweight="bold")
    place.set_title(_closings_in_words(found), loc="right", fontsize=8)


def _closings_in_words(found: Timeline) -> str:
    if not found.closings:
        return ""
    delays_ms = np.asarray([one.at_ms - one.end_ms for one in found.closings])
    return (
        f"{delays_ms.size} windows could close, {duration(float(np.median(delays_ms)))} after their end "
        f"in the median, {duration(float(delays_ms.max()))} at most"
    )


def _whole(trace: Trace, at_ms: Line, only: NDArray[np.bool_] | None = None) -> Line:
    """An entry per sample, NaN where the trace does not say, or not `only`."""
    whole: Line = np.full(at_ms.size, np.nan)
    whole[trace.at] = trace.line_ms if only is None else np.where(only, trace.line_ms, np.nan)
    return whole


def _short(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 9]}…{name[-8:]}"


def _time_axis(place: Axes, at_ms: Line) -> None:
    dates = load_matplotlib("dates")
    locator = dates.AutoDateLocator(tz=UTC)
    place.xaxis.set_major_locator(locator)
    place.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=UTC))
    place.set_xlabel("wall clock, UTC")
    first, last = at_ms.min() / _DAY_MS, at_ms.max() / _DAY_MS
    room = max(last - first, 1000 / _DAY_MS)
    place.set_xlim(first, last + 0.01 * room)


class _Axis:
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
        found: Line = at_ms - instants_ms if self._lag else instants_ms / _DAY_MS
        return found

    def now(self) -> None:
        self.line(self._at_ms, _NOW, width=0.8, style=":")

    def line(
        self, instants_ms: Line, colour: str, *, width: float, style: str = "-", alpha: float = 1.0
    ) -> None:
        """A watermark stands until it is published anew, so it goes by steps."""
        self._place.plot(
            self._at_ms / _DAY_MS,
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
            at / _DAY_MS, self.value(instants, at), linestyle="", marker=shape, markersize=3, color=colour
        )

    def limits(self, *marks: Line) -> None:
        """As far as watermarks and the clock go: a host that stands for days would flatten them."""
        values = self.value(np.concatenate([self._at_ms, *marks]), np.tile(self._at_ms, 1 + len(marks)))
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        least = 1000.0 if self._lag else 1000.0 / _DAY_MS
        room = max(high - low, least) * 0.06
        self._low, self._high = low - room, max(high, low + least) + room
        if self._lag:
            steps_ms = (step * 1000 for step in _NICE_S if step * 1000 * _TICKS_MAX >= high - low)
            step_ms = next(steps_ms, _DAY_MS * 7)
            self._place.set_yticks(np.arange(0, self._high, step_ms))
        self._place.set_ylim((self._high, self._low) if self._lag else (self._low, self._high))

    def name(self, name: str, sample: int, instant_ms: float, colour: str) -> None:
        """Beside the place where it was furthest behind, if that is in the picture: afterwards lines jump up,
        so it stands to the right, but for the last fifth."""
        at = self._at_ms[sample : sample + 1]
        value = float(self.value(np.asarray([instant_ms]), at)[0])
        is_left = at[0] > self._at_ms[0] + 0.8 * (self._at_ms[-1] - self._at_ms[0])
        if self._low <= value <= self._high:
            self._place.annotate(
                name,
                (at[0] / _DAY_MS, value),
                xytext=(-5 if is_left else 5, -3),
                textcoords="offset points",
                ha="right" if is_left else "left",
                va="top",
                color=colour,
                fontsize=7,
            )

"""The picture of a timeline: a panel per level, watermarks against the wall clock, who held them beside it.

y  event time; the diagonal is now, and the further a line is below it, the further it is behind
   with `lag`: how far behind the clock, downwards
blue     output, bold, and input of a level        orange   hosts (or partitions) that held it
green    its units' oldest work                    dots     windows that could close, and when
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.draw.axis import DAY_MS, EventTimeAxis, duration, wall_clock_axis
from rtolap.draw.figure import Format, new_figure, rendered
from rtolap.draw.timeline import Line, Panel, Timeline, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS_MAX = 24
_NAMED = 3  # hosts, and units, of a panel
_UNITS_DRAWN = 24
_NAME_MAX = 28
WIDTH_INCHES, PANEL_INCHES = 11.0, 2.3
_MARK, _GLOBAL, _HOST, _UNIT = "#0072b2", "#000000", "#d55e00", "#009e73"


def draw_timeline(timeline: Timeline, form: Format, *, lag: bool = False) -> bytes:
    """Draw the timeline of an application. Raises DefinitionError where nothing is remembered yet, for too
    many levels, and without matplotlib."""
    if not timeline.at_ms.size:
        raise DefinitionError(
            f"nothing is remembered of {timeline.application} in that time",
            action="take a longer time, or wait a second or two where its leader has just begun",
        )
    if len(timeline.panels) > PANELS_MAX:
        raise DefinitionError(
            "too many levels for one picture",
            expected=f"at most {PANELS_MAX}",
            found=len(timeline.panels),
            action="choose with --level",
        )
    title = f"Watermarks of {timeline.application}"
    rows = len(timeline.panels) + 1
    with new_figure(WIDTH_INCHES, 0.8 + PANEL_INCHES * rows) as figure:
        axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        for panel, place in zip(timeline.panels, axes, strict=False):
            _draw_panel(place, timeline.at_ms, panel, lag)
        _draw_global(axes[-1], timeline, lag)
        wall_clock_axis(axes[-1], timeline.at_ms)
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        return rendered(figure, form, title)


def held_by(panel: Panel) -> str:
    """Describe in words who held it most; empty where none did."""
    hosts, units = _noteworthy(panel)
    names = [f"{_short(trace.name)} ({_behind(trace)})" for trace in (*hosts, *units)]
    more = panel.holding - len(hosts)
    others = "" if more <= 0 else f" and {more} more {'host' if more == 1 else 'hosts'}"
    return f"held by {', '.join(names)}{others}" if names else ""


def _behind(trace: Trace) -> str:
    return "never seen" if trace.behind_max_ms is None else duration(trace.behind_max_ms)


def _noteworthy(panel: Panel) -> tuple[list[Trace], list[Trace]]:
    """Return hosts and units that held it, but for those in whose time it was behind for a tenth of the most
    at best.
    """
    worst_ms = max((trace.weight_ms for trace in panel.holders), default=0)
    hosts, units = (
        [trace for trace in held if trace.held and trace.weight_ms * 10 > worst_ms]
        for held in (panel.hosts, panel.units)
    )
    return hosts[:_NAMED], units[:_NAMED]


def _draw_panel(place: Axes, at_ms: Line, panel: Panel, lag: bool) -> None:
    y = EventTimeAxis(place, at_ms, lag)
    y.now()
    hosts, units = _noteworthy(panel)
    named = [*((trace, _HOST) for trace in hosts), *((trace, _UNIT) for trace in units)]
    for trace, colour in named:
        y.line(_whole(trace, at_ms, trace.holds), colour, width=5, alpha=0.35)
    for unit in panel.units[:_UNITS_DRAWN]:
        y.line(_whole(unit, at_ms), _UNIT, width=0.6)
    if not np.array_equal(panel.input_ms, panel.output_ms, equal_nan=True):
        y.line(panel.input_ms, _MARK, width=0.8, style="--")
    y.line(panel.output_ms, _MARK, width=1.6)
    y.limits(panel.input_ms, panel.output_ms)
    for trace, colour in named:
        if trace.worst is not None:
            y.name(_short(trace.name), trace.worst, at_ms[trace.worst] - (trace.behind_max_ms or 0), colour)
    place.set_title(f"{panel.level} ({panel.role})", loc="left", fontsize=9, fontweight="bold")
    place.set_title(held_by(panel), loc="right", fontsize=8, color=_HOST)


def _draw_global(place: Axes, timeline: Timeline, lag: bool) -> None:
    y = EventTimeAxis(place, timeline.at_ms, lag)
    y.now()
    y.line(timeline.global_ms, _GLOBAL, width=1.8)
    y.limits(timeline.global_ms)
    complete = [closing for closing in timeline.closings if closing.by is None]
    let_go = [closing for closing in timeline.closings if closing.by is not None]
    for closings, colour, shape in ((complete, _MARK, "o"), (let_go, _HOST, "v")):
        y.points(
            [closing.at_ms for closing in closings], [closing.end_ms for closing in closings], colour, shape
        )
    for approval in timeline.approvals:
        place.axvline(approval.at_ms / DAY_MS, color=_HOST, linewidth=0.8, linestyle=":")
        place.text(
            approval.at_ms / DAY_MS,
            0.02,
            f" approved by {_short(approval.by)}",
            transform=place.get_xaxis_transform(),
            color=_HOST,
            fontsize=7,
        )
    place.set_title("global low watermark", loc="left", fontsize=9, fontweight="bold")
    place.set_title(_closings_in_words(timeline), loc="right", fontsize=8)


def _closings_in_words(timeline: Timeline) -> str:
    if not timeline.closings:
        return ""
    delays_ms = np.asarray([closing.at_ms - closing.end_ms for closing in timeline.closings])
    return (
        f"{delays_ms.size} windows could close, {duration(float(np.median(delays_ms)))} after their end "
        f"in the median, {duration(float(delays_ms.max()))} at most"
    )


def _whole(trace: Trace, at_ms: Line, only: NDArray[np.bool_] | None = None) -> Line:
    """Return an entry per sample, NaN where the trace does not say, or not `only`."""
    whole: Line = np.full(at_ms.size, np.nan)
    whole[trace.at] = trace.line_ms if only is None else np.where(only, trace.line_ms, np.nan)
    return whole


def _short(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 9]}…{name[-8:]}"

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
        wall_clock_axis(axes[-1], found.at_ms)
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        return rendered(figure, form, title)


def held_by(panel: Panel) -> str:
    """Describe in words who held it most; empty where nobody did."""
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
    y = EventTimeAxis(place, at_ms, lag)
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
    y = EventTimeAxis(place, found.at_ms, lag)
    y.now()
    y.line(found.global_ms, _GLOBAL, width=1.8)
    y.limits(found.global_ms)
    complete = [one for one in found.closings if one.by is None]
    let_go = [one for one in found.closings if one.by is not None]
    for closings, colour, shape in ((complete, _MARK, "o"), (let_go, _HOST, "v")):
        y.points([one.at_ms for one in closings], [one.end_ms for one in closings], colour, shape)
    for one in found.approvals:
        place.axvline(one.at_ms / DAY_MS, color=_HOST, linewidth=0.8, linestyle=":")
        place.text(
            one.at_ms / DAY_MS,
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

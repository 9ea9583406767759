"""The picture of replication lag: a panel per peer, its furthest queue and their median by wall clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtolap.base.errors import DefinitionError
from rtolap.draw.axis import DAY_MS, duration, wall_clock_axis
from rtolap.draw.figure import Format, new_figure, rendered
from rtolap.draw.timeline import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS_MAX = 24
_WIDTH_INCHES, _PANEL_INCHES = 11.0, 1.9
_WORST, _MEDIAN = "#d55e00", "#0072b2"


@dataclass(frozen=True)
class LagLine:
    """Columns of equal length: float64 milliseconds since 1970, and of lag, NaN where it is not known."""

    peer: str
    at_ms: Line
    worst_ms: Line
    median_ms: Line


def draw_replication_lag(lines: Sequence[LagLine], form: Format) -> bytes:
    """Draw the replication lag. Raises DefinitionError without a line, for too many, and without
    matplotlib."""
    if not lines:
        raise DefinitionError("no look has seen a peer", action="keep some by `rtolap sep status --record`")
    if len(lines) > PANELS_MAX:
        raise DefinitionError(
            "too many peers for one picture",
            expected=f"at most {PANELS_MAX}",
            found=len(lines),
            action="choose with --peer",
        )
    with new_figure(_WIDTH_INCHES, 0.9 + _PANEL_INCHES * len(lines)) as figure:
        axes = figure.subplots(len(lines), 1, sharex=True, squeeze=False)[:, 0]
        for line, place in zip(lines, axes, strict=True):
            _draw_panel(place, line)
        wall_clock_axis(axes[-1], np.concatenate([line.at_ms for line in lines]))
        figure.suptitle("Replication lag", x=0.01, ha="left", fontweight="bold")
        return rendered(figure, form, "Replication lag")


def _draw_panel(place: Axes, line: LagLine) -> None:
    days = line.at_ms / DAY_MS
    place.fill_between(days, 0, line.worst_ms, color=_WORST, alpha=0.15, linewidth=0)
    for values, colour, name in ((line.worst_ms, _WORST, "worst"), (line.median_ms, _MEDIAN, "median")):
        place.plot(days, values, color=colour, linewidth=1.4, label=name)
    known = line.worst_ms[~np.isnan(line.worst_ms)]
    place.set_ylim(0, max(1000.0, 1.06 * float(known.max())) if known.size else 1000.0)
    place.yaxis.set_major_formatter(lambda value, _: duration(value))
    place.grid(linewidth=0.3, color="#cccccc")
    place.set_ylabel("lag")
    place.set_title(line.peer, loc="left", fontsize=9, fontweight="bold")
    if known.size:
        place.set_title(
            f"worst {duration(float(known.max()))}, at last {duration(float(known[-1]))}",
            loc="right",
            fontsize=8,
        )
    place.legend(loc="upper left", fontsize=7, frameon=False, ncols=2)

"""The picture of request stages by time: a panel per broker and request type, stages on top of each other.

The areas are means, which add up to the mean of the whole; the line is the 99th percentile of the whole, on
an axis of its own at the right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from rtolap.base.errors import DefinitionError
from rtolap.draw.axis import DAY_MS, wall_clock_axis
from rtolap.draw.figure import Format, new_figure, rendered
from rtolap.draw.timeline import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS_MAX = 24
_WIDTH_INCHES, _PANEL_INCHES = 11.0, 2.1
# Told apart by people who see no red or green too.
_COLOURS = ("#56b4e9", "#0072b2", "#e69f00", "#009e73", "#cc79a7")
_P99, _THRESHOLD = "#d55e00", "#999999"
_P99_LABEL = "p99 (right)"


@dataclass(frozen=True)
class StageLine:
    """Columns of equal length: float64 milliseconds since 1970, and of a stage, NaN where it is not known.
    mean_ms: by the stage's name, in the order of a request's way."""

    title: str
    at_ms: Line
    mean_ms: dict[str, Line]
    p99_ms: Line


def draw_stages(lines: Sequence[StageLine], form: Format, *, threshold_ms: float | None = None) -> bytes:
    """Draw the times of the stages. Raises DefinitionError without a line, for too many, and without
    matplotlib."""
    if not lines:
        raise DefinitionError("no two looks have seen a broker", action="keep some by --record")
    if len(lines) > PANELS_MAX:
        raise DefinitionError(
            "too many brokers for one picture",
            expected=f"at most {PANELS_MAX} panels",
            found=len(lines),
            action="choose with --broker and --request",
        )
    with new_figure(_WIDTH_INCHES, 0.9 + _PANEL_INCHES * len(lines)) as figure:
        axes = figure.subplots(len(lines), 1, sharex=True, squeeze=False)[:, 0]
        # a stage has one colour in all panels, though not all have it
        names = dict.fromkeys(name for line in lines for name in line.mean_ms)
        colours = dict(zip(names, cycle(_COLOURS), strict=False))
        legend: dict[str, Any] = {}
        for line, place in zip(lines, axes, strict=True):
            legend = _draw_panel(place, line, colours, threshold_ms) | legend
        wall_clock_axis(axes[-1], np.concatenate([line.at_ms for line in lines]))
        figure.suptitle("Stages of requests", x=0.01, ha="left", fontweight="bold")
        order = [name for name in (*(_labelled(name) for name in names), _P99_LABEL) if name in legend]
        figure.legend(
            [legend[name] for name in order],
            order,
            loc="outside upper right",
            fontsize=7,
            frameon=False,
            ncols=len(order),
        )
        return rendered(figure, form, "Stages of requests")


def _labelled(name: str) -> str:
    return f"{name}, mean"


def _draw_panel(
    place: Axes, line: StageLine, colours: Mapping[str, str], threshold_ms: float | None
) -> dict[str, Any]:
    """Return what the legend shows, by its label."""
    days = line.at_ms / DAY_MS
    place.stackplot(
        days,
        *(np.nan_to_num(values) for values in line.mean_ms.values()),
        labels=[_labelled(name) for name in line.mean_ms],
        colors=[colours[name] for name in line.mean_ms],
        alpha=0.85,
        linewidth=0,
    )
    place.set_ylabel("mean, ms")
    place.set_ylim(bottom=0)
    place.grid(linewidth=0.3, color="#cccccc")
    right = place.twinx()
    right.plot(days, line.p99_ms, color=_P99, linewidth=1.4, label=_P99_LABEL)
    if threshold_ms is not None:
        right.axhline(threshold_ms, color=_THRESHOLD, linewidth=0.8, linestyle=":")
    known = line.p99_ms[~np.isnan(line.p99_ms)]
    highest = float(known.max()) if known.size else 0.0
    right.set_ylim(0, 1.06 * max(highest, threshold_ms or 0.0, 1.0))
    right.set_ylabel("p99, ms")
    place.set_title(line.title, loc="left", fontsize=9, fontweight="bold")
    if known.size:
        summary = f"p99 at most {highest:.4g} ms, at last {float(known[-1]):.4g} ms"
        place.set_title(summary, loc="right", fontsize=8)
    drawn: dict[str, Any] = {}
    for axes in (place, right):
        handles, labels = axes.get_legend_handles_labels()
        drawn |= dict(zip(labels, handles, strict=True))
    return drawn

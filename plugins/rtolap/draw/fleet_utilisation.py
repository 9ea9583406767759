"""The picture of a fleet's disks: how full each is before a plan and after it, beside the mean and the
limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.draw.figure import Format, new_figure, rendered

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED_MAX = 40
_WIDTH_INCHES, _HEIGHT_INCHES = 11.0, 5.6
_BELOW, _ABOVE, _MEAN, _LIMIT = "#0072b2", "#d55e00", "#333333", "#cc0000"


@dataclass(frozen=True, eq=False)
class DiskUse:
    """Columns of equal length: names of disks, and shares of each that are used, NaN where nobody knows."""

    names: Sequence[str]
    before: NDArray[np.float64]
    after: NDArray[np.float64]


def draw_fleet_utilisation(disks: DiskUse, *, title: str, limit: float, form: Format) -> bytes:
    """Draw the use of each disk. `limit` is the share beyond which a plan fills no disk. Raises
    DefinitionError where no disk is known, and without matplotlib."""
    known = ~np.isnan(disks.before)
    if not known.any():
        raise DefinitionError("no disk of this plan is of known size", action="take a snapshot that has them")
    names = [name for name, shown in zip(disks.names, known, strict=True) if shown]
    with new_figure(_WIDTH_INCHES, _HEIGHT_INCHES) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, sharey=True)
        _draw_panel(upper, disks.before[known], "before", limit)
        _draw_panel(lower, disks.after[known], "after", limit)
        if len(names) <= NAMED_MAX:
            lower.set_xticks(np.arange(len(names)), names, rotation=90, fontsize=7)
        else:
            lower.set_xlabel(f"{len(names)} disks, by broker and path")
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        return rendered(figure, form, title)


def _draw_panel(place: Axes, shares: NDArray[np.float64], name: str, limit: float) -> None:
    percent = 100.0 * shares
    mean = float(percent.mean())
    colours = [_ABOVE if share > limit else _BELOW for share in shares]
    place.bar(np.arange(percent.size), percent, width=0.8, color=colours, linewidth=0)
    place.axhline(mean, color=_MEAN, linewidth=0.8, linestyle="--")
    place.axhline(100.0 * limit, color=_LIMIT, linewidth=0.8)
    place.set_ylim(0, 100)
    place.set_xlim(-0.6, percent.size - 0.4)
    place.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
    place.grid(axis="y", linewidth=0.3, color="#cccccc")
    place.set_axisbelow(True)
    place.set_title(name, loc="left", fontsize=9, fontweight="bold")
    place.set_title(
        f"{percent.min():.1f} % to {percent.max():.1f} %, mean {mean:.1f} %, deviation {percent.std():.1f} %",
        loc="right",
        fontsize=8,
    )

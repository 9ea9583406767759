"""Figures of matplotlib, which is loaded here when one is drawn, and their bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rtolap.base.errors import DefinitionError
from rtolap.base.optional import import_optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Format = Literal["svg", "png"]
FORMATS: tuple[Format, ...] = ("svg", "png")
DOTS_PER_INCH = 120
_SETTINGS = {
    "svg.hashsalt": "rtolap",  # equal pictures get equal ids
    "svg.fonttype": "none",  # text stays text: it can be searched
    "text.parse_math": False,  # a name may hold a dollar
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def picture_format(path: Path) -> Format:
    """Return the format by the ending of the file's name. Raises DefinitionError for another one."""
    for known in FORMATS:
        if path.suffix.lower() == f".{known}":
            return known
    raise DefinitionError(
        "not a picture that can be drawn", expected="a file name that ends in .svg or .png", found=str(path)
    )


@contextmanager
def new_figure(width_inches: float, height_inches: float) -> Iterator[Figure]:
    """Yield a figure without a window, drawn with settings that are ours alone. Raises DefinitionError where
    matplotlib is not installed."""
    matplotlib, figures = load_matplotlib(), load_matplotlib("figure")
    with matplotlib.rc_context(_SETTINGS):
        yield figures.Figure(figsize=(width_inches, height_inches), layout="constrained")


def rendered(figure: Figure, form: Format, title: str) -> bytes:
    """Render a figure within `new_figure`. Equal figures give equal bytes with the same matplotlib."""
    data = io.BytesIO()
    metadata: dict[str, Any] = {"Title": title}
    if form == "svg":
        metadata["Date"] = None
    figure.savefig(data, format=form, dpi=DOTS_PER_INCH, metadata=metadata)
    return data.getvalue()


def load_matplotlib(part: str | None = None) -> Any:
    """Return the library, or one of its modules."""
    module = "matplotlib" if part is None else f"matplotlib.{part}"
    return import_optional(module, needs="pictures need a library", package="matplotlib", extra="plot")

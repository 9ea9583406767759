"""The picture of request stages: what it says, and that equal looks give equal pictures."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from PIL import Image
from rtolap.base.errors import DefinitionError
from rtolap.draw.fleet_stages import PANELS_MAX, StageLine, draw_stages


def _line(title: str) -> StageLine:
    at_ms = 1_700_000_000_000 + 5000.0 * np.arange(20)
    local = np.arange(20) * 10.0
    local[3] = np.nan
    return StageLine(title, at_ms, {"local": local, "send": np.full(20, 2.0)}, local * 3)


def test_each_broker_has_a_panel_with_its_stages_and_its_percentile() -> None:
    lines = [_line("broker 1, Produce"), _line("broker 2, FetchConsumer")]
    svg = draw_stages(lines, "svg", threshold_ms=300)
    texts = "\n".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg.decode()))
    for part in (
        "broker 1, Produce",
        "broker 2, Fetch",
        "local, mean",
        "send, mean",
        "p99 (right)",
        "570 ms",
    ):
        assert part in texts
    assert svg == draw_stages(lines, "svg", threshold_ms=300)
    with Image.open(io.BytesIO(draw_stages(lines, "png"))) as image:
        image.load()


def test_unknown_times_are_drawn_and_no_broker_or_too_many_are_refused() -> None:
    unknown = np.full(20, np.nan)
    assert draw_stages([StageLine("broker 1", _line("x").at_ms, {"local": unknown}, unknown)], "svg")
    with pytest.raises(DefinitionError, match="--record"):
        draw_stages([], "svg")
    with pytest.raises(DefinitionError, match="--broker"):
        draw_stages([_line(str(n)) for n in range(PANELS_MAX + 1)], "svg")

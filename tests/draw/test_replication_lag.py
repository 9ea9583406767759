"""The picture of replication lag: what it says, and that equal looks give equal pictures."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from PIL import Image
from rtolap.base.errors import DefinitionError
from rtolap.draw.replication_lag import PANELS_MAX, LagLine, draw_replication_lag


def _line(peer: str) -> LagLine:
    at_ms = 1_700_000_000_000 + 1000.0 * np.arange(60)
    worst_ms = np.where(np.arange(60) < 30, np.arange(60) * 4000.0, 90_000.0)
    worst_ms[5] = np.nan
    return LagLine(peer, at_ms, worst_ms, worst_ms / 3)


def test_each_peer_has_a_panel_with_its_worst_and_its_last_lag() -> None:
    svg = draw_replication_lag([_line("orders"), _line("shop$")], "svg")
    texts = "\n".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg.decode()))
    for part in ("orders", "shop$", "worst 1m56s, at last 1m30s", "median", "wall clock, UTC"):
        assert part in texts
    assert svg == draw_replication_lag([_line("orders"), _line("shop$")], "svg")
    with Image.open(io.BytesIO(draw_replication_lag([_line("orders")], "png"))) as image:
        image.load()


def test_a_peer_of_unknown_lag_is_drawn_and_no_peer_or_too_many_are_refused() -> None:
    unknown = np.full(60, np.nan)
    assert draw_replication_lag([LagLine("orders", _line("x").at_ms, unknown, unknown)], "svg")
    with pytest.raises(DefinitionError, match="--record"):
        draw_replication_lag([], "svg")
    with pytest.raises(DefinitionError, match="--peer"):
        draw_replication_lag([_line(str(n)) for n in range(PANELS_MAX + 1)], "svg")

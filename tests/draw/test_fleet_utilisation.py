"""The picture of a fleet's disks: what it says, and that equal plans give equal pictures."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from rtolap.base.errors import DefinitionError
from rtolap.draw.fleet_utilisation import NAMED_MAX, DiskUse, draw_fleet_utilisation


def _use(disks: int) -> DiskUse:
    before = np.linspace(0.1, 0.95, disks)
    before[1] = np.nan
    return DiskUse([f"{n}:/d$" for n in range(disks)], before, np.where(np.isnan(before), np.nan, 0.5))


def test_disks_are_drawn_before_and_after_with_their_spread() -> None:
    svg = draw_fleet_utilisation(_use(6), title="Plan disks", limit=0.9, form="svg")
    for part in ("Plan disks", "before", "after", "5:/d$", "10.0 % to 95.0 %", "deviation 0.0 %"):
        assert part in svg.decode()
    assert "1:/d$" not in svg.decode()
    assert svg == draw_fleet_utilisation(_use(6), title="Plan disks", limit=0.9, form="svg")
    with Image.open(io.BytesIO(draw_fleet_utilisation(_use(6), title="P", limit=0.9, form="png"))) as image:
        image.load()


def test_many_disks_are_counted_instead_of_named_and_none_is_refused() -> None:
    svg = draw_fleet_utilisation(_use(NAMED_MAX + 5), title="P", limit=0.9, form="svg")
    assert f"{NAMED_MAX + 4} disks, by broker and path" in svg.decode()
    unknown = DiskUse(["1:/d"], np.array([np.nan]), np.array([np.nan]))
    with pytest.raises(DefinitionError, match="known size"):
        draw_fleet_utilisation(unknown, title="P", limit=0.9, form="svg")

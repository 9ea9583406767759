from __future__ import annotations

import numpy as np
import pytest
from pyroaring import BitMap
from rtolap.columnar.bitmaps import bitmap_of


@pytest.mark.parametrize("seed", range(8))
def test_a_bitmap_of_an_array_holds_its_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    high = int(rng.choice([3, 1 << 16, 1 << 31, 1 << 32]))
    rows = rng.integers(0, high, int(rng.integers(0, 2000)))
    assert bitmap_of(rows).serialize() == BitMap(rows.tolist()).serialize()

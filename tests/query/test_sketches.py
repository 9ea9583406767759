"""An approximate count never changes because data moves from memory to history."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from rtolap.base.errors import Corrupted
from rtolap.columnar.hll import coupons
from rtolap.columnar.hll_image import U32, image_of_coupons, merge_sketches
from rtolap.query.engine_functions.sketches import hll_estimate

LG_K = 12
VALUES = [1, 7, 8, 100, 384, 385, 1_000, 20_000]  # both sides of where lists, sets and registers begin


def values_as_coupons(count: int) -> U32:
    return np.asarray(coupons(pa.array([f"v{number}" for number in range(count)])), np.uint32)


def estimates(*groups: list[bytes | None]) -> list[float]:
    found: list[float] = hll_estimate(pa.array(groups, pa.list_(pa.binary()))).to_pylist()
    return found


@pytest.mark.parametrize("count", VALUES)
def test_an_estimate_is_the_same_wherever_its_values_lie(count: int) -> None:
    rng = np.random.default_rng(count)
    found = values_as_coupons(count)
    groups: list[list[bytes | None]] = [[image_of_coupons(found, LG_K)]]
    for pieces in (2, 3, 40):
        # Parts overlap, as the values of segments do; some are in memory, others united in history.
        homes = rng.integers(0, pieces, (2, len(found)))
        images = [image_of_coupons(found[(homes == piece).any(axis=0)], LG_K) for piece in range(pieces)]
        built = int(rng.integers(1, pieces + 1))
        groups += [
            list(images),
            [merge_sketches(images[:built]), None, *images[built:]],
            list(reversed(images)),
            [merge_sketches(images)],
        ]
    assert len(set(estimates(*groups))) == 1


def test_no_sketch_counts_nothing() -> None:
    assert estimates([], [None], [image_of_coupons(np.zeros(0, np.uint32), LG_K), None]) == [0.0, 0.0, 0.0]
    assert hll_estimate(pa.array([None], pa.list_(pa.binary()))).to_pylist() == [0.0]


def test_bytes_that_are_no_sketch_are_refused() -> None:
    with pytest.raises(Corrupted):
        estimates([b"no sketch at all"])

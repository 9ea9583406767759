"""Totals that are folded in pieces are those of one call."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rtolap.columnar import group_ids as module
from rtolap.columnar.group_ids import fold_at

from tests.support.seeds import so_many

UFUNCS = (np.add, np.minimum, np.maximum, np.bitwise_xor, np.bitwise_and, np.bitwise_or)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(20, 5)))
def test_pieces_make_the_totals_of_one_call(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(module, "PIECE_ROWS", dice.choice((1, 2, 7, 1000)))
    rng = np.random.default_rng(seed)
    rows, groups = dice.choice((0, 1, 13, 700)), dice.choice((1, 5, 900))
    ids, values = rng.integers(0, groups, rows), rng.integers(-(2**62), 2**62, rows)
    for ufunc in UFUNCS:
        whole, pieces = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        ufunc.at(whole, ids, values)
        fold_at(ufunc, pieces, ids, values)
        assert np.array_equal(whole, pieces), f"seed {seed}: {ufunc}"


def test_a_piece_is_no_longer_than_its_bound() -> None:
    pieces: list[int] = []

    class Watched:
        def at(self, totals: object, ids: NDArray[Any], values: NDArray[Any]) -> None:
            assert len(ids) == len(values)
            pieces.append(len(ids))

    rows = 2 * module.PIECE_ROWS + 1
    fold_at(Watched(), np.zeros(1), np.zeros(rows, np.int64), np.zeros(rows))  # type: ignore[arg-type]
    assert pieces == [module.PIECE_ROWS, module.PIECE_ROWS, 1]

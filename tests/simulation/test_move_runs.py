"""Seeded runs of loads while replicas move between nodes, under crashes at each step of a move."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.seeds import so_many
from tests.support.stored.move_runs import run_seed

SEEDS = so_many(10, 40)


@pytest.mark.seeded
def test_loads_and_replicas_are_whole_whatever_dies_while_replicas_move() -> None:
    """Replay a failure with `python -m tests.support.stored.move_runs --seed N`."""
    counts = Counter[str]()
    for seed in range(SEEDS):
        try:
            counts += run_seed(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    wanted = ("visible", "crash", "other master", "lost COPYING", "lost SWITCHED", "lost RETIRING",
              "drain COPYING", "drain SWITCHED", "drain RETIRING")  # fmt: skip
    assert all(counts[what] >= SEEDS // 10 for what in wanted), counts

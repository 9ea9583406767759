"""Seeded runs of a whole cluster, each answer held against a plain recount."""

from __future__ import annotations

import pytest
from rtolap.testing.harness import run_seed

SEEDS = 32


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_answer_is_the_recount_of_a_prefix(seed: int) -> None:
    """Replay a failure with `python -m rtolap.testing.harness --seed N`."""
    counts = run_seed(seed)
    assert counts["answers"] > 5, "a run that hardly ever answers proves little"

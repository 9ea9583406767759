"""Seeded runs of transactions under crashes, lost acknowledgements, two masters and repeated requests."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.seeds import so_many
from tests.support.stored.transaction_runs import World, run_seed

LONG_SEEDS, LONG_STEPS = range(500, 500 + so_many(2)), 150
SEEDS = so_many(30, 60)


@pytest.mark.seeded
def test_what_clients_were_told_comes_true_whatever_dies() -> None:
    """Replay a failure with `python -m tests.support.stored.transaction_runs --seed N`."""
    world, counts = World(), Counter[str]()
    for seed in range(SEEDS):
        try:
            counts += run_seed(seed, world=world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    wanted = ("visible", "crash before", "crash after", "unacknowledged", "crash at a call", "call lost",
              "answer lost", "call twice", "other master")  # fmt: skip
    assert all(counts[what] >= SEEDS // 15 for what in wanted), (
        f"runs in which little happens prove little: {counts}"
    )


def test_long_lives_keep_their_word_as_well() -> None:
    world, counts = World(), Counter[str]()
    for seed in LONG_SEEDS:
        counts += run_seed(seed, LONG_STEPS, world)
    assert min(counts["crash"], counts["other master"]) >= len(LONG_SEEDS), counts

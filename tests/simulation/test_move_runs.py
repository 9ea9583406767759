"""Seeded runs of loads while replicas move between nodes and partitions are made again, under crashes at each
step of a move, and whether the runs notice planted faults."""

from __future__ import annotations

from collections import Counter

import pytest
from rtolap.stored.frontend.moves.steps import MoveSteps

from tests.support.seeds import notices, so_many
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
              "drain COPYING", "drain SWITCHED", "drain RETIRING", "switched over a load", "fence waits",
              "dropped", "dropped at a call", "remade", "stray dropped")  # fmt: skip
    assert all(counts[what] >= SEEDS // 10 for what in wanted), counts


def test_the_runs_notice_a_fence_that_is_always_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old replica goes while its vote is the only one of a decided load."""
    monkeypatch.setattr(MoveSteps, "_is_over", lambda *facts: True)
    assert notices(run_seed, 2, "COMMITTED")

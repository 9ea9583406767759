"""Seeded runs of loads while replicas move between nodes, under crashes at each step of a move."""

from __future__ import annotations

from collections import Counter

import pytest
from rtolap.stored.frontend.moves.steps import MoveSteps

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


def test_the_runs_notice_an_old_replica_that_is_given_up_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MoveSteps, "_is_over", lambda *_: True)
    assert _is_noticed()


def test_the_runs_notice_a_replica_that_counts_before_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    take = MoveSteps.take

    def hasty(self: MoveSteps, move, event, alive, reached=0):  # type: ignore[no-untyped-def]
        return take(self, move, event, alive, 1 << 40)

    monkeypatch.setattr(MoveSteps, "take", hasty)
    monkeypatch.setattr("rtolap.stored.frontend.moves.mover.Mover._reached", lambda *_: 1 << 40)
    assert _is_noticed()


def _is_noticed() -> bool:
    for seed in range(30):
        try:
            run_seed(seed)
        except AssertionError:
            return True
    return False

"""All metadata is lost and restored from a backup, again and again: answers stay recounts of a prefix."""

from __future__ import annotations

import pytest

from tests.support.cubes.harness import run_seed
from tests.support.cubes.harness_features import Feature
from tests.support.seeds import so_many


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(2, 3)))
def test_answers_are_exact_after_restores_with_lost_files_and_merges(seed: int) -> None:
    """Replay a failure with `run_seed(N, {Feature.RESTORING}, steps=200)`."""
    counts = run_seed(seed, {Feature.RESTORING}, steps=200)
    assert counts["restores"] > 0
    assert counts["restored: taken"] > 0
    assert counts["answers"] > 5


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(1, 2)))
def test_answers_are_exact_after_restores_between_batches(seed: int) -> None:
    """Replay a failure with `run_seed(N, {Feature.RESTORING, Feature.BATCHES}, steps=200)`."""
    counts = run_seed(seed, {Feature.RESTORING, Feature.BATCHES}, steps=200)
    assert counts["restores"] > 0
    assert counts["restored: taken"] > 0

"""Random lives of tablets against an obvious slow one: all models and functions, crashes, compaction.

A failure names model and seed: `TabletRun(tmp_path, model, seed).play(BATCHES)` plays it again.
`make soak` has more seeds.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.model.stored.table import TableModel

from tests.support.seeds import so_many
from tests.support.stored.tablet_run import TabletRun

BATCHES = 120
SEEDS = so_many(2, 3)
MODELS: tuple[TableModel, ...] = ("duplicate", "aggregate", "unique")
STEPS = set(range(1, 19))
OF_UNIQUE_TABLES = {4, 11, 17, 18}


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("model", MODELS)
def test_a_random_life_equals_the_slow_tablet(tmp_path: Path, model: TableModel, seed: int) -> None:
    run = TabletRun(tmp_path, model, seed)
    run.play(BATCHES)
    assert run.batches >= BATCHES
    assert run.crashes
    assert run.failures
    assert run.compactions
    assert bool(run.partial_batches) == (model == "unique")
    assert run.disk.seen >= (STEPS if model == "unique" else STEPS - OF_UNIQUE_TABLES)


def test_the_runs_are_long_enough_to_mean_something() -> None:
    assert BATCHES * SEEDS * len(MODELS) >= so_many(700, 1_000)

"""Seeded runs of the loader under crashes, lost and doubled requests, two owners and restarts of the sink."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from rtolap.testing.loader_runs import MODELS, Run, World

SEEDS = int(os.environ.get("RTOLAP_LOADER_SEEDS", "100"))
_GROUPS = 5


@pytest.mark.parametrize("group", range(_GROUPS))
def test_each_record_has_its_effect_once_whatever_dies(group: int) -> None:
    """Replay a failure with `python -m rtolap.testing.loader_runs --seed N`."""
    world, counts, models = World(), Counter[str](), Counter[str]()
    for seed in range(group, SEEDS, _GROUPS):
        run = Run(world, seed)
        models[run.model] += 1
        try:
            counts += run.run()
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    assert models.keys() == set(MODELS)
    wanted = ("crash", "answer lost", "request twice", "unacknowledged", "taken over", "partitions added")
    assert all(counts[what] for what in wanted), f"runs in which little happens prove little: {counts}"

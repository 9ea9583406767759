"""Seeded runs in which features meet: which of them is drawn, and nobody has named the pairs."""

from __future__ import annotations

import pytest

from tests.support.cubes.harness import run_seed
from tests.support.cubes.harness_features import Feature, drawn_features
from tests.support.seeds import so_many

SEEDS = so_many(4, 20)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_answer_is_the_recount_of_a_prefix_where_features_meet(seed: int) -> None:
    """A failure says how to replay it."""
    features = sorted(drawn_features(seed))
    try:
        counts = run_seed(seed, features, steps=150)
    except BaseException as error:
        said = f"python -m tests.support.cubes.harness --steps 150 --seed {seed} --with {' '.join(features)}"
        error.add_note(f"replay it with `{said}`")
        raise
    assert counts["answers"], f"no answer with {features}: a run in which little happens proves little"


def test_each_feature_meets_each_other_one_in_the_long_test() -> None:
    drawn = [drawn_features(seed) for seed in range(200)]
    met = {(one, other) for features in drawn for one in features for other in features}
    assert len(met) == len(Feature) ** 2

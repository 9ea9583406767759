"""Seeded runs in which features meet: which of them is drawn, and nobody has named the pairs."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import pytest
from rtolap.metadata import segments
from rtolap.metadata.records import SegmentRecord

from tests.support.cubes.harness import run_seed
from tests.support.cubes.harness_features import Feature, drawn_features
from tests.support.seeds import notices, so_many

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


def test_the_runs_notice_a_failed_build_after_which_the_topic_says_what_a_batch_had_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Builds fail where files are lost, and that the record forgets its batch matters where there was one."""
    real = segments.fail_build

    def forgets_the_batch(record: SegmentRecord, *of_build: Any) -> SegmentRecord:
        return msgspec.structs.replace(real(record, *of_build), batch="")

    monkeypatch.setattr(segments, "fail_build", forgets_the_batch)
    meeting = functools.partial(run_seed, features={Feature.BATCHES, Feature.LOSING_FILES})
    assert notices(meeting, 0, "rows of a batch gave way to the topic's")

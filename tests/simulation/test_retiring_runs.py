"""Seeded runs of a cluster whose replica sets are drained, killed and revived, with leaders killed at it."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import pytest
from rtolap.coordinator.retirement import states
from rtolap.coordinator.retirement.relief import Relief
from rtolap.coordinator.retirement.states import Look, Looked
from rtolap.metadata.cubes import ClusterMetadata

from tests.support.cubes.harness import run_seed
from tests.support.cubes.harness_features import Feature
from tests.support.seeds import notices, so_many

HASTY_SEED, GIVEN_SEED = 3, 1

retiring = functools.partial(run_seed, features={Feature.RETIRING}, steps=300)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3, 4)))
def test_every_answer_is_the_recount_while_replica_sets_are_drained_and_lost(seed: int) -> None:
    """Replay a failure with `run_seed(N, {Feature.RETIRING}, steps=300)`."""
    counts = retiring(seed)
    assert counts["answers"] > 5
    assert counts["replica sets gone for good"] + counts["replica sets drained in the end"] == 1
    assert counts["drains"] + counts["replica sets killed"] > 0


def test_the_runs_notice_a_replica_set_that_is_lost_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(sets: Mapping[str, Looked], now_ms: int, lost_after_ms: int) -> dict[str, Look]:
        missing = {name: one.missing_since_ms for name, one in sets.items() if not one.lives}
        seen = {name: Look.MISSING if since_ms is None else Look.LOST for name, since_ms in missing.items()}
        return {name: seen.get(name, Look.LIVES) for name in sets}

    monkeypatch.setattr(states, "looks", hasty)
    assert notices(retiring, HASTY_SEED, "after it was killed", seeds=20)


def test_the_runs_notice_a_drained_replica_set_that_is_given_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClusterMetadata, "may_take_partitions", lambda self, names: ())
    assert notices(retiring, GIVEN_SEED, "is drained, and was given", seeds=20)


def test_the_runs_notice_a_leader_that_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Relief, "tick", lambda self: None)
    short = functools.partial(run_seed, features={Feature.RETIRING}, steps=60)
    assert notices(short, 0, "not drained", seeds=4)


def test_the_runs_notice_a_replica_set_that_does_not_keep_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The drain is undone, and the moves that were planned for it go on."""
    monkeypatch.setattr("rtolap.coordinator.retirement.drains.Drains.keep", lambda self, name: None)
    assert notices(retiring, 0, "does not keep what it has", seeds=20)

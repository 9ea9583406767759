"""Disk plans of small fleets beside an exact solver: in the band wherever that can be, with few bytes more.

So many fleets: `RTOLAP_SEEDS=10 pytest tests/fleet/planning/test_exact_solver.py`; one: `-k "[seed]"`.
"""

from __future__ import annotations

import numpy as np
import pytest
from rtolap.fleet.planning.disks import band_of_disks, plan_disks
from rtolap.fleet.planning.placement import Placement

from tests.support.fleet.exact_disks import fewest_bytes
from tests.support.fleet.random_fleets import NONE, random_fleet
from tests.support.seeds import so_many

TOLERANCE = 0.1
REPLICAS_MAX = 60
TO_LEAST = 1.1
GROUPS = 2
SEEDS = so_many(20, 36)
# What is left outside the band below this share of what was is less than moving for it is worth.
LEFT_MAX = 0.001


@pytest.mark.seeded
@pytest.mark.parametrize("group", range(GROUPS))
def test_bands_that_can_be_reached_are_reached_with_at_most_a_tenth_more_than_the_fewest_bytes(
    group: int,
) -> None:
    """Each disk holds a handful of replicas, where whole replicas matter most. Of three fleets that are drawn
    one is outside the band, small enough for the solver, and can be brought into it."""
    ratios: dict[int, float] = {}
    missed: dict[int, float] = {}
    for seed in range(group, SEEDS, GROUPS):
        fleet = random_fleet(seed, odd=NONE, brokers_max=6, factor_max=3)
        placement = Placement(fleet)
        dirs = np.flatnonzero(placement.takes)
        band = band_of_disks(placement, dirs, TOLERANCE)
        before = band.outside_bytes(placement.after_bytes())[dirs].sum()
        if not before or len(fleet.replicas) > REPLICAS_MAX:
            continue
        try:
            least = fewest_bytes(placement, band)
        except TimeoutError:
            continue
        if least is None:
            continue
        plan = plan_disks(fleet, tolerance=TOLERANCE)
        ratios[seed] = plan.moved_bytes / least
        missed[seed] = plan.bounds.after_bytes / plan.bounds.before_bytes
    assert len(ratios) >= SEEDS // GROUPS // 10
    assert not {seed: left for seed, left in missed.items() if left > LEFT_MAX}
    assert not {seed: ratio for seed, ratio in ratios.items() if ratio > TO_LEAST}
    assert np.mean(list(ratios.values())) <= 1.03

"""Disk plans of small fleets beside an exact solver: in the band where that can be, with few bytes more."""

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
# What is left outside the band below this share of what was is less than moving for it is worth.
LEFT_MAX = 0.01


@pytest.mark.seeded
def test_bands_that_can_be_reached_are_reached_with_few_bytes_more_than_the_fewest() -> None:
    """Each disk holds a handful of replicas, where whole replicas matter most. In nine of ten fleets at most
    a tenth more bytes move than must."""
    ratios: dict[int, float] = {}
    missed: list[int] = []
    for seed in range(so_many(40)):
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
        if plan.bounds.after_bytes > LEFT_MAX * plan.bounds.before_bytes:
            missed.append(seed)
        else:
            ratios[seed] = plan.moved_bytes / least
    assert len(ratios) >= 8
    assert len(missed) <= len(ratios) // 5, missed
    above = {seed: ratio for seed, ratio in ratios.items() if ratio > TO_LEAST}
    assert len(above) <= len(ratios) / 10, above
    assert np.mean(list(ratios.values())) <= 1.05

"""The time from a record's creation until answers have it, as a receiver measures it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rtolap.cubes.receiver.core.freshness import WINDOW_S, Freshness
from rtolap.kafka.interfaces import Batch

from tests.support.seeds import so_many


def batch(created_ms: list[int] | None) -> Batch:
    count = 1 if created_ms is None else len(created_ms)
    created = None if created_ms is None else np.array(created_ms, np.int64)
    return Batch([b"{}"] * count, np.zeros(count, np.int32), np.arange(count), created)


def test_the_oldest_record_of_a_batch_counts_and_is_forgotten_after_a_minute() -> None:
    freshness = Freshness()
    assert freshness.longest_ms(0.0) is None
    freshness.took(batch([1_000, 400, -1]), 1_500, 10.2)
    assert freshness.longest_ms(10.9) == 1_100
    freshness.took(batch([2_450]), 2_500, 11.2)
    assert freshness.longest_ms(11.2) == 1_100
    assert freshness.longest_ms(10.0 + WINDOW_S) == 50
    assert freshness.longest_ms(11.0 + WINDOW_S) is None


@pytest.mark.parametrize("created", [None, [-1, -1]])
def test_records_without_a_timestamp_say_nothing(created: list[int] | None) -> None:
    freshness = Freshness()
    freshness.took(batch(created), 5_000, 1.0)
    assert freshness.longest_ms(1.0) is None


def test_a_producer_whose_clock_is_ahead_makes_no_record_visible_before_its_creation() -> None:
    freshness = Freshness()
    freshness.took(batch([9_000]), 5_000, 1.0)
    assert freshness.longest_ms(1.0) == 0


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(5)))
def test_it_is_the_maximum_over_the_last_minute_of_whole_seconds(seed: int) -> None:
    rng, freshness = random.Random(seed), Freshness()
    seen: list[tuple[float, int]] = []
    now_s = 0.0
    for _ in range(400):
        now_s += rng.choice([0.01, 0.4, 3.0, 45.0])
        if rng.random() < 0.8:
            now_ms, created = round(now_s * 1000), rng.randrange(round(now_s * 1000) + 1)
            freshness.took(batch([created, now_ms]), now_ms, now_s)
            seen.append((now_s, now_ms - created))
        recent = [delay for at_s, delay in seen if int(at_s) > now_s - WINDOW_S]
        assert freshness.longest_ms(now_s) == max(recent, default=None)

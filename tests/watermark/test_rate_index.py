"""The common index of rates, by event time."""

from __future__ import annotations

import numpy as np
import pytest
from rtolap.watermark.rate_index import KEPT_MS, RateIndex
from rtolap.watermark.snapshot import NEVER

SLOT_MS = 10_000
START_MS = 1_700_000_000_000


def at(index: RateIndex, *instants_ms: int) -> list[float]:
    return index.at(np.array(instants_ms)).tolist()


def test_it_is_looked_up_by_event_time_and_grows_evenly_between() -> None:
    index = RateIndex(SLOT_MS)
    assert index.from_ms == index.front_ms == NEVER
    assert at(index, START_MS) == [1.0]
    index.begin(START_MS - 300_000, START_MS)
    index.advance(START_MS + 2 * SLOT_MS, 3.0)
    index.advance(START_MS, 2.0)  # no later front: what is known of it has changed
    assert (index.from_ms, index.front_ms) == (START_MS - 300_000, START_MS + 2 * SLOT_MS)
    assert at(index, START_MS - 300_000, START_MS, START_MS + SLOT_MS, START_MS + 2 * SLOT_MS) == [1, 1, 2, 6]
    assert at(index, 0, START_MS + 10**9) == [1.0, 6.0], "the first and the last for what lies beyond"


@pytest.mark.parametrize("step_slots", [1, 7, 5_000, 100_000])
def test_more_than_a_day_of_it_is_kept_and_no_more(step_slots: int) -> None:
    index = RateIndex(SLOT_MS)
    index.begin(START_MS, START_MS)
    before = index.nbytes
    for step in range(1, 2 + 20_000 // step_slots):
        index.advance(START_MS + step * step_slots * SLOT_MS, 1.001)
    assert index.latest == pytest.approx(1.001**step)
    assert index.nbytes == before
    kept_ms = index.front_ms - index.from_ms
    assert min(86_400_000, KEPT_MS // 2) <= kept_ms <= KEPT_MS
    if step_slots < 100:
        day_ago = index.front_ms - 86_400_000 // 2
        assert at(index, day_ago)[0] == pytest.approx(1.001 ** (step - 4_320 / step_slots), rel=1e-3)

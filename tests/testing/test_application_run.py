"""Seeded runs of a cube that closes by an application: nothing of the log lies behind a vector."""

from __future__ import annotations

import pytest
from rtolap.testing.application_run import run_seed

SEEDS = 12


@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
def test_a_segment_closed_by_the_watermark_holds_every_event_of_its_window(seed: int) -> None:
    """Replay a failure with `python -m rtolap.testing.application_run --seed N`."""
    assert run_seed(seed)["closed"] > 0, "a run that closes nothing proves nothing"

"""Seeded runs of loaders as units of an application: its watermark is never ahead of what is readable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from rtolap.model.offsets import Offsets
from rtolap.stored.loader.operator import OldestWorkTracker
from rtolap.stored.loader.visible import Visible
from rtolap.stored.metastore.offsets import OffsetsRecord

from tests.support.loader.loader_application_runs import run_seed
from tests.support.seeds import notices, so_many

SEEDS = so_many(5)


@pytest.mark.seeded
def test_the_watermark_is_never_ahead_of_what_can_be_read() -> None:
    """Replay a failure with `python -m tests.support.loader.loader_application_runs --seed N`."""
    counts = Counter[str]()
    for seed in range(SEEDS):
        counts += run_seed(seed)
    wanted = ("crash", "taken over", "coordinators", "partitions added", "unacknowledged")
    assert all(counts[what] >= SEEDS // 5 for what in wanted), counts
    assert counts["with events behind it"] > SEEDS, f"runs that stand still prove little: {counts}"


def committed_counts_as_visible(patch: pytest.MonkeyPatch) -> None:
    def is_visible(self: Visible, record: OffsetsRecord) -> bool:
        return True

    patch.setattr(Visible, "_is_visible", is_visible)


def what_is_caught_up_with_is_enough(patch: pytest.MonkeyPatch) -> None:
    """The newest input is promised, although the ends were those of an earlier one."""

    def readable(self: OldestWorkTracker, visible: Offsets) -> int:
        looks = self._looks
        if looks and all(visible.get(partition, 0) >= end for partition, end in looks[0][1].items()):
            self.oldest_ms = looks[-1][0]
            looks.clear()
        return self.oldest_ms

    patch.setattr(OldestWorkTracker, "readable", readable)


@pytest.mark.parametrize(
    ("fault", "first_seed"),
    [
        (committed_counts_as_visible, 23),
        (what_is_caught_up_with_is_enough, 56),
    ],
)
def test_the_runs_notice(
    fault: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert notices(run_seed, first_seed, "cannot be read")

"""Seeded runs of a cube that closes by an application: nothing of the log lies behind a vector."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rtolap.cubes.receiver.closing_rules import Takeover
from rtolap.watermark_client.session import WatermarkSession

from tests.support.seeds import notices, so_many
from tests.support.watermarks.application_receiver import ApplicationReceiver
from tests.support.watermarks.application_run import run_seed

SEEDS = so_many(2)
CLOSED_MIN = 8  # a run that closes little proves little


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
def test_a_segment_closed_by_the_watermark_holds_every_event_of_its_window(seed: int) -> None:
    """Replay a failure with `python -m tests.support.watermarks.application_run --seed N`."""
    assert run_seed(seed)["closed"] >= CLOSED_MIN


@pytest.mark.parametrize("seed", range(300, 300 + so_many(1)))
def test_where_hosts_are_forgotten_all_the_time_no_event_is_left_behind(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six hosts, room for the names of two, and who is silent for a second may be forgotten."""
    for module in ("cubes.receiver.hosts.host_progress", "watermark_client.pending"):
        monkeypatch.setattr(f"rtolap.{module}.HOSTS_MAX", 2)
    monkeypatch.setattr("rtolap.cubes.receiver.hosts.host_progress._LOOK_EVERY_MS", 1)
    monkeypatch.setattr("rtolap.watermark.forgetting.SILENT_MS", 1_000)
    assert run_seed(seed)["closed"] >= CLOSED_MIN


def nobody_checks_who_leads(patch: pytest.MonkeyPatch) -> None:
    """The commit of a leader that was deposed without noticing passes."""
    patch.setattr(ApplicationReceiver, "_leading", lambda self: ())


def everything_may_close(patch: pytest.MonkeyPatch) -> None:
    """What a former reader's reports let go closes at the positions of the present one."""
    patch.setattr(Takeover, "may_close", lambda self, end_ms, lateness_ms, positions: True)


def a_lost_report_counts_as_taken(patch: pytest.MonkeyPatch) -> None:
    """The first report of a new reader need not have arrived."""
    patch.setattr(WatermarkSession, "has_taken", lambda self, level, partition, generation: True)


@pytest.mark.parametrize(
    ("fault", "first_seed"),
    [(nobody_checks_who_leads, 206), (everything_may_close, 215), (a_lost_report_counts_as_taken, 200)],
)
def test_the_runs_notice(
    fault: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert notices(run_seed, first_seed, "comes later")

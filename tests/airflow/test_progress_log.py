"""The progress of a wait in the task's log: at once, then at most once in an interval."""

from __future__ import annotations

import time
from unittest.mock import Mock

import pytest
from rtolap.airflow.triggers.base import LOG_EVERY_S, ProgressLog


def test_a_wait_is_logged_at_once_and_again_when_the_interval_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, log = 1000.0, Mock()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    progress = ProgressLog(log)
    for now_s in (1000.0, 1000.0 + LOG_EVERY_S, 1000.5 + LOG_EVERY_S):
        progress.info(f"at {now_s}")
    assert [call.args for call in log.info.call_args_list] == [("%s", "at 1000.0"), ("%s", f"at {now_s}")]


def test_a_wait_that_has_just_begun_may_stay_silent_for_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Mock()
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    ProgressLog(log, 1000.0).info("nothing new")
    log.info.assert_not_called()

"""Steps are as frequent as they are short, within a bound; a quiet stream never waits.

An idle cube looks for other work less often.
"""

from __future__ import annotations

import pytest
from rtolap.cubes.receiver.pace import (
    IDLE_AFTER_S,
    IDLE_FACTOR,
    INTERVAL_S_MAX,
    SHORT_INTERVAL_S_MAX,
    StepPace,
)


def test_the_first_step_and_one_after_a_pause_begin_at_once() -> None:
    pace = StepPace()
    assert pace.wait_s(100.0) == 0
    pace.stepped(100.0, 100.002)
    assert pace.wait_s(101.0) == 0


@pytest.mark.parametrize(
    ("took_s", "next_s"),
    [
        *((0.001, 0.004), (0.002, 0.008)),
        *((0.0035, SHORT_INTERVAL_S_MAX), (0.005, SHORT_INTERVAL_S_MAX)),
        *((0.009, SHORT_INTERVAL_S_MAX), (0.011, 0.0143), (0.016, 0.0208), (0.02, INTERVAL_S_MAX)),
    ],
)
def test_the_next_step_waits_a_multiple_of_what_the_last_one_took(took_s: float, next_s: float) -> None:
    pace = StepPace()
    pace.stepped(50.0, 50.0 + took_s)
    assert pace.wait_s(50.0 + took_s) == pytest.approx(next_s - took_s)


def test_a_core_that_is_behind_never_waits() -> None:
    pace = StepPace()
    pace.stepped(50.0, 50.0 + INTERVAL_S_MAX)
    assert pace.wait_s(50.0 + INTERVAL_S_MAX) == 0


def test_threads_look_less_often_where_no_record_has_come_for_a_while() -> None:
    pace = StepPace(50.0)
    assert pace.every_s(0.1, 50.0 + IDLE_AFTER_S) == 0.1
    assert pace.every_s(0.1, 50.1 + IDLE_AFTER_S) == pytest.approx(0.1 * IDLE_FACTOR)
    pace.stepped(70.0, 70.1)
    assert pace.every_s(0.1, 70.1 + IDLE_AFTER_S) == 0.1
    assert pace.every_s(0.1, 70.2 + IDLE_AFTER_S) == pytest.approx(0.1 * IDLE_FACTOR)

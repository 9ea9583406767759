"""Time-outs share one thread: each fires at its time, or never once it was taken back."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import QueryTimeout
from rtolap.query.cancel import Cancellation, Timeouts

WAIT_S = 10.0


@pytest.fixture
def timeouts() -> Iterator[Timeouts]:
    made = Timeouts(SystemClock())
    yield made
    made.close()


def test_a_query_ends_at_its_time_with_an_error_that_says_so(timeouts: Timeouts) -> None:
    ended = threading.Event()
    cancellation = Cancellation(timeouts, 20)
    cancellation.on_cancel(ended.set)
    assert ended.wait(WAIT_S)
    with pytest.raises(QueryTimeout, match="20 ms"):
        cancellation.check()


def test_a_shorter_time_out_fires_before_a_longer_one_that_was_there_first(timeouts: Timeouts) -> None:
    order: list[str] = []
    both = threading.Event()
    longer, shorter = Cancellation(timeouts, 200), Cancellation(timeouts, 20)
    longer.on_cancel(lambda: (order.append("longer"), both.set()))
    shorter.on_cancel(lambda: order.append("shorter"))
    assert both.wait(WAIT_S)
    assert order == ["shorter", "longer"]


def test_a_query_that_is_over_is_not_ended_any_more(timeouts: Timeouts) -> None:
    later = threading.Event()
    over = Cancellation(timeouts, 20)
    over.close()
    Cancellation(timeouts, 60).on_cancel(later.set)
    assert later.wait(WAIT_S)
    assert over.error() is None


def test_a_callback_that_fails_leaves_the_other_time_outs_alive(timeouts: Timeouts) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    ended = threading.Event()
    Cancellation(timeouts, 10).on_cancel(fail)
    Cancellation(timeouts, 40).on_cancel(ended.set)
    assert ended.wait(WAIT_S)


def test_time_outs_that_were_taken_back_do_not_pile_up(timeouts: Timeouts) -> None:
    for _ in range(10_000):
        Cancellation(timeouts, 86_400_000).close()
    assert len(timeouts._due) < 200


def test_an_engine_that_missed_the_first_word_is_told_again_until_the_query_is_over(
    timeouts: Timeouts,
) -> None:
    told = threading.Semaphore(0)
    cancellation = Cancellation(timeouts, 60_000)
    cancellation.on_cancel(lambda: told.release(), until_over=True)
    cancellation.cancel("somebody said so")
    for _ in range(3):
        assert told.acquire(timeout=WAIT_S)
    cancellation.close()
    while told.acquire(blocking=False):
        pass
    assert not told.acquire(timeout=0.2)

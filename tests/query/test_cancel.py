"""Time-outs share one thread: each fires at its time, or never once it was taken back.

A statement that was ended does not wait for an engine that does not hear it: its worker is replaced.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import QueryError, QueryTimeout, Unavailable
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.statement_service import QueryLimits, QueryService

from tests.support.query.query_world import QueryWorld
from tests.support.query.workers import is_asked, wait_until, worker_pids

WAIT_S = 10.0
LET_GO_S = 60.0  # it is half a second on a machine that has nothing else to do
_DIGITS = "(select 0 d union all select 1 union all select 2 union all select 3 union all select 4) "
MANY_ROWS = "select a.d x from " + ", ".join(_DIGITS + name for name in "abcdefghij")
ENDLESS = "select count(*) x from " + ", ".join(_DIGITS + name for name in "abcdefghijklmnopqrstuv")


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


@pytest.fixture(scope="module")
def one_turn(world: QueryWorld) -> Iterator[QueryService]:
    """One turn, and so one worker."""
    made = world.service(QueryLimits(queries_max=1, queue_wait_s=0.05), in_workers=True)
    yield made
    made.close()


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_a_result_that_is_read_is_let_go_in_the_same_way(how: str, one_turn: QueryService) -> None:
    ending = one_turn.cancellation()
    outcome = one_turn.execute(MANY_ROWS, (), ending)
    assert next(outcome.batches).num_rows
    (pid,) = worker_pids(one_turn, "working")
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as client:
        waiting = client.submit(outcome.table)
        wait_until(lambda: is_asked(one_turn))
        if how == "killed":
            ending.cancel("KILL QUERY")
            with pytest.raises(QueryError, match="KILL QUERY"):
                waiting.result(LET_GO_S)
        else:
            outcome.close()  # by another thread than the one that reads
            with pytest.raises(Unavailable):
                waiting.result(LET_GO_S)
    assert answer_in_time(one_turn) == [{"x": 1}]


def test_a_statement_that_was_ended_already_asks_nobody(one_turn: QueryService) -> None:
    answer_in_time(one_turn)
    pids = worker_pids(one_turn)
    ending = one_turn.cancellation()
    ending.cancel("before")
    with pytest.raises(QueryError, match="before"):
        one_turn.execute("select 1 as x", (), ending)
    assert answer_in_time(one_turn) == [{"x": 1}]
    assert worker_pids(one_turn) == pids


def test_an_interrupt_that_is_heard_costs_no_worker(one_turn: QueryService) -> None:
    for _ in range(5):  # on a machine that is busy it may take longer than a worker is given
        answer_in_time(one_turn)
        pids = worker_pids(one_turn)
        with pytest.raises(QueryError, match="took longer than 300 ms"):
            one_turn.execute(ENDLESS, (), one_turn.cancellation(300)).table()
        assert answer_in_time(one_turn) == [{"x": 1}]
        if worker_pids(one_turn) == pids:
            return
    pytest.fail("no interrupt was heard")


def answer_in_time(service: QueryService) -> list[dict[str, object]]:
    """Of a statement, once there is a turn again."""
    deadline_s = time.monotonic() + LET_GO_S
    while True:
        try:
            table: pa.Table = service.execute("select 1 as x").table()
            return list(table.to_pylist())
        except Unavailable:
            if time.monotonic() > deadline_s:
                raise

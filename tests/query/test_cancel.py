"""Time-outs share one thread: each fires at its time, or never once it was taken back.

A statement that was ended does not wait for an engine that does not hear it, but keeps its turn until then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import QueryError, QueryTimeout, Unavailable
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.engine import EngineSession
from rtolap.query.engine_calls import EngineCalls
from rtolap.query.service import Limits, QueryService
from rtolap.testing.query_world import QueryWorld

WAIT_S = 10.0
LET_GO_S = 5.0  # it is half a second on a machine that has nothing else to do


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


@pytest.fixture
def calls() -> Iterator[EngineCalls]:
    with EngineCalls(1) as made:
        yield made


def test_a_call_that_does_not_hear_its_end_is_left_and_what_it_holds_is_given_back_when_it_ends(
    timeouts: Timeouts, calls: EngineCalls
) -> None:
    began, may_end, given_back = threading.Event(), threading.Event(), threading.Event()

    def deaf() -> None:
        began.set()
        may_end.wait(WAIT_S)

    ending = Cancellation(timeouts, 60_000)
    statement = calls.of(ending)
    with ThreadPoolExecutor(1) as client:
        waiting = client.submit(statement.call, deaf)
        assert began.wait(WAIT_S)
        ending.cancel("somebody said so")
        with pytest.raises(QueryError, match="somebody said so"):
            waiting.result(LET_GO_S)
    statement.finish(given_back.set)
    assert not given_back.is_set()
    may_end.set()
    assert given_back.wait(WAIT_S)


def test_a_call_gives_its_value_or_its_error_and_what_it_holds_back_at_once(
    timeouts: Timeouts, calls: EngineCalls
) -> None:
    def fail() -> None:
        raise Unavailable("no")

    given_back: list[str] = []
    statement = calls.of(Cancellation(timeouts, 60_000))
    assert statement.call(lambda: 7) == 7
    with pytest.raises(Unavailable, match="no"):
        statement.call(fail)
    statement.finish(lambda: given_back.append("turn"))
    assert given_back == ["turn"]


def test_a_statement_that_was_ended_already_calls_nothing(timeouts: Timeouts, calls: EngineCalls) -> None:
    ending = Cancellation(timeouts, 60_000)
    ending.cancel("before")
    called: list[int] = []
    with pytest.raises(QueryError, match="before"):
        calls.of(ending).call(lambda: called.append(1))
    assert called == []


class DeafEngine:
    """Stands in the place of one method of the engine's sessions, and does not return until it may."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        self.closed = threading.Event()
        self._original = original

    def call(self, session: EngineSession, work: Callable[[], Any]) -> Any:
        def deaf() -> Any:
            self.began.set()
            self.may_end.wait(WAIT_S * 3)
            return work()

        return self._original(session, deaf)


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> DeafEngine:
    made = DeafEngine(EngineSession._call)
    monkeypatch.setattr(EngineSession, "_call", lambda session, work: made.call(session, work))
    close = EngineSession.close

    def closing(session: EngineSession) -> None:
        close(session)
        made.closed.set()

    monkeypatch.setattr(EngineSession, "close", closing)
    return made


@pytest.mark.parametrize("how", ["killed", "timed out"])
def test_an_ended_statement_lets_its_client_go_and_keeps_its_turn_until_the_engine_ends(
    how: str, deaf: DeafEngine, world: QueryWorld
) -> None:
    service = world.service(Limits(queries_max=1, queue_wait_s=0.05))
    try:
        ending = service.cancellation(60_000 if how == "killed" else 500)
        with ThreadPoolExecutor(1) as client:
            waiting = client.submit(service.execute, "select count(*) n from flights", (), ending)
            if how == "killed":
                assert deaf.began.wait(WAIT_S)
                ending.cancel("KILL QUERY")
            with pytest.raises(QueryError, match=r"KILL QUERY|took longer than 500 ms"):
                waiting.result(LET_GO_S)
        if not deaf.began.is_set():  # the time-out came before the engine was asked
            return
        assert not deaf.closed.is_set()
        with pytest.raises(Unavailable, match="too many queries"):
            service.execute("select 1 as x")
        deaf.may_end.set()
        assert deaf.closed.wait(WAIT_S)
        assert answer_in_time(service) == [{"x": 1}]
        with pytest.raises(ValueError, match="too many times"):  # there is one turn, and it is back
            service._turns.release("")
    finally:
        deaf.may_end.set()
        service.close()


def test_a_result_that_is_read_is_let_go_in_the_same_way(deaf: DeafEngine, world: QueryWorld) -> None:
    service = world.service(Limits(queries_max=1, queue_wait_s=0.05))
    try:
        deaf.may_end.set()
        ending = service.cancellation()
        outcome = service.execute("select carrier, count(*) n from flights group by 1", (), ending)
        deaf.began.clear()
        deaf.may_end.clear()
        with ThreadPoolExecutor(1) as client:
            waiting = client.submit(outcome.table)
            assert deaf.began.wait(WAIT_S)
            ending.cancel("KILL QUERY")
            with pytest.raises(QueryError, match="KILL QUERY"):
                waiting.result(LET_GO_S)
        assert not deaf.closed.is_set()
        deaf.may_end.set()
        assert deaf.closed.wait(WAIT_S)
        assert answer_in_time(service) == [{"x": 1}]
    finally:
        deaf.may_end.set()
        service.close()


def answer_in_time(service: QueryService) -> list[dict[str, object]]:
    """Of a statement, once there is a turn again."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            table: pa.Table = service.execute("select 1 as x").table()
            return list(table.to_pylist())
        except Unavailable:
            if time.monotonic() > deadline_s:
                raise

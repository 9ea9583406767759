"""A statement ends within its own limit, whatever other statements wait for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from rtolap.base.errors import NotReached, QueryInterrupted, QueryTimeout
from rtolap.metadata.view import SegmentView
from rtolap.protocols.receiver.messages import PartialQuery
from rtolap.query.cubes import realtime
from rtolap.query.statement_service import QueryService

from tests.support.query.query_world import QueryWorld

CHANGES_WORLD = True

COUNT = "select count(*) n from flights"
LONG_MS, SHORT_MS = 60_000, 200


def _count(service: QueryService, timeout_ms: int) -> int:
    outcome = service.execute(COUNT, (), service.cancellation(timeout_ms))
    return int(outcome.table().to_pylist()[0]["n"])


def test_no_statement_waits_for_the_threads_of_others_beyond_its_limit(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements with long limits, whose receivers have to catch up, hold every thread that calls them."""
    monkeypatch.setattr(realtime, "SETS_MAX", 1)
    behind, caught_up = threading.Event(), threading.Event()

    def before_answer(query: PartialQuery) -> None:
        if query.timeout_ms > SHORT_MS:
            behind.set()
            assert caught_up.wait(60)

    world.before_answer = before_answer
    with closing(world.service()) as service, ThreadPoolExecutor(2) as clients:
        long = clients.submit(_count, service, LONG_MS)
        assert behind.wait(30)
        short = clients.submit(_count, service, SHORT_MS)
        try:
            with pytest.raises(QueryTimeout, match=f"longer than {SHORT_MS} ms"):
                short.result(30)
            assert not long.done()
        finally:
            caught_up.set()
        assert long.result(30) == 800
    world.before_answer = lambda query: None


def test_no_statement_waits_for_zookeeper_beyond_its_end(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot went stale, and the look at the cluster that follows is not answered."""
    looking, answered = threading.Event(), threading.Event()

    def stand_still(view: SegmentView) -> None:
        looking.set()
        assert answered.wait(60)

    monkeypatch.setattr(SegmentView, "refresh", stand_still)
    world.stale_answers = 1
    with closing(world.service()) as service, ThreadPoolExecutor(1) as clients:
        ending = service.cancellation(LONG_MS)
        ended = clients.submit(lambda: service.execute(COUNT, (), ending))
        try:
            assert looking.wait(50)
            ending.cancel("its time is over")
            with pytest.raises(QueryInterrupted, match="its time is over"):
                ended.result(30)
        finally:
            answered.set()
    world.stale_answers = 0


def test_receivers_that_cannot_catch_up_are_an_error_of_its_own_that_says_why(world: QueryWorld) -> None:
    why = (
        "partition 1 has not reached what an earlier answer held; expected offset 9; found 7; it is held: 101"
    )

    def before_answer(query: PartialQuery) -> None:
        raise NotReached(why)

    world.before_answer = before_answer
    with (
        closing(world.service()) as service,
        pytest.raises(NotReached, match="rtolap coordinator status") as caught,
    ):
        _count(service, LONG_MS)
    assert why in str(caught.value)
    assert "has not read what was answered before of flights" in str(caught.value)
    world.before_answer = lambda query: None

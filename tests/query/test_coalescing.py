"""Equal work that waits is done once; nobody gets the result of work that had begun before they came."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import QueryInterrupted, QueryTimeout, Unavailable
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.coalescing import BESIDE_MAX, Coalescing, Shared

from tests.support.seeds import so_many
from tests.support.waiting import until

DEADLINE_S = 30.0
FOREVER_S = 3600.0  # work under way is waited for
LONG_MS = 600_000
THREADS, STEPS = 8, 150


class Work:
    """Work that each statement brings along. A piece that has begun ends when `go_on` gives it its result."""

    def __init__(self) -> None:
        self.begun: list[Piece] = []
        self._lock = threading.Lock()

    def __call__(self) -> str:
        piece = Piece()
        with self._lock:
            self.begun.append(piece)
        return piece.result.result(DEADLINE_S)

    def piece(self, number: int) -> Piece:
        until(lambda: len(self.begun) > number, f"piece {number} has begun")
        return self.begun[number]


class Piece:
    def __init__(self) -> None:
        self.result: Future[str] = Future()


class Statements:
    """Statements on threads of their own, in the order of their coming."""

    def __init__(
        self, wait_s_max: float = FOREVER_S, crowd_wait_s_max: float = 0.0, at_once: int = 8
    ) -> None:
        self.coalescing: Coalescing[str] = Coalescing(wait_s_max, crowd_wait_s_max, at_once)
        self.work = Work()
        self.timeouts = Timeouts(SystemClock())
        self._threads = ThreadPoolExecutor(32)

    def close(self) -> None:
        for piece in self.work.begun:
            if not piece.result.done():
                piece.result.set_result("the test is over")
        self._threads.shutdown()
        self.timeouts.close()

    def ending(self, timeout_ms: int = LONG_MS) -> Cancellation:
        return Cancellation(self.timeouts, timeout_ms)

    def come(self, ending: Cancellation | None = None, key: str = "a") -> Future[Shared[str]]:
        """Returns when the statement waits or has begun."""
        before = self.coalescing.waiting + len(self.work.begun)
        asked = self._threads.submit(self.coalescing.run, key, self.work, ending or self.ending())
        until(
            lambda: asked.done() or self.coalescing.waiting + len(self.work.begun) > before,
            "the statement has come",
        )
        return asked


@pytest.fixture
def statements() -> Iterator[Statements]:
    made = Statements()
    yield made
    made.close()


def got(asked: Future[Shared[str]]) -> tuple[str, int, bool]:
    shared = asked.result(DEADLINE_S)
    return shared.value, shared.statements, shared.is_own


def test_those_who_wait_share_what_begins_after_they_came(statements: Statements) -> None:
    first = statements.come()
    later = [statements.come() for _ in range(3)]
    assert len(statements.work.begun) == 1
    statements.work.piece(0).result.set_result("before")
    assert got(first) == ("before", 1, True)
    statements.work.piece(1).result.set_result("after")
    assert sorted(map(got, later)) == [("after", 3, False), ("after", 3, False), ("after", 3, True)]
    assert len(statements.work.begun) == 2


def test_who_comes_while_it_is_done_gets_a_later_result(statements: Statements) -> None:
    first = statements.come()
    second = statements.come()
    statements.work.piece(0).result.set_result("first")
    statements.work.piece(1)
    third = statements.come()
    statements.work.piece(1).result.set_result("second")
    statements.work.piece(2).result.set_result("third")
    assert [got(asked)[0] for asked in (first, second, third)] == ["first", "second", "third"]


def test_other_work_is_not_waited_for(statements: Statements) -> None:
    first, other = statements.come(), statements.come(key="b")
    statements.work.piece(1).result.set_result("b")
    assert got(other) == ("b", 1, True)
    statements.work.piece(0).result.set_result("a")
    assert got(first) == ("a", 1, True)


def test_one_that_is_ended_while_it_waits_leaves_the_others_alone(statements: Statements) -> None:
    first, ending = statements.come(), statements.ending()
    killed, other = statements.come(ending), statements.come()
    ending.cancel("killed by ann")
    with pytest.raises(QueryInterrupted, match="killed by ann"):
        killed.result(DEADLINE_S)
    statements.work.piece(0).result.set_result("before")
    statements.work.piece(1).result.set_result("after")
    assert (got(first), got(other)) == (("before", 1, True), ("after", 1, True))


def test_one_that_is_ended_while_another_works_for_it_does_not_wait(statements: Statements) -> None:
    first, ending = statements.come(), statements.ending(LONG_MS)
    other = statements.come(statements.ending(2 * LONG_MS))
    killed = statements.come(ending)
    statements.work.piece(0).result.set_result("before")
    working = statements.work.piece(1)
    ending.cancel("killed by ann")
    with pytest.raises(QueryInterrupted):
        killed.result(DEADLINE_S)
    working.result.set_result("after")
    assert (got(first)[0], got(other)) == ("before", ("after", 2, True))


def test_where_the_one_that_works_is_ended_the_others_begin_anew(statements: Statements) -> None:
    first, ending = statements.come(), statements.ending(2 * LONG_MS)
    killed, others = statements.come(ending), [statements.come() for _ in range(2)]
    statements.work.piece(0).result.set_result("before")
    given_up = statements.work.piece(1)
    ending.cancel("killed by ann")
    given_up.result.set_exception(Unavailable("the call was cancelled"))
    with pytest.raises(Unavailable):
        killed.result(DEADLINE_S)
    statements.work.piece(2).result.set_result("after")
    assert got(first)[0] == "before"
    assert sorted(map(got, others)) == [("after", 3, False), ("after", 3, True)]


def test_an_error_of_the_work_is_that_of_all_who_waited_for_it(statements: Statements) -> None:
    first, others = statements.come(), [statements.come() for _ in range(3)]
    statements.work.piece(0).result.set_result("before")
    statements.work.piece(1).result.set_exception(Unavailable("nobody answers"))
    for asked in others:
        with pytest.raises(Unavailable, match="nobody answers"):
            asked.result(DEADLINE_S)
    assert got(first)[0] == "before"
    assert len(statements.work.begun) == 2, "not tried once more by each"


def test_an_unexpected_error_is_that_of_one_alone(statements: Statements) -> None:
    first, others = statements.come(), [statements.come() for _ in range(2)]
    statements.work.piece(0).result.set_result("before")
    statements.work.piece(1).result.set_exception(MemoryError())
    statements.work.piece(2).result.set_result("after")
    failed = [asked for asked in others if asked.exception(DEADLINE_S) is not None]
    assert [type(asked.exception()) for asked in failed] == [MemoryError]
    assert [got(asked) for asked in others if asked not in failed] == [("after", 2, True)]
    assert got(first)[0] == "before"


def test_the_one_with_most_time_left_works_so_that_no_time_out_is_anothers(statements: Statements) -> None:
    first = statements.come()
    short = statements.come(statements.ending(LONG_MS))
    patient = statements.come(statements.ending(2 * LONG_MS))
    medium = statements.come(statements.ending(LONG_MS + 1000))
    statements.work.piece(0).result.set_result("before")
    statements.work.piece(1).result.set_result("after")
    assert got(first)[0] == "before"
    assert [got(asked)[2] for asked in (short, patient, medium)] == [False, True, False]


def test_a_time_out_ends_one_that_waits(statements: Statements) -> None:
    first, late = statements.come(), statements.come(statements.ending(20))
    with pytest.raises(QueryTimeout, match="20 ms"):
        late.result(DEADLINE_S)
    statements.work.piece(0).result.set_result("before")
    assert got(first)[0] == "before"


def test_long_work_is_waited_for_only_so_long_and_not_everyone_does_the_same() -> None:
    with ExitStack() as undo:
        statements = Statements(wait_s_max=0.01)
        undo.callback(statements.close)
        asked = [statements.come()]
        for number in range(1, BESIDE_MAX):
            asked.append(statements.come())
            statements.work.piece(number)
        waiting = [statements.come() for _ in range(4)]
        ended = statements.come(statements.ending(50))  # longer than the others were to wait
        with pytest.raises(QueryTimeout):
            ended.result(DEADLINE_S)
        assert len(statements.work.begun) == BESIDE_MAX
        statements.work.piece(0).result.set_result("0")
        statements.work.piece(BESIDE_MAX).result.set_result("together")
        assert {got(one)[:2] for one in waiting} == {("together", 4)}
        for number in range(1, BESIDE_MAX):
            statements.work.piece(number).result.set_result(str(number))
        assert [got(one)[0] for one in asked] == [str(number) for number in range(BESIDE_MAX)]


def test_in_a_crowd_equal_work_waits_for_company_and_the_first_to_come_begin_first() -> None:
    with ExitStack() as undo:
        statements = Statements(crowd_wait_s_max=FOREVER_S, at_once=2)
        undo.callback(statements.close)
        under_way = [statements.come(key=key) for key in "ab"]
        equal = [statements.come(key="c") for _ in range(2)]
        last, killed_ending = statements.come(key="d"), statements.ending()
        equal.append(statements.come(key="c"))
        killed = statements.come(killed_ending, key="e")
        killed_ending.cancel("killed")
        with pytest.raises(QueryInterrupted):
            killed.result(DEADLINE_S)
        assert len(statements.work.begun) == 2
        statements.work.piece(0).result.set_result("a")
        statements.work.piece(2).result.set_result("c")
        assert [got(one)[:2] for one in equal] == [("c", 3)] * 3
        statements.work.piece(1).result.set_result("b")
        statements.work.piece(3).result.set_result("d")
        assert [got(one)[0] for one in (*under_way, last)] == ["a", "b", "d"]
        assert statements.coalescing.is_idle


def test_in_a_crowd_work_of_its_own_waits_only_so_long() -> None:
    with ExitStack() as undo:
        statements = Statements(crowd_wait_s_max=0.005, at_once=2)
        undo.callback(statements.close)
        slow = [statements.come(key=key) for key in "ab"]
        statements.come(key="c")
        statements.work.piece(2).result.set_result("c")
        statements.work.piece(0).result.set_result("a")
        statements.work.piece(1).result.set_result("b")
        assert [got(one)[0] for one in slow] == ["a", "b"]


def test_nothing_is_kept_when_all_have_left(statements: Statements) -> None:
    ending = statements.ending()
    first, killed = statements.come(), statements.come(ending)
    ending.cancel("killed")
    with pytest.raises(QueryInterrupted):
        killed.result(DEADLINE_S)
    statements.work.piece(0).result.set_result("before")
    got(first)
    until(lambda: statements.coalescing.is_idle, "nothing is kept")


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3)))
def test_what_happened_before_a_statement_came_is_in_its_result(statements: Statements, seed: int) -> None:
    """Each thread writes and asks at random; an answer holds all that was written when its statement came."""
    written, lock, joined = [0], threading.Lock(), [0] * THREADS
    began = threading.Barrier(THREADS)

    def look() -> str:
        seen = written[0]
        for _ in range(5):
            os.sched_yield()  # others come meanwhile
        return str(seen)

    def live(number: int) -> None:
        drawn, ending = random.Random(seed * THREADS + number), statements.ending()
        began.wait(DEADLINE_S)
        for _ in range(STEPS):
            if drawn.random() < 0.5:
                with lock:
                    written[0] += 1
            there = written[0]
            shared = statements.coalescing.run("a", look, ending)
            assert int(shared.value) >= there
            joined[number] += not shared.is_own

    with ThreadPoolExecutor(THREADS) as threads:
        lives = [threads.submit(live, number) for number in range(THREADS)]
        for life in lives:
            life.result(DEADLINE_S)
    assert sum(joined) > 0, "some shared the work of another"
    assert statements.coalescing.is_idle

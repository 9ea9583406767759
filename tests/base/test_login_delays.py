"""Tests of how long tries wait after wrong passwords, over all connections; that a bounded number is
remembered."""

from __future__ import annotations

import random
import threading

import pytest
from rtolap.base.errors import TooManyAtOnce, Unauthorized
from rtolap.base.users import DELAY_MAX_S, FORGET_S, FREE_FAILURES, REMEMBERED_MAX, LoginAttempt, LoginDelays

from tests.support.seeds import so_many


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Passwords:
    """Counts the looks at passwords."""

    def __init__(self) -> None:
        self.looks = 0

    def wrong(self) -> None:
        self.looks += 1
        raise Unauthorized("wrong")

    def right(self) -> None:
        self.looks += 1


def waited_s(clock: Clock, attempt: LoginAttempt) -> float:
    """Return how long the try waits, with nobody beside it."""
    began_s = clock.now_s
    while True:
        try:
            wait_s = attempt.advance()
        except Unauthorized:
            return clock.now_s - began_s
        if not wait_s:
            return clock.now_s - began_s
        clock.now_s += wait_s


def test_each_wrong_password_costs_twice_as_much_until_a_right_one() -> None:
    clock, passwords = Clock(), Passwords()
    delays = LoginDelays(clock)
    waited = [waited_s(clock, delays.attempt("ann", "here", passwords.wrong)) for _ in range(12)]
    assert waited[:7] == pytest.approx([0, 0, 0, 0.25, 0.5, 1, 2])
    assert waited[7:] == pytest.approx([DELAY_MAX_S] * 5)
    assert passwords.looks == 12
    for user, address in (("ann", "there"), ("bob", "here")):
        assert not delays.attempt(user, address, passwords.right).advance()
    assert waited_s(clock, delays.attempt("ann", "here", passwords.right)) == pytest.approx(DELAY_MAX_S)
    assert not delays.attempt("ann", "here", passwords.right).advance()
    assert len(delays) == 0


def test_it_is_forgotten_after_a_while() -> None:
    clock, passwords = Clock(), Passwords()
    delays = LoginDelays(clock)
    for _ in range(9):
        waited_s(clock, delays.attempt("ann", "here", passwords.wrong))
    clock.now_s += FORGET_S + 1
    assert not waited_s(clock, delays.attempt("ann", "here", passwords.wrong))
    assert not waited_s(clock, delays.attempt("ann", "here", passwords.wrong))


def test_made_up_names_fill_no_memory() -> None:
    delays = LoginDelays()
    for number in range(REMEMBERED_MAX + 100):
        with pytest.raises(Unauthorized):
            delays.attempt(f"name {number}", "here", Passwords().wrong).advance()
    assert len(delays) == REMEMBERED_MAX


def test_many_connections_at_a_time_have_no_more_passwords_looked_at_than_one() -> None:
    """Threads, each with tries without a pause; nobody's clock moves meanwhile."""
    clock, passwords = Clock(), Passwords()
    delays = LoginDelays(clock)
    outcomes: list[str] = []

    def tries() -> None:
        for _ in range(20):
            try:
                attempt = delays.attempt("ann", "here", passwords.wrong)
                outcomes.append("waits" if attempt.advance() else "right")
            except Unauthorized:
                outcomes.append("wrong")
            except TooManyAtOnce:
                outcomes.append("refused")

    threads = [threading.Thread(target=tries) for _ in range(15)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passwords.looks == outcomes.count("wrong") == FREE_FAILURES
    assert outcomes.count("waits") == 4  # 0.25 s, and 0.5, 1 and 2 s behind each other
    assert outcomes.count("refused") == 300 - FREE_FAILURES - 4


@pytest.mark.parametrize("seed", range(10))
def test_drawn_tries_have_a_bounded_number_looked_at_and_slow_nobody_else(seed: int) -> None:
    """Some wait to the end, some go away and come again. Another user and another address never wait."""
    rng, clock, passwords = random.Random(seed), Clock(), Passwords()
    delays = LoginDelays(clock)
    began_s, open_tries = clock.now_s, []
    for _ in range(3_000):
        match rng.randrange(4):
            case 0 | 1:
                open_tries.append(delays.attempt("ann", "here", passwords.wrong))
            case 2:
                clock.now_s += rng.random() * 0.2
            case _:
                assert not delays.attempt("bob", "here", lambda: None).advance()
                assert not delays.attempt("ann", "there", lambda: None).advance()
        for attempt in list(open_tries):
            try:
                assert attempt.advance(), "a wrong password was taken"
            except (Unauthorized, TooManyAtOnce):
                open_tries.remove(attempt)
        if open_tries and rng.random() < 0.02:
            open_tries.pop(rng.randrange(len(open_tries)))
    while_slow = (clock.now_s - began_s) / DELAY_MAX_S
    assert passwords.looks <= FREE_FAILURES + 5 + while_slow
    assert passwords.looks > FREE_FAILURES


@pytest.mark.seeded
def test_a_try_that_nobody_is_before_is_never_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the clock shows and the longest delay is: rounding makes no wait of it that is too long."""
    drawn = random.Random(1)

    for _ in range(so_many(200)):
        clock = Clock()
        clock.now_s = drawn.uniform(1, 10**6)
        monkeypatch.setattr("rtolap.base.users.DELAY_MAX_S", drawn.choice((0.01, 0.3, 4.0, 7.1)))
        delays = LoginDelays(clock)
        for _ in range(12):
            attempt = delays.attempt("ada", "10.0.0.1", Passwords().wrong)
            waited_s(clock, attempt)

"""One thread watches the clients of all statements: each ends when its own client goes away, no other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import QueryInterrupted
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.mysql.client_watch import ClientWatch

WAIT_S = 10.0


@pytest.fixture
def timeouts() -> Iterator[Timeouts]:
    with closing(Timeouts(SystemClock())) as made:
        yield made


@pytest.fixture
def watch() -> Iterator[ClientWatch]:
    with ClientWatch() as made:
        yield made


def statement(timeouts: Timeouts) -> tuple[Cancellation, threading.Event]:
    ended = threading.Event()
    cancellation = Cancellation(timeouts, 60_000)
    cancellation.on_cancel(ended.set)
    return cancellation, ended


def test_a_statement_ends_when_its_client_goes_away_and_no_other(
    timeouts: Timeouts, watch: ClientWatch
) -> None:
    (ours, theirs), (staying, stays) = socket.socketpair(), socket.socketpair()
    (gone, ended), (other, goes_on) = statement(timeouts), statement(timeouts)
    with watch.watch(ours, gone), watch.watch(staying, other):
        theirs.close()
        assert ended.wait(WAIT_S)
        with pytest.raises(QueryInterrupted, match="went away"):
            gone.check()
        assert not goes_on.is_set()
        stays.close()
        assert goes_on.wait(WAIT_S), "the watch goes on"
    ours.close()
    staying.close()


def test_what_a_client_sends_meanwhile_ends_nothing(timeouts: Timeouts, watch: ClientWatch) -> None:
    (ours, theirs), (later, gone) = socket.socketpair(), socket.socketpair()
    gone.close()
    (running, ended), (behind, is_behind) = statement(timeouts), statement(timeouts)
    with watch.watch(ours, running):
        theirs.sendall(b"the next statement")
        with watch.watch(later, behind):
            assert is_behind.wait(WAIT_S), "the thread has looked since"
        assert not ended.is_set()
    for sock in (ours, theirs, later):
        sock.close()


def test_a_statement_that_is_over_is_not_ended_and_its_connection_is_watched_again(
    timeouts: Timeouts, watch: ClientWatch
) -> None:
    ours, theirs = socket.socketpair()
    for _ in range(3):
        over, ended = statement(timeouts)
        with watch.watch(ours, over):
            pass
        assert not ended.is_set()
    last, ended = statement(timeouts)
    with watch.watch(ours, last):
        theirs.close()
        assert ended.wait(WAIT_S)
    over.check()
    ours.close()


def test_a_client_that_is_gone_before_its_statement_begins_is_seen(
    timeouts: Timeouts, watch: ClientWatch
) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    running, ended = statement(timeouts)
    with watch.watch(ours, running):
        assert ended.wait(WAIT_S)
    ours.close()


def test_a_closed_watch_leaves_no_thread_and_statements_run_on(timeouts: Timeouts) -> None:
    others = set(threading.enumerate())  # servers of other tests may have watches of their own
    watch = ClientWatch()
    ours, theirs = socket.socketpair()
    running, ended = statement(timeouts)
    with watch.watch(ours, running):
        watch.close()
        watch.close()
        theirs.close()
    with watch.watch(ours, running):
        pass
    assert not ended.is_set()
    assert "client-watch" not in {thread.name for thread in set(threading.enumerate()) - others}
    ours.close()

"""A peer that stands still costs a statement a moment; one that computes for long is waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import NotFound, QueryError, QueryTimeout, Unavailable
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.peers import Attempt, PeersFailed, QueryPeer, QueryPeers
from rtolap.query.statement_service import QueryService

from tests.support.query.query_world import QueryWorld
from tests.support.twins.clock import ManualClock

CHANGES_WORLD = True

FIRST, SECOND = QueryPeer("first", "one:1"), QueryPeer("second", "two:2")
DEADLINE_S = 60.0


class Side:
    """Two peers that answer their own names; `stopped` ones answer nothing until `resumed`."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.stopped: set[QueryPeer] = set()
        self.resumed = threading.Event()
        self.errors: dict[QueryPeer, Exception] = {}
        self.asked: list[QueryPeer] = []
        self.given_up = threading.Event()
        self.pinged: list[QueryPeer] = []
        self.peers = QueryPeers("calls", 8, self.ping, clock)
        self.timeouts = Timeouts(SystemClock())

    def ping(self, peer: QueryPeer, within_s: float) -> None:
        self.pinged.append(peer)
        if peer in self.stopped:
            raise Unavailable(f"{peer.name} is silent")

    def call(self, peer: QueryPeer, attempt: Attempt) -> str:
        self.asked.append(peer)
        attempt.on_give_up(self.given_up.set)
        if peer in self.stopped:
            assert self.resumed.wait(DEADLINE_S)
        if peer in self.errors:
            raise self.errors[peer]
        return peer.name

    def ending(self, timeout_ms: int = 60_000) -> Cancellation:
        return Cancellation(self.timeouts, timeout_ms)

    def ask(self, ending: Cancellation | None = None) -> str:
        peer, name = self.peers.ask((FIRST, SECOND), self.call, ending or self.ending(), (Unavailable,))
        assert peer.name == name
        return name


@pytest.fixture
def side() -> Iterator[Side]:
    made = Side(ManualClock(0))
    yield made
    made.resumed.set()
    made.peers.close()
    made.timeouts.close()


def test_the_preferred_one_answers_alone(side: Side) -> None:
    assert side.ask() == "first"
    assert side.asked == [FIRST]
    assert side.pinged == []


def test_the_next_is_asked_when_one_stands_still_and_the_silent_one_is_asked_last_from_then_on(
    side: Side,
) -> None:
    side.stopped.add(FIRST)
    assert side.ask() == "second"
    assert side.given_up.wait(DEADLINE_S)
    assert [side.ask() for _ in range(20)] == ["second"] * 20
    assert side.asked == [FIRST, *[SECOND] * 21]


def test_a_silent_one_is_preferred_again_when_it_answers(side: Side) -> None:
    side.stopped.add(FIRST)
    assert side.ask() == "second"
    side.stopped.clear()
    side.clock.advance_ms(2000)
    answers = iter(lambda: side.ask(), "first")
    assert all(answer == "second" for answer in answers), "soon it is the first again"


def test_one_that_computes_for_long_is_waited_for(side: Side) -> None:
    computing = threading.Event()

    def call(peer: QueryPeer, attempt: Attempt) -> str:
        side.asked.append(peer)
        assert computing.wait(DEADLINE_S)
        return peer.name

    def ping(peer: QueryPeer) -> None:
        if len(side.pinged) >= 3:
            computing.set()

    inner = side.ping

    def counted(peer: QueryPeer, within_s: float) -> None:
        inner(peer, within_s)
        ping(peer)

    peers = QueryPeers("calls", 8, counted, side.clock)
    assert peers.ask((FIRST, SECOND), call, side.ending(), (Unavailable,)) == (FIRST, "first")
    assert side.asked == [FIRST]
    peers.close()


def test_where_all_stand_still_the_first_to_come_back_answers(side: Side) -> None:
    side.stopped |= {FIRST, SECOND}
    threading.Timer(1.0, side.resumed.set).start()
    assert side.ask() in ("first", "second")
    assert sorted(peer.name for peer in side.asked) == ["first", "second"]


def test_an_error_of_the_statement_is_told_and_one_of_the_peer_has_the_next_asked(side: Side) -> None:
    side.errors[FIRST] = Unavailable("away")
    assert side.ask() == "second"
    side.errors[SECOND] = Unavailable("away, too")
    with pytest.raises(PeersFailed, match="first: away; second: away, too") as caught:
        side.ask()
    assert [peer for peer, _ in caught.value.failures] == [FIRST, SECOND]
    side.errors[FIRST] = NotFound("no such cube")
    with pytest.raises(NotFound):
        side.ask()


@pytest.mark.parametrize("end", ["time-out", "cancel"])
def test_the_end_of_a_statement_waits_for_nobody(side: Side, end: str) -> None:
    side.stopped |= {FIRST, SECOND}
    if end == "time-out":
        with pytest.raises(QueryTimeout):
            side.ask(side.ending(300))
    else:
        ending = side.ending()
        threading.Timer(0.3, lambda: ending.cancel("killed")).start()
        with pytest.raises(QueryError, match="killed"):
            side.ask(ending)
    assert not side.resumed.is_set()
    assert side.given_up.wait(DEADLINE_S)


def test_a_stopped_receiver_of_each_replica_set_costs_no_statement(
    world: QueryWorld, service: QueryService
) -> None:
    world.stopped = {"rs-a-1", "rs-a-2", "rs-b-1"} - {_other(service)}
    for _ in range(5):
        outcome = service.execute("select count(*) n from flights")
        assert outcome.table().to_pylist() == [{"n": 800}]
        assert not set(outcome.stats[0].receivers.values()) & world.stopped
    world.stopped = set()
    world.resumed.set()


def _other(service: QueryService) -> str:
    """The receiver of rs-a that is not preferred: it stays alive."""
    asked = service.execute("select count(*) n from flights").stats[0].receivers["rs-a"]
    return "rs-a-2" if asked == "rs-a-1" else "rs-a-1"


def test_the_last_one_has_failed_once_it_is_silent_where_nobody_needs_to_wait_for_it(side: Side) -> None:
    side.stopped.add(FIRST)
    with pytest.raises(PeersFailed, match=r"first.* answers no ping"):
        side.peers.ask((FIRST,), side.call, side.ending(), (Unavailable,), fails_when_silent=True)
    assert side.given_up.wait(DEADLINE_S)
    assert side.peers.ordered((FIRST, SECOND)) == [SECOND, FIRST]

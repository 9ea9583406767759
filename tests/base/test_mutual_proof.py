"""The lines of the mutual proof, without a connection: what opens a session, and what does not."""

from __future__ import annotations

import random

import pytest
from rtolap.base import mutual_proof
from rtolap.base.errors import SessionUnknown, Unauthorized
from rtolap.base.mutual_proof import CALL, ClientSession, Hello, ServerSessions

from tests.support.seeds import so_many

TOKEN = "a-token-of-this-test"
ADDRESS = "127.0.0.1:7080"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def opened(server: ServerSessions, token: str = TOKEN, address: str = ADDRESS) -> ClientSession | None:
    hello = Hello(token, address)
    return hello.session(server.offer(hello.header()))


def session_of(server: ServerSessions) -> ClientSession:
    session = opened(server)
    assert session is not None
    return session


def test_both_ends_prove_themselves_and_no_line_holds_the_token() -> None:
    server, hello = ServerSessions(TOKEN, ADDRESS), Hello(TOKEN, ADDRESS)
    offer = server.offer(hello.header())
    session = hello.session(offer)
    assert session is not None
    number = session.next_number()
    call = session.header(number)
    server.admit(call)
    proof = server.answer(call)
    assert not session.take_proof(number)
    session.answered(proof)
    assert session.take_proof(number)
    assert not session.take_proof(number), "one proof is of one call"
    for line in (hello.header(), offer.encode(), call, proof.encode()):
        assert TOKEN.encode() not in line


def test_a_server_with_another_secret_opens_no_session() -> None:
    assert opened(ServerSessions("another", ADDRESS)) is None


def test_a_client_with_another_secret_is_not_let_in() -> None:
    server = ServerSessions(TOKEN, ADDRESS)
    hello = Hello("another", ADDRESS)
    offer = server.offer(hello.header())
    nonce, server_nonce = hello.header().split(b" ")[1].split(b".")[0].decode(), offer.partition(".")[0]
    forged = ClientSession(b"guessed", nonce, server_nonce)
    with pytest.raises(Unauthorized, match="does not know"):
        server.admit(forged.header(1))


def test_a_server_proves_nothing_for_another_address() -> None:
    """Who stands between hands the hello on to a real server, as it came."""
    server = ServerSessions(TOKEN, ADDRESS)
    between = Hello(TOKEN, "127.0.0.1:6666")
    with pytest.raises(Unauthorized, match="another address") as caught:
        server.offer(between.header())
    assert TOKEN not in str(caught.value)
    swapped = between.header().replace(b"127.0.0.1:6666", ADDRESS.encode())
    assert between.session(server.offer(swapped)) is None


@pytest.mark.parametrize("seed", range(so_many(5)))
def test_a_call_counts_once_and_in_any_order(seed: int) -> None:
    server = ServerSessions(TOKEN, ADDRESS)
    session = session_of(server)
    calls = [session.header(session.next_number()) for _ in range(500)]
    random.Random(seed).shuffle(calls)
    for call in calls:
        server.admit(call)
    for call in calls:
        with pytest.raises(SessionUnknown):
            server.admit(call)


def test_a_call_older_than_the_window_is_refused() -> None:
    server = ServerSessions(TOKEN, ADDRESS)
    session = session_of(server)
    server.admit(session.header(mutual_proof.WINDOW + 5))
    server.admit(session.header(6))
    with pytest.raises(SessionUnknown):
        server.admit(session.header(5))
    server.admit(session.header(10 * mutual_proof.WINDOW))
    with pytest.raises(SessionUnknown):
        server.admit(session.header(mutual_proof.WINDOW + 6))


def test_sessions_end_with_their_server() -> None:
    session = session_of(ServerSessions(TOKEN, ADDRESS))
    with pytest.raises(SessionUnknown):
        ServerSessions(TOKEN, ADDRESS).admit(session.header(1))


def test_an_offer_is_void_after_a_while_and_a_session_is_not() -> None:
    clock = Clock()
    server = ServerSessions(TOKEN, ADDRESS, monotonic_s=clock)
    early, late = session_of(server), session_of(server)
    server.admit(early.header(1))
    clock.now_s += mutual_proof.OFFER_MS / 1000 + 1
    server.admit(early.header(2))
    with pytest.raises(SessionUnknown):
        server.admit(late.header(1))


def test_a_session_that_was_forgotten_cannot_be_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers are forgotten with it: a call that somebody has read would count once more."""
    monkeypatch.setattr(mutual_proof, "SESSIONS_MAX", 3)
    clock = Clock()
    server = ServerSessions(TOKEN, ADDRESS, monotonic_s=clock)
    first = session_of(server)
    read = first.header(1)
    server.admit(read)
    for _ in range(3):
        clock.now_s += 0.01
        server.admit(session_of(server).header(1))
    with pytest.raises(SessionUnknown):
        server.admit(read)
    with pytest.raises(SessionUnknown):
        server.admit(first.header(2))


def test_hellos_alone_leave_nothing_behind() -> None:
    server = ServerSessions(TOKEN, ADDRESS)
    for _ in range(1000):
        session_of(server)
    assert not server._known


@pytest.mark.parametrize("seed", range(so_many(20)))
def test_altered_lines_are_refused_by_name(seed: int) -> None:
    random_ = random.Random(seed)
    server = ServerSessions(TOKEN, ADDRESS)
    session = session_of(server)
    for number in range(1, 50):
        line = bytearray(session.header(number))
        for _ in range(random_.randint(1, 4)):
            at = random_.randrange(len(CALL), len(line))
            kind = random_.randrange(3)
            if kind == 0:
                line[at] = random_.randrange(256)
            elif kind == 1:
                del line[at]
            else:
                line.insert(at, random_.choice(b".0123456789abcdef "))
        if _same(bytes(line), session.header(number)):
            continue
        with pytest.raises(Unauthorized):
            server.admit(bytes(line))
        server.admit(session.header(number))


def _same(line: bytes, other: bytes) -> bool:
    """Capitals and blanks between pairs are hexadecimal too."""
    return line.lower().replace(b" ", b"") == other.lower().replace(b" ", b"")

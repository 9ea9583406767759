"""A client's channel to one Flight server: both prove to each other that they know the cluster's secret.

The token itself is never sent: an address that was read somewhere may be anybody's. A session is opened
with the first call, by one exchange more; every later call has its proof in its head, and every answer has
the server's, so that neither costs a further exchange. A server that has started again knows no session:
it refuses the call before it is looked at, and the call is made once more in a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from rtolap.base.closeable import Closeable
from rtolap.base.errors import (
    Impostor,
    RtolapError,
    SessionOffered,
    SessionUnknown,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from rtolap.base.mutual_proof import ANSWER_HEADER, ClientSession, Hello
from rtolap.base.spans import sent_headers
from rtolap.protocols.flight.client import answers, named, open_channel

T = TypeVar("T")
Headers = list[tuple[bytes, bytes]]

HELLO_S = 10.0  # at most, for opening a session
# What the guard of a server, which knows no answers' proofs, refuses by itself; and silence.
_UNPROVEN = (Unavailable, Unauthorized, TooLarge)
FAILURES = (flight.FlightError, pa.ArrowException, OSError)


class FlightChannel(Closeable):
    """Thread-safe; connects on the first call. `peer` names the server in errors.

    Raises Unavailable when the server does not answer, Impostor when it does not prove that it knows the
    secret, and what error of the tree it names.
    """

    def __init__(self, peer: str, address: str, token: str, *, ca: bytes | None = None) -> None:
        self._peer = peer
        self._address = address
        self._token = token
        self._lock = threading.Lock()
        self._session: ClientSession | None = None
        self._before: ClientSession | None = None  # the one that it replaced: its last answers still come
        self.middleware = [_AnswersFactory(self)]
        self.client = open_channel(address, ca, self.middleware)

    def call(self, operation: str, ask: Callable[[Headers], T], *, within_s: float | None = None) -> T:
        """Return what `ask` returns, which is given the head of its call and reads the answer's beginning.

        It may be called twice. `within_s` bounds the exchange that opens a session.
        """
        answer, check = self.begin(operation, ask, within_s=within_s)
        check()
        return answer

    def begin(
        self, operation: str, ask: Callable[[Headers], T], *, within_s: float | None = None
    ) -> tuple[T, Callable[[], None]]:
        """Call as `call` does, but return before the answer begins.

        Returns the result of `ask` and a function. Call that function when the answer has begun: it raises
        Impostor if the server did not prove itself.
        """
        session, reopened = self._session or self._open(None, operation, within_s), False
        while True:
            number = session.next_number()
            try:
                answer = ask([(b"authorization", session.header(number)), *_ids()])
            except FAILURES as error:
                failure = named(self._peer, operation, error)
                if isinstance(failure, SessionUnknown) and not reopened:
                    session, reopened = self._open(session, operation, within_s), True
                    continue
                if not session.take_proof(number) and not isinstance(failure, _UNPROVEN):
                    raise self._impostor(operation) from error
                raise failure from error
            return answer, partial(self._check, session, number, operation)

    def _check(self, session: ClientSession, number: int, operation: str) -> None:
        if not session.take_proof(number):
            raise self._impostor(operation)

    def answers(self, within_s: float) -> None:
        """Make a call that costs the server nothing. Raises Unavailable when it does not answer in time."""
        self.call("a ping", lambda headers: answers(self.client, headers, within_s), within_s=within_s)

    def close(self) -> None:
        self.client.close()

    def note(self, proof: str) -> None:
        for session in (self._session, self._before):
            if session is not None:
                session.answered(proof)

    def _open(self, over: ClientSession | None, operation: str, within_s: float | None) -> ClientSession:
        """Replace the session that is `over`; another thread may have done so."""
        hello = Hello(self._token, self._address)
        limit_s = HELLO_S if within_s is None else min(within_s, HELLO_S)
        try:
            answers(self.client, [(b"authorization", hello.header())], limit_s)
        except FAILURES as error:
            answer = named(self._peer, operation, error)
        else:
            raise self._impostor(operation)
        if not isinstance(answer, SessionOffered):
            raise answer
        session = hello.session(str(answer))
        if session is None:
            raise self._impostor(operation)
        with self._lock:
            if self._session is over or self._session is None:
                self._session, self._before = session, over
            return self._session

    def _impostor(self, operation: str) -> RtolapError:
        return Impostor(
            f"{self._peer} does not prove that it knows the secret of this cluster: its answer to "
            f"{operation} does not count",
            action="see who listens at that address, and whether it has the same token file",
        )


def _ids() -> Headers:
    return [(name.encode(), value.encode()) for name, value in sent_headers().items()]


class _AnswersFactory(flight.ClientMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self, channel: FlightChannel) -> None:
        self._answers = _Answers(channel)

    def start_call(self, info: Any) -> _Answers:
        return self._answers


class _Answers(flight.ClientMiddleware):  # type: ignore[misc]
    def __init__(self, channel: FlightChannel) -> None:
        self._channel = channel

    def sending_headers(self) -> dict[str, str]:
        return {}

    def received_headers(self, headers: dict[str, list[str] | list[bytes]]) -> None:
        for value in headers.get(ANSWER_HEADER, ()):
            self._channel.note(value if isinstance(value, str) else value.decode("latin-1"))

"""Credentials for HTTP servers whose addresses were read somewhere: both ends prove that they know a secret.

The lines are those of `base.mutual_proof`; the token is never sent. A session with a server is opened by one
request more, before the first; an answer without the server's proof is refused by name. Servers at addresses
that were configured take the token itself, which needs no such request.
"""

from __future__ import annotations

import threading
from collections.abc import Generator

import httpx

from rtolap.base.errors import Impostor, SessionOffered, SessionUnknown
from rtolap.base.mutual_proof import ANSWER_HEADER, ClientSession, Hello
from rtolap.protocols.rest.error_responses import named_error

SESSION_PATH = "/api/v1/session"  # no route has it: the guard answers a hello on any path that is not open


class ProvenAuth(httpx.Auth):
    """Authentication of an httpx client. Thread-safe. Requests raise Impostor."""

    requires_response_body = True

    def __init__(self, token: str) -> None:
        self._token = token
        self._lock = threading.Lock()
        self._sessions: dict[str, ClientSession] = {}  # by address

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        address = _address(request.url)
        session = self._sessions.get(address)
        for last in (False, True):
            if session is None:
                hello = Hello(self._token, address)
                offered = yield httpx.Request(
                    "GET",
                    request.url.copy_with(path=SESSION_PATH, query=None),
                    headers={"Authorization": hello.header().decode()},
                    extensions=request.extensions,
                )
                session = self._opened(address, hello, offered)
            number = session.next_number()
            request.headers["Authorization"] = session.header(number).decode()
            response = yield request
            if not last and response.status_code == httpx.codes.UNAUTHORIZED and _is_unknown(response):
                session = None
                continue
            session.answered(response.headers.get(ANSWER_HEADER, ""))
            if not session.take_proof(number):
                raise _impostor(address)
            return

    def _opened(self, address: str, hello: Hello, response: httpx.Response) -> ClientSession:
        offer = named_error(response)
        session = hello.session(str(offer)) if isinstance(offer, SessionOffered) else None
        if session is None:
            raise _impostor(address, found=None if isinstance(offer, SessionOffered) else offer)
        with self._lock:
            self._sessions[address] = session
        return session


def _address(url: httpx.URL) -> str:
    """Return host and port, as a server announces them."""
    netloc = url.netloc.decode("ascii")
    return netloc if url.port is not None else f"{netloc}:{443 if url.scheme == 'https' else 80}"


def _is_unknown(response: httpx.Response) -> bool:
    return isinstance(named_error(response), SessionUnknown)


def _impostor(address: str, found: Exception | None = None) -> Impostor:
    return Impostor(
        f"the server at {address} does not prove that it knows the secret of this cluster",
        found=found,
        action="see who listens at that address, and whether it has the same token file",
    )

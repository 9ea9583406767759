"""A PUT that sends its body only once the server has requested it (`Expect: 100-continue`).

An endpoint that takes no bodies answers with a redirect at once; a client that had sent the body by then
would lose the answer with the connection. Common HTTP clients send bodies unasked, so this speaks HTTP/1.1
itself.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from rtolap.base.addresses import host_port
from rtolap.base.errors import Unavailable

CONTINUE_WAIT_S = 5.0  # a server that knows nothing of it gets the body after that, as the standard says
_RECEIVE_BYTES = 1 << 16
_ANSWER_BYTES_MAX = 1 << 20


class PutAnswer(NamedTuple):
    """The answer to a put.

    Attributes:
        location: where a redirect points, empty otherwise.
    """

    status: int
    location: str
    body: bytes


def put(
    url: str,
    headers: Mapping[str, str],
    body: bytes | Iterable[bytes],
    *,
    timeout_s: float,
    connect_timeout_s: float = 5.0,
    trust: ssl.SSLContext | None = None,
) -> PutAnswer:
    """Send a body by PUT. Bytes go with their length, other bodies in chunks. `timeout_s` bounds the whole
    exchange.

    Raises Unavailable where there is no complete answer: the request may have been carried out.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    deadline_s = time.monotonic() + timeout_s
    try:
        with socket.create_connection((host, port), min(connect_timeout_s, timeout_s)) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if parts.scheme == "https":
                context = trust or ssl.create_default_context()
                with context.wrap_socket(plain, server_hostname=host) as secure:
                    return _Exchange(secure, deadline_s).run(parts.netloc, _target(url), headers, body)
            return _Exchange(plain, deadline_s).run(parts.netloc, _target(url), headers, body)
    except (OSError, h11.RemoteProtocolError) as error:
        raise Unavailable(
            f"{parts.scheme}://{host_port(host, port)} gave no complete answer",
            found=str(error) or repr(error),
        ) from error


class _Exchange:
    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self._socket = connection
        self._deadline_s = deadline_s
        self._http = h11.Connection(h11.CLIENT)

    def run(
        self, netloc: str, target: str, headers: Mapping[str, str], body: bytes | Iterable[bytes]
    ) -> PutAnswer:
        framing = (
            ("content-length", str(len(body)))
            if isinstance(body, bytes)
            else ("transfer-encoding", "chunked")
        )
        sent = [("host", netloc.rpartition("@")[2]), *headers.items(), framing, ("expect", "100-continue"),
                ("connection", "close")]  # fmt: skip
        self._send(h11.Request(method="PUT", target=target, headers=sent))
        first = self._wait_for_consent()
        if isinstance(first, h11.Response):
            return self._answer(first)  # refused or redirected before the body
        try:
            for chunk in (body,) if isinstance(body, bytes) else body:
                if chunk:
                    self._send(h11.Data(data=chunk))
            self._send(h11.EndOfMessage())
        except (BrokenPipeError, ConnectionResetError):
            # a server that has had enough says why before it closes: its answer is read below
            self._http.send_failed()
        event = self._next()
        while isinstance(event, h11.InformationalResponse):
            event = self._next()
        if not isinstance(event, h11.Response):
            raise h11.RemoteProtocolError(f"no answer but {type(event).__name__}")
        return self._answer(event)

    def _wait_for_consent(self) -> h11.Response | None:
        """Return the final answer that came instead, None when the body is to be sent."""
        self._socket.settimeout(min(CONTINUE_WAIT_S, self._left_s()))
        try:
            event = self._next(bounded=False)
        except TimeoutError:
            self._left_s()  # raises when it is the whole exchange that has run out
            return None
        return event if isinstance(event, h11.Response) else None

    def _answer(self, response: h11.Response) -> PutAnswer:
        chunks, size = [], 0
        event = self._next()
        while isinstance(event, h11.Data):
            chunks.append(bytes(event.data))
            size += len(event.data)
            if size > _ANSWER_BYTES_MAX:
                raise h11.RemoteProtocolError(f"an answer of more than {_ANSWER_BYTES_MAX} bytes")
            event = self._next()
        if not isinstance(event, h11.EndOfMessage):
            raise h11.RemoteProtocolError("the answer was cut short")
        named = {name.decode().lower(): value.decode("latin-1") for name, value in response.headers}
        return PutAnswer(response.status_code, named.get("location", ""), b"".join(chunks))

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._socket.settimeout(self._left_s())
            self._socket.sendall(data)

    def _next(self, *, bounded: bool = True) -> object:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if bounded:
                self._socket.settimeout(self._left_s())
            self._http.receive_data(self._socket.recv(_RECEIVE_BYTES))

    def _left_s(self) -> float:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no answer in time")
        return left_s


def _target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

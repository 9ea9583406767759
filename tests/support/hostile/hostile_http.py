"""A hostile client of an HTTP server: heads, lengths, chunks, trailers, credentials, bodies, byte by byte.

Requests go out in one piece, many in a connection; how many the server took is counted by its answers.
"""

from __future__ import annotations

import base64
import json
import random
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.hostile.hostile_sockets import sent_and_answered
from tests.support.hostile.hostile_texts import statement
from tests.support.hostile.unhandled import unhandled_errors

_ANSWER = re.compile(rb"HTTP/1\.1 [2-5]\d\d ")
_METHODS = (b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"TRACE", b"PROPFIND", b"LOCK")
_PATHS = (
    *(
        b"/",
        b"/health",
        b"/metrics",
        b"//",
        b"/../../etc/passwd",
        b"/%2e%2e/%2e%2e/etc/passwd",
        b"/%00",
        b"/%ff%fe",
    ),
    *(b"/docs", b"/openapi.json", b"/health/..;/metrics", b"/health%2f..%2fmetrics", b"/api/v1/query", b"*"),
    *(
        b"/?a=" + b"b" * 3_000,
        b"/" + b"a/" * 2_000,
        b"/api/" + b"%41" * 500,
        b"/a?b#c",
        b"/a?%zz&&&=;",
        b"/\xc3\xa9",
    ),
)
_HEADERS = (
    *(
        b"Accept: */*;q=nan",
        b"Accept: application/vnd.apache.arrow.stream",
        b"Accept-Encoding: gzip, br, \xff",
    ),
    *(b"Host: x", b"Host: evil", b"Host:", b"Range: bytes=0-,0-,0-", b"Upgrade: websocket", b"Upgrade: h2c"),
    *(
        b"Connection: keep-alive, upgrade",
        b"Connection: \xff",
        b"Cookie: " + b"a=b; " * 500,
        b"X: " + b"\xff" * 50,
    ),
    *(
        b"Expect: 100-continue",
        b"Expect: nothing",
        b"Content-Type: text/plain",
        b"Content-Type: \xff",
        b"Via: x",
    ),
    *(
        b"Content-Type: application/json; charset=utf-16",
        b"Content-Type: multipart/form-data; boundary=" + b"-" * 99,
    ),
    *(b"X-Forwarded-For: 127.0.0.1", b"If-Match: *", b"Content-Encoding: gzip", b"TE: trailers"),
    *(b"X-HTTP-Method-Override: DELETE", b"Forwarded: for=127.0.0.1", b"Content-Length: 0", b"Date: never"),
)
_CREDENTIALS = (
    *(b"Bearer", b"Bearer ", b"Bearer " + b"x" * 3_000, b"Bearer \xff\xfe", b"Digest username=a"),
    *(b"Basic \xff\xfe", b"Basic x", b"Basic " + b"=" * 5_000, b"Negotiate x"),
)
_ENDS = (  # each is the last of its connection
    *(b"GET / HTTP/9.9\r\n\r\n", b"GET  / HTTP/1.1\r\n\r\n", b"GET /\r\n\r\n", b"\r\n" * 100, b"\0" * 200),
    *(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\nA:b\n\n",
    ),
    *(
        b"GET / HTTP/1.1\r\nA : b\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\r\n  folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: \0\r\n\r\n",
    ),
    *(
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 9_000,
        b"GET /" + b"a" * 70_000,
        b"GET / HTTP/1.1\r\nA: " + b"a" * 70_000,
    ),
    *(b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n"),
    *(
        b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab",
    ),
    b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\na",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 70_000,
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * 9_000,
)
Body = Callable[[random.Random], tuple[list[bytes], bytes]]  # further headers, and the body


@dataclass(frozen=True)
class HostileHttp:
    """A hostile client of HTTP. `pages` are method and path of those that take bodies. Raises AssertionError
    if none answers."""

    host: str
    port: int
    pages: tuple[bytes, ...]
    body: Body
    body_share: float = 0.5  # of requests that have one

    def ask(self, rng: random.Random, credentials: bytes | None, requests: int) -> int:
        """Make so many requests in one connection, or fewer if the server ends it. Returns how many it
        answered.

        `credentials`: of the Authorization header; None: other ones each time, never right, never twice.
        """
        sent = [self._request(rng, credentials) for _ in range(requests)]
        last = (
            rng.choice(_ENDS) if rng.random() < 0.2 else b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"
        )
        with socket.create_connection((self.host, self.port), timeout=60) as connection:
            answers = sent_and_answered(connection, b"".join((*sent, last)))
        return len(_ANSWER.findall(answers))

    def ask_until(
        self, rng: random.Random, credentials: bytes | None, requests: int, *, answers: int, cpu_s_max: float
    ) -> None:
        """Ask in connection after connection until so many were answered. Raises AssertionError where one
        costs more than `cpu_s_max`, or something in this process was raised and not handled."""
        answered = 0
        with unhandled_errors() as unhandled:
            while answered < answers:
                began_s = time.process_time()
                answered += self.ask(rng, credentials, requests)
                assert time.process_time() - began_s < cpu_s_max
                assert not unhandled, unhandled[0]

    def _request(self, rng: random.Random, credentials: bytes | None) -> bytes:
        given = credentials if credentials is not None else _wrong_credentials(rng)
        lines = [b"Host: x", b"Authorization: " + given, *rng.sample(_HEADERS, rng.choice((0, 0, 1, 3)))]
        if rng.random() >= self.body_share:
            method, path = rng.choice(_METHODS), _path(rng, self.pages)
            rng.shuffle(lines)
            return _head(method, path, [line for line in lines if rng.random() < 0.9])
        method, _, path = rng.choice(self.pages).partition(b" ")
        further, body = self.body(rng)
        lines = [line for line in (*lines, *further) if not line.startswith(b"Content-Length")]
        if rng.random() < 0.3:
            return _head(method, path, [*lines, b"Transfer-Encoding: chunked"]) + _chunked(rng, body)
        return _head(method, path, [*lines, b"Content-Length: %d" % len(body)]) + body


def json_body(table: str, *, bombs: bool = False) -> Body:
    """Return bodies for the query service: SQL in JSON that is sometimes none. `bombs`: as `statement`."""

    def body(rng: random.Random) -> tuple[list[bytes], bytes]:
        sql = statement(rng, table, bombs=bombs)
        odd: list[object] = [None, 1e308, -1, "", "\ud800", sql, [sql], {"a": sql}, 10**30, True, [[]] * 5]
        value: object = {"sql": sql}
        match rng.randrange(7):
            case 0:
                value = {"sql": sql, "parameters": [rng.choice(odd) for _ in range(rng.randrange(4))]}
            case 1:
                value = {"sql": sql, "parameters": {rng.choice(("a", "", "1", "\ud800")): rng.choice(odd)}}
            case 2:
                value = {"sql": sql, "timeout_ms": rng.choice((0, -1, 1, 86_400_001, 1.5, "1", None, 10**30))}
            case 3:
                value = {rng.choice(("sql", "sq1", "\ud800")): rng.choice(odd), "x": float("nan")}
            case 4:
                value = rng.choice(odd)
        text = json.dumps(value, ensure_ascii=rng.random() < 0.9).encode("utf-8", "surrogatepass")
        match rng.randrange(8):
            case 0:
                text = text[: rng.randrange(len(text) + 1)] + rng.randbytes(2)
            case 1:
                text = rng.choice(
                    (b"[" * 20_000, b'{"a":' * 5_000, b"9" * 5_000, b'{"sql": ' + b"9" * 5_000 + b"}")
                )
        return [b"Content-Type: " + rng.choice((b"application/json",) * 5 + (b"text/plain", b""))], text

    return body


def basic(user: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())


def _wrong_credentials(rng: random.Random) -> bytes:
    name = f"u{rng.getrandbits(64):x}"
    return rng.choice((*_CREDENTIALS, basic(name, "wrong"), b"Basic " + base64.b64encode(name.encode())))


def _path(rng: random.Random, pages: tuple[bytes, ...]) -> bytes:
    if rng.random() < 0.5:
        return rng.choice(_PATHS)
    path = rng.choice(pages).partition(b" ")[2]
    at = rng.randrange(len(path))
    return (
        path[:at] + rng.choice((b"/", b"%2f", b"?", b"%00", b"..", b"x" * 300, b"\xe2\x82\xac")) + path[at:]
    )


def _head(method: bytes, path: bytes, lines: list[bytes]) -> bytes:
    return b"\r\n".join((method + b" " + path + b" HTTP/1.1", *lines, b"", b""))


def _chunked(rng: random.Random, body: bytes) -> bytes:
    size = rng.choice((1, 7, 1_000, 1 << 20)) if len(body) < 300 else rng.choice((97, 1_000, 1 << 20))
    pieces = []
    for at in range(0, len(body), size):
        piece = body[at : at + size]
        pieces += [rng.choice((b"%x", b"%X", b"000%x", b"%x;a=b")) % len(piece), piece]
    trailers = rng.choice(([], [], [b"A: b"], [b"Content-Length: 3", b"Transfer-Encoding: x", b"Host: y"]))
    return b"\r\n".join((*pieces, b"0", *trailers, b"", b""))

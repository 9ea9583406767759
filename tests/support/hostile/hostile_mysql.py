"""A hostile client of a MySQL server: what can be sent before a login and after it, byte by byte.

None of our server's code is used. How much the server took is counted by what it answers: behind each command
stands one whose answer is known, and a connection that ends early was ended by one more.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
import struct
from dataclasses import dataclass
from typing import NamedTuple

from tests.support.hostile.hostile_sockets import ANSWER_TIMEOUT_S, sent_and_answered
from tests.support.hostile.hostile_texts import statement

_CAPABILITIES = 1 | 1 << 3 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 17 | 1 << 19 | 1 << 21 | 1 << 24
_CONNECT_WITH_DB, _TLS = 1 << 3, 1 << 11
_PLUGINS = (
    b"caching_sha2_password",
    b"mysql_native_password",
    b"mysql_clear_password",
    b"sha256_password",
    b"",
)
_QUERY, _PREPARE, _EXECUTE, _LONG_DATA, _CLOSE, _RESET, _FETCH = 3, 22, 23, 24, 25, 26, 28
_QUIT, _USE, _FIELDS, _STATISTICS, _KILL, _PING, _CHANGE_USER, _OPTION, _RESET_ALL = (
    1,
    2,
    4,
    9,
    12,
    14,
    17,
    27,
    31,
)
_MARKER, _MARKED = bytes((_STATISTICS,)), b"\x06\0\0\x01rtolap"
_TYPES = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
    15,
    16,
    245,
    246,
    247,
    248,
    249,
    250,
    251,
    252,
    253,
    254,
    255,
)
_PREPARED = (
    "select ? a, ? b",
    "select count(*) from {t} limit ?",
    "show tables like ?",
    "select ?",
    "set @a = 1",
)


class Account(NamedTuple):
    user: str
    password: str


@dataclass(frozen=True)
class HostileMySql:
    """`table`: one that its statements may name. Raises AssertionError where a server does not answer."""

    host: str
    port: int
    table: str
    bombs: bool = False

    def before_login(self, rng: random.Random) -> int:
        """Open one connection that does not log in. Returns how many inputs the server took: one."""
        with contextlib.suppress(ConnectionError), self._connected() as connection:
            nonce = _nonce(_packet(connection))
            connection.sendall(_login_attempt(rng, nonce))
            with contextlib.suppress(OSError):  # the server has ended it already
                connection.shutdown(socket.SHUT_WR)
            _to_the_end(connection)
        return 1

    def after_login(self, rng: random.Random, account: Account, commands: int) -> int:
        """Send so many commands in one connection, or fewer if the server ends it. Returns how many it
        took."""
        with self._connected() as connection:
            connection.sendall(_frame(_response(_nonce(_packet(connection)), account), 1))
            assert _packet(connection) == b"\x01\x03", "a right password was refused"
            assert _packet(connection)[:1] == b"\0"
            sent = [
                _frame(self._command(rng, number, account)) + _frame(_MARKER) for number in range(commands)
            ]
            answers = sent_and_answered(connection, b"".join(sent) + _last(rng))
        taken = answers.count(_MARKED)
        return taken if taken == commands else taken + 1

    def _connected(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=ANSWER_TIMEOUT_S)

    def _command(self, rng: random.Random, number: int, account: Account) -> bytes:
        if number < 2:
            return bytes((_PREPARE,)) + rng.choice(_PREPARED).format(t=self.table).encode()
        choice = rng.random()
        if choice < 0.45:
            return bytes((rng.choice((_QUERY, _QUERY, _PREPARE)),)) + self._text(rng)
        if choice < 0.70:
            return bytes((_EXECUTE,)) + _execution(rng)
        if choice < 0.80:
            head = struct.pack("<IH", rng.choice((1, 2, 2**32 - 1)), rng.choice((0, 1, 2, 65_535)))
            return bytes((_LONG_DATA,)) + head + rng.randbytes(rng.choice((0, 1, 100, 5_000)))
        if choice < 0.81:
            return bytes((_CHANGE_USER,)) + _changed_user(rng, account)
        if choice < 0.87:
            return bytes((_FIELDS,)) + self._text(rng)[:500]
        if choice < 0.92:
            return bytes((_USE,)) + self._text(rng)[:500]
        known = (_CLOSE, _RESET, _FETCH, _KILL, _OPTION, _RESET_ALL, _PING)
        command = rng.choice((rng.choice(known), rng.randint(2, 255)))
        length = 4 if command in known and rng.random() < 0.8 else rng.randrange(12)
        return bytes((command,)) + rng.choice((rng.randbytes(length), bytes((1, 0, 0, 0))))

    def _text(self, rng: random.Random) -> bytes:
        text = statement(rng, self.table, bombs=self.bombs).encode()
        if rng.random() < 0.05:  # no UTF-8 any more
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.randbytes(3) + text[at:]
        return text


def _frame(payload: bytes, sequence: int = 0) -> bytes:
    return struct.pack("<I", len(payload) | sequence << 24) + payload


def _packet(connection: socket.socket) -> bytes:
    head = _exactly(connection, 4)
    return _exactly(connection, int.from_bytes(head[:3], "little"))


def _exactly(connection: socket.socket, size: int) -> bytes:
    taken = b""
    while len(taken) < size:
        piece = connection.recv(size - len(taken))
        if not piece:
            raise ConnectionResetError("the server has ended the connection")
        taken += piece
    return taken


def _nonce(greeting: bytes) -> bytes:
    at = greeting.index(b"\0", 1) + 5
    return greeting[at : at + 8] + greeting[at + 27 : at + 39]


def _scramble(password: str, nonce: bytes) -> bytes:
    once = hashlib.sha256(password.encode()).digest()
    twice = hashlib.sha256(hashlib.sha256(once).digest() + nonce).digest()
    return bytes(a ^ b for a, b in zip(once, twice, strict=True))


def _response(nonce: bytes, account: Account, capabilities: int = _CAPABILITIES & ~_CONNECT_WITH_DB) -> bytes:
    scramble = _scramble(account.password, nonce)
    head = struct.pack("<IIB23x", capabilities, 1 << 24, 255)
    return head + account.user.encode() + b"\0" + bytes((len(scramble),)) + scramble + _PLUGINS[0] + b"\0"


def _login_attempt(rng: random.Random, nonce: bytes) -> bytes:
    """Return an attempt with a wrong password, never of the same user twice: wrong ones wait."""
    account = Account(f"u{rng.getrandbits(64):x}", "wrong")
    capabilities = rng.choice((_CAPABILITIES, rng.getrandbits(32), 0, 2**32 - 1, _CAPABILITIES | _TLS))
    whole = _response(nonce, account, capabilities)
    match rng.randrange(9):
        case 0:  # cut
            whole = whole[: rng.randrange(len(whole))]
        case 1:  # some bytes are others
            at = rng.randrange(len(whole))
            whole = whole[:at] + rng.randbytes(rng.randint(1, 8)) + whole[at + rng.randint(0, 8) :]
        case 2:
            whole = rng.randbytes(rng.randrange(200))
        case 3:  # the whole of a frame that may be sent before a login, or one byte more
            return _frame(whole + bytes(rng.choice((65_536, 65_537)) - len(whole)), 1)
        case 4:  # a length that is not that of the frame
            length = rng.choice((0, 1, len(whole) - 1, len(whole) + 1, 2**24 - 1, rng.randrange(2**24)))
            return length.to_bytes(3, "little") + bytes((rng.randrange(256),)) + whole
        case 5:  # TLS is asked for, and something else comes, or that too, in the middle of a login
            asked = _frame(struct.pack("<IIB23x", _CAPABILITIES | _TLS, 1 << 24, 255), 1)
            return asked + rng.choice((whole, b"\x16\x03\x01\x02\0" + rng.randbytes(200), asked, b""))
        case 6:  # another plugin; then an answer to the switch that is none
            whole = whole.replace(_PLUGINS[0], rng.choice(_PLUGINS[1:]))
            return _frame(whole, 1) + _frame(rng.randbytes(rng.choice((0, 1, 20, 32, 255, 60_000))), 3)
        case 7:  # no MySQL at all
            return rng.choice(
                (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0", bytes(1_000))
            )
        case 8:  # a login in very many pieces
            return b"".join(_frame(whole[at : at + 1], rng.randrange(256)) for at in range(len(whole)))
    return _frame(whole, rng.choice((1, 1, 0, 255)))


def _execution(rng: random.Random) -> bytes:
    """Return an execution of statement 1 or 2: its parameters in any type, cut or whole, or none."""
    identity = rng.choice((1, 2, 1, 2, 3, 2**32 - 1))
    head = struct.pack("<IBI", identity, rng.choice((0, 1, 255)), rng.choice((1, 0, 2**32 - 1)))
    count = rng.choice((0, 1, 2, 2, 2, 3))
    nulls = bytes((rng.choice((0, 0, 0, 1, 3, 255)),)) if count else b""
    bound = bytes((rng.choice((1, 1, 1, 1, 0, 2)),)) if count else b""
    types = [rng.choice(_TYPES) for _ in range(count)]
    codes = b"".join(bytes((code, rng.choice((0, 0x80)))) for code in types)
    whole = head + nulls + bound + codes + b"".join(_parameter(rng, code) for code in types)
    return whole[: rng.randrange(len(whole))] if rng.random() < 0.05 else whole


def _parameter(rng: random.Random, code: int) -> bytes:
    widths = {0: 0, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 6: 0, 8: 8, 9: 4, 13: 2}
    if code in widths and code != 0:
        return rng.choice((rng.randbytes, lambda size: b"\xff" * size, bytes))(widths[code])
    if code in (7, 10, 11, 12):
        length = rng.choice((0, 4, 7, 8, 11, 12, 5))
        return bytes((length,)) + rng.choice((rng.randbytes(length), bytes(length), b"\xff" * length))
    text = rng.choice(
        (
            *(
                b"",
                b"1.5",
                b"1e999999999",
                b"-1E-999999999",
                b"NaN",
                b"sNaN123",
                b"Infinity",
                b"\xff\xfe",
                b"abc",
            ),
            *(b"1" * 240, b"2024-02-30", b"\0", "😀".encode(), b"_1_", b" 1 ", rng.randbytes(20)),
        )
    )
    return bytes((len(text),)) + text


def _changed_user(rng: random.Random, account: Account) -> bytes:
    """Return a change of user; what follows is taken for the response to a switch of plugins, so this ends
    the connection in the end.
    """
    user = f"{rng.getrandbits(64):x}" + rng.choice(("", "é" * 1_000))  # never twice: wrong passwords wait
    whole = user.encode() + b"\0" + bytes((rng.choice((0, 20, 32, 255)),)) + rng.randbytes(32) + b"rtolap\0"
    return whole[: rng.randrange(16, len(whole) + 1)]


def _last(rng: random.Random) -> bytes:
    """Return what ends a connection: QUIT, an empty frame, or one that is cut behind it."""
    return rng.choice((_frame(b"\x01"), _frame(b""), _frame(b"\x01") + rng.randbytes(7)))


def _to_the_end(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass

"""Mutual proof, by which both ends of a connection show that they know the cluster's secret, and neither
sends it.

    client → server   Rtolap-Hello <client nonce>.<address that the client has called>
    server → client   <server nonce>.<tag over both nonces and the address>
    client → server   Rtolap-Call <client nonce>.<server nonce>.<number>.<tag over the number>
    server → client   <number>.<tag over the number>

The second line proves the server, before the client says anything that only a client of the cluster could
say. The key of the other two lines is that session's own. It depends on the address: a server proves nothing
for an address that is not its own, so whoever stands between cannot hand the proof of a real server on. A
number counts once, so that a line which somebody has read opens nothing.

A hello costs the server no memory: its nonce holds the time and is recognized by a key of the process. A
session is noted with its first call that proves the client. Nonces and tags are written in hexadecimal.
"""

from __future__ import annotations

import hmac
import itertools
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from rtolap.base.cluster_secret import FLIGHT, derived_key, proves, tag
from rtolap.base.errors import SessionUnknown, Unauthorized

HELLO = b"Rtolap-Hello "
CALL = b"Rtolap-Call "
ANSWER_HEADER = "rtolap-proof"

_NONCE_BYTES = 16
_TIME_BYTES = 8
_NUMBER_DIGITS_MAX = 18
_ADDRESS_BYTES_MAX = 300
SESSIONS_MAX = 4096  # clients of one server; the one that called longest ago opens another
WINDOW = 4096  # numbers that may still come when a larger one has come
OFFER_MS = 60_000  # from a hello to the first call of its session


def _session_key(key: bytes, client: bytes, server: bytes, address: bytes) -> bytes:
    return tag(key, b"session", client, server, address)


class ClientSession:
    """The client's end of a session. Thread-safe."""

    def __init__(self, key: bytes, nonce: str, server_nonce: str) -> None:
        self._key = key
        self._id = f"{nonce}.{server_nonce}"
        self._numbers = itertools.count(1)
        self._proven: dict[int, None] = {}  # the newest: of a call that was given up nobody asks

    def next_number(self) -> int:
        return next(self._numbers)

    def header(self, number: int) -> bytes:
        """Return the credentials of the call with that number."""
        shown = tag(self._key, b"call", str(number).encode()).hex()
        return CALL + f"{self._id}.{number}.{shown}".encode()

    def answered(self, proof: str) -> None:
        """Note what an answer says; one that proves nothing changes nothing."""
        number, _, shown = proof.partition(".")
        if _is_number(number) and proves(self._key, _bytes_of(shown), b"answer", number.encode()):
            self._proven[int(number)] = None
            if len(self._proven) > WINDOW:
                self._proven.pop(next(iter(self._proven)), None)

    def take_proof(self, number: int) -> bool:
        """Return whether the answer of the call with that number came from who knows the secret. Ask once."""
        return self._proven.pop(number, self) is None


class Hello:
    """The client's side of opening one session with `address`."""

    def __init__(self, token: str, address: str) -> None:
        self._key = derived_key(token, FLIGHT)
        self._address = address.encode()
        self._nonce = secrets.token_bytes(_NONCE_BYTES)

    def header(self) -> bytes:
        return HELLO + self._nonce.hex().encode() + b"." + self._address

    def session(self, offer: str) -> ClientSession | None:
        """Return the session, or None where the answer is not that of a server with the secret."""
        shown, _, proof = offer.partition(".")
        nonce = _bytes_of(shown)
        if not proves(self._key, _bytes_of(proof), b"server", self._nonce, nonce, self._address):
            return None
        key = _session_key(self._key, self._nonce, nonce, self._address)
        return ClientSession(key, self._nonce.hex(), nonce.hex())


class _Known:
    def __init__(self, key: bytes, begun_ms: int) -> None:
        self.key = key
        self.begun_ms = begun_ms
        self._highest = 0
        self._used = 0  # bit n: number `_highest - n` has come

    def use(self, number: int) -> bool:
        """Return False for a number that has come before, or is older than all that are remembered."""
        ahead = number - self._highest
        if ahead > 0:
            self._used = (self._used << ahead | 1) & ((1 << WINDOW) - 1) if ahead < WINDOW else 1
            self._highest = number
            return True
        if -ahead >= WINDOW or self._used >> -ahead & 1:
            return False
        self._used |= 1 << -ahead
        return True


class ServerSessions:
    """The server's end of all its sessions. Thread-safe. `address`: as clients call it, host:port."""

    def __init__(
        self, token: str, address: str, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.address = address
        self._key = derived_key(token, FLIGHT)
        self._own_key = secrets.token_bytes(32)  # of this process: sessions end with it
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._oldest_ms = 0  # sessions that are not known and began before it are over

    def offer(self, credentials: bytes) -> str:
        """Answer a hello. Raises Unauthorized."""
        nonce, _, address = credentials.removeprefix(HELLO).partition(b".")
        client = _bytes_of(nonce.decode("latin-1"))
        if len(client) != _NONCE_BYTES or len(address) > _ADDRESS_BYTES_MAX:
            raise Unauthorized("the hello cannot be read", expected="a nonce and an address")
        if address != self.address.encode():
            raise Unauthorized(
                "this server proves nothing for another address than its own",
                expected=self.address,
                found=repr(address.decode("latin-1")),
                action="call it by the address that it announces",
            )
        server = self._nonce(self._now_ms(), client)
        return f"{server.hex()}.{tag(self._key, b'server', client, server, address).hex()}"

    def admit(self, credentials: bytes) -> None:
        """Let a call in, once. Raises SessionUnknown, or Unauthorized where it proves nothing."""
        with self._lock:
            known, number = self._check(credentials, first=True)
            if not known.use(number):
                raise SessionUnknown("a call of the session has come before", action="open another session")

    def answer(self, credentials: bytes) -> str:
        """Return the proof that goes with the answer to a call. Raises what `admit` does; counts nothing."""
        with self._lock:
            known, number = self._check(credentials, first=False)
        return f"{number}.{tag(known.key, b'answer', str(number).encode()).hex()}"

    def _check(self, credentials: bytes, *, first: bool) -> tuple[_Known, int]:
        rest, _, shown = credentials.removeprefix(CALL).rpartition(b".")
        session, _, number = rest.rpartition(b".")
        if not session or not _is_number(number.decode("latin-1")):
            raise Unauthorized("the session's call cannot be read")
        known = self._known.get(session)
        opened = known is None
        if known is None:
            if not first:
                raise SessionUnknown("the session is over")
            known = self._begin(session)
        if not proves(known.key, _bytes_of(shown.decode("latin-1")), b"call", number):
            raise Unauthorized("the caller does not know the cluster's secret")
        if opened:
            self._remember(session, known)
        self._known.move_to_end(session)
        return known, int(number)

    def _begin(self, session: bytes) -> _Known:
        first, _, second = session.decode("latin-1").partition(".")
        client, server = _bytes_of(first), _bytes_of(second)
        begun_ms = int.from_bytes(server[:_TIME_BYTES], "big")
        now_ms = self._now_ms()
        genuine = len(client) == _NONCE_BYTES and hmac.compare_digest(server, self._nonce(begun_ms, client))
        if not genuine or begun_ms <= self._oldest_ms or now_ms - begun_ms > OFFER_MS:
            raise SessionUnknown("the server knows no such session", action="open another session")
        return _Known(_session_key(self._key, client, server, self.address.encode()), begun_ms)

    def _remember(self, session: bytes, known: _Known) -> None:
        if len(self._known) >= SESSIONS_MAX:
            _, gone = self._known.popitem(last=False)
            self._oldest_ms = max(self._oldest_ms, gone.begun_ms)
        self._known[session] = known

    def _nonce(self, at_ms: int, client: bytes) -> bytes:
        begun = at_ms.to_bytes(_TIME_BYTES, "big")
        return begun + tag(self._own_key, begun, client)[:_NONCE_BYTES]

    def _now_ms(self) -> int:
        return int(self._monotonic_s() * 1000) + 1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < len(text) <= _NUMBER_DIGITS_MAX


def _bytes_of(text: str) -> bytes:
    """Parse hexadecimal bytes; return empty bytes for anything else."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""

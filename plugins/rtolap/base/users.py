"""The users, each with a password; wrong ones cost time.

The cluster's own bearer token is checked by each endpoint.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from cachetools import FIFOCache

from rtolap.base.errors import DefinitionError, Forbidden, TooManyAtOnce, Unauthorized
from rtolap.base.files import read_provided

HASH_BYTES = 32
Right = Literal["define", "load"]
RIGHTS: tuple[Right, ...] = ("define", "load")
FREE_FAILURES = 3
FIRST_DELAY_S = 0.25
DELAY_MAX_S = 4.0  # less than a login may take
FORGET_S = 300.0
MIN_WAIT_S = 0.001
REMEMBERED_MAX = 10_000


def password_hash(password: str) -> str:
    """Return the hash that the users file holds: sha256(sha256(password)) in hex."""
    return hashlib.sha256(hashlib.sha256(password.encode()).digest()).hexdigest()


_EMPTY = bytes.fromhex(password_hash(""))


class Users:
    """Names and double hashes, read once. A line is `name:hex` or `name:hex:right,right`; empty lines and
    `#` are passed over.

    Everybody here may query; a right is for what changes something: `load` for rows of stored tables,
    `define` for the tables themselves. Who may define may load: truncating a table takes more.

    `delays` slows wrong passwords down, over all servers that these users log in to.
    """

    def __init__(self, hashes: dict[str, bytes], rights: Mapping[str, Collection[str]] | None = None) -> None:
        self._hashes = dict(hashes)
        self._rights = {name: frozenset(each) for name, each in (rights or {}).items()}
        self.delays = LoginDelays()

    @classmethod
    def load(cls, path: Path) -> Users:
        """Read the users from a file. Raises DefinitionError naming the line, never its content."""
        text = read_provided(path, "the users file", action="create it, or set RTOLAP_USERS_FILE")
        hashes: dict[str, bytes] = {}
        rights: dict[str, tuple[str, ...]] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            entry = line.strip()
            if not entry or entry.startswith("#"):
                continue
            name, colon, rest = entry.partition(":")
            digest, _, granted = rest.partition(":")
            rights[name] = tuple(right.strip() for right in granted.split(",") if right.strip())
            try:
                decoded = bytes.fromhex(digest)
            except ValueError:
                decoded = b""
            if not name or not colon or len(decoded) != HASH_BYTES or not set(rights[name]) <= set(RIGHTS):
                raise DefinitionError(
                    f"{path}:{number}: not a user",
                    expected=f"name:hex(sha256(sha256(password))), and perhaps :{' or :'.join(RIGHTS)}",
                )
            if decoded == _EMPTY:
                raise DefinitionError(
                    f"{path}:{number}: an empty password", expected="one that somebody has to know"
                )
            hashes[name] = decoded
        return cls(hashes, rights)

    def require(self, name: str, right: Right) -> None:
        """Raise Forbidden unless the user has the right."""
        granted = self._rights.get(name, frozenset())
        if right not in granted and not (right == "load" and "define" in granted):
            raise Forbidden(
                f"user {name} has not the right to {right}",
                action=f"add {right} to the rights in the user's line of the users file: name:…:{right}",
            )

    def verify_password(self, name: str, password: str) -> None:
        """Raise Unauthorized, with the same words for an unknown name and a wrong password."""
        stored = self._hashes.get(name, bytes(HASH_BYTES))
        given = bytes.fromhex(password_hash(password))
        if not hmac.compare_digest(stored, given) or name not in self._hashes:
            raise denied()

    def verify_scramble(self, name: str, scramble: bytes, nonce: bytes) -> None:
        """Check the answer of caching_sha2_password: scramble = sha256(pw) XOR sha256(sha256(sha256(pw)) +
        nonce)."""
        stored = self._hashes.get(name, bytes(HASH_BYTES))
        mask = hashlib.sha256(stored + nonce).digest()
        first = bytes(a ^ b for a, b in zip(scramble, mask, strict=False))
        right = len(scramble) == HASH_BYTES and hmac.compare_digest(hashlib.sha256(first).digest(), stored)
        if not right or name not in self._hashes:
            raise denied()


def basic_credentials(credentials: str) -> tuple[str, str]:
    """Return (name, password) of what follows "Basic" in a header, unverified. Raises Unauthorized.

    Clients choose how letters beyond ASCII are written (RFC 7617, section 2): as UTF-8, which wins where
    bytes are both, or as Latin-1, which Python's requests does.
    """
    try:
        data = base64.b64decode(credentials, validate=True)
    except ValueError:  # no ASCII, or no base64
        raise Unauthorized("no valid Basic authorization") from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    name, _, password = text.partition(":")
    return name, password


def denied() -> Unauthorized:
    return Unauthorized("access denied: unknown user or wrong password")


class _Failures(NamedTuple):
    """Failed logins of one user. `next_s` is the time from which no try has a turn yet."""

    failures: int
    last_s: float
    next_s: float


_NO_FAILURES = _Failures(0, -math.inf, -math.inf)


class LoginDelays:
    """Delays after wrong passwords, which grow with each one of a user from an address. Nobody else waits for
    them.

    Thread-safe. All servers and connections of a process share one, so that tries beside each other wait for
    each other. After FREE_FAILURES the next try waits FIRST_DELAY_S, then twice as long each time, at most
    DELAY_MAX_S, each behind the one before it. A try that would wait longer is refused, and does not count.
    A right password ends that, and so does FORGET_S without a wrong one.

    The wait comes before the password is looked at, right ones too: a response that comes at once would
    reveal that it was right. REMEMBERED_MAX pairs are kept, those that failed last.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._failures: FIFOCache[bytes, _Failures] = FIFOCache(REMEMBERED_MAX)

    def __len__(self) -> int:
        return len(self._failures)

    def attempt(self, user: str, address: str, verify: Callable[[], None]) -> LoginAttempt:
        """Let `verify` check the password, which raises Unauthorized."""
        return LoginAttempt(self, _key(user, address), verify)

    def look(self, key: bytes, at_s: float | None, verify: Callable[[], None]) -> float | None:
        """See `LoginAttempt.advance`. Return the time at which the password may be looked at; None where it
        was looked at and is right. `at_s`: what was returned for the same try before."""
        with self._lock:
            now_s = self._monotonic_s()
            known = self._failures.get(key, _NO_FAILURES)
            if now_s - known.last_s > FORGET_S:
                known = _NO_FAILURES
            if at_s is None and known.failures >= FREE_FAILURES:
                return self._promise(key, known, now_s)
            if at_s is not None and now_s < at_s:
                return at_s
            try:
                verify()
            except Unauthorized:
                if at_s is None:  # one that had to wait has counted since then
                    self._failures[key] = known._replace(failures=known.failures + 1, last_s=now_s)
                raise
            self._failures.pop(key, None)
            return None

    def _promise(self, key: bytes, known: _Failures, now_s: float) -> float:
        delay_s = float(min(DELAY_MAX_S, FIRST_DELAY_S * 2 ** min(known.failures - FREE_FAILURES, 20)))
        # not the difference of two instants, which rounding makes longer than the delay
        wait_s = max(0.0, known.next_s - now_s) + delay_s
        if wait_s > DELAY_MAX_S:
            raise TooManyAtOnce(
                "too many wrong passwords for this user from this address",
                expected="one try after the other",
                action=f"try again in {DELAY_MAX_S:g} s",
            )
        at_s = now_s + wait_s
        self._failures[key] = _Failures(known.failures + 1, now_s, at_s)
        return at_s

    def now_s(self) -> float:
        return self._monotonic_s()


class LoginAttempt:
    """A try of a password, which may have to wait before the password is looked at."""

    def __init__(self, delays: LoginDelays, key: bytes, verify: Callable[[], None]) -> None:
        self._delays = delays
        self._key = key
        self._verify = verify
        self._at_s: float | None = None

    def advance(self) -> float:
        """Return the seconds to wait before the next call; 0 once the password was right.

        Raises Unauthorized for a wrong one, and TooManyAtOnce where other tries wait as long as one may.
        """
        self._at_s = self._delays.look(self._key, self._at_s, self._verify)
        return 0.0 if self._at_s is None else max(MIN_WAIT_S, self._at_s - self._delays.now_s())


def _key(user: str, address: str) -> bytes:
    """Return a key of one size, whatever names callers make up."""
    return hashlib.blake2b(f"{address} {user}".encode("utf-8", "surrogateescape"), digest_size=16).digest()

"""The users, each with a password; wrong ones cost time.

The cluster's own bearer token is checked by each endpoint.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from rtolap.base.errors import DefinitionError, Forbidden, Unauthorized
from rtolap.base.files import read_provided

HASH_BYTES = 32
Right = Literal["define", "load"]
RIGHTS: tuple[Right, ...] = ("define", "load")
FREE_FAILURES = 3
FIRST_DELAY_S = 0.25
DELAY_MAX_S = 4.0  # less than a login may take
FORGET_S = 300.0
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
    """

    def __init__(self, hashes: dict[str, bytes], rights: Mapping[str, Collection[str]] | None = None) -> None:
        self._hashes = dict(hashes)
        self._rights = {name: frozenset(each) for name, each in (rights or {}).items()}

    @classmethod
    def load(cls, path: Path) -> Users:
        """Raises DefinitionError naming the line, never its content."""
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
        """Raises Forbidden."""
        granted = self._rights.get(name, frozenset())
        if right not in granted and not (right == "load" and "define" in granted):
            raise Forbidden(
                f"user {name} has not the right to {right}",
                action=f"add {right} to the rights in the user's line of the users file: name:…:{right}",
            )

    def verify_password(self, name: str, password: str) -> None:
        """Raises Unauthorized, with the same words for an unknown name and a wrong password."""
        stored = self._hashes.get(name, bytes(HASH_BYTES))
        given = bytes.fromhex(password_hash(password))
        if not hmac.compare_digest(stored, given) or name not in self._hashes:
            raise denied()

    def verify_scramble(self, name: str, scramble: bytes, nonce: bytes) -> None:
        """caching_sha2_password: scramble = sha256(pw) XOR sha256(sha256(sha256(pw)) + nonce)."""
        stored = self._hashes.get(name, bytes(HASH_BYTES))
        mask = hashlib.sha256(stored + nonce).digest()
        first = bytes(a ^ b for a, b in zip(scramble, mask, strict=False))
        right = len(scramble) == HASH_BYTES and hmac.compare_digest(hashlib.sha256(first).digest(), stored)
        if not right or name not in self._hashes:
            raise denied()


def basic_credentials(credentials: str) -> tuple[str, str]:
    """(name, password) of what follows "Basic" in a header, unverified. Raises Unauthorized."""
    try:
        name, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:  # no ASCII, no base64, or no UTF-8 in it
        raise Unauthorized("no valid Basic authorization") from None
    return name, password


def denied() -> Unauthorized:
    return Unauthorized("access denied: unknown user or wrong password")


class _Failures(NamedTuple):
    failures: int
    last_s: float


class LoginDelays:
    """Wrong passwords cost time: more with each, for one user from one address. Nobody else waits for them.

    Thread-safe. After FREE_FAILURES the next try waits FIRST_DELAY_S, then twice as long each time, at
    most DELAY_MAX_S; a right password ends that, and so does FORGET_S without a wrong one.

    The wait comes before the password is looked at, right ones too: a response that comes at once would
    reveal that it was right. REMEMBERED_MAX pairs are kept, those that failed last.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._failures: dict[bytes, _Failures] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def delay_s(self, user: str, address: str) -> float:
        if not self._failures:
            return 0.0
        with self._lock:
            found = self._failures.get(_key(user, address))
        if found is None or found.failures < FREE_FAILURES or self._monotonic_s() - found.last_s > FORGET_S:
            return 0.0
        return float(min(DELAY_MAX_S, FIRST_DELAY_S * 2 ** min(found.failures - FREE_FAILURES, 20)))

    def failed(self, user: str, address: str) -> None:
        key, now_s = _key(user, address), self._monotonic_s()
        with self._lock:
            known = self._failures.pop(key, None)
            before = 0 if known is None or now_s - known.last_s > FORGET_S else known.failures
            self._failures[key] = _Failures(before + 1, now_s)
            if len(self._failures) > REMEMBERED_MAX:
                del self._failures[next(iter(self._failures))]

    def succeeded(self, user: str, address: str) -> None:
        if not self._failures:
            return
        with self._lock:
            self._failures.pop(_key(user, address), None)


def _key(user: str, address: str) -> bytes:
    """Return a key of one size, whatever names callers make up."""
    return hashlib.blake2b(f"{address} {user}".encode("utf-8", "surrogateescape"), digest_size=16).digest()

"""Wrong passwords cost time: more with each, for one user from one address. Nobody else waits for them."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

FREE_FAILURES = 3
FIRST_DELAY_S = 0.25
DELAY_MAX_S = 4.0  # less than a login may take
FORGET_S = 300.0
REMEMBERED_MAX = 10_000


class _Failures(NamedTuple):
    failures: int
    last_s: float


class LoginDelays:
    """Thread-safe. After FREE_FAILURES the next try waits FIRST_DELAY_S, then twice as long each time, at
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

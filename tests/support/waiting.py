"""Waiting for what will be so soon: by asking again, never by a time that should be enough."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

# How much longer this machine may take. Deadlines are multiplied by it: one ends only what would never come,
# so a large factor costs nothing where all is well.
SLOWNESS: Final = max(1.0, float(os.environ.get("RTOLAP_TEST_SLOWNESS", "1")))
TIMEOUT_S = 60.0  # generous: it is over only for what never comes
_POLL_S = 0.01
T = TypeVar("T")


def patience_s(timeout_s: float) -> float:
    """Return the limit of a wait that somebody else keeps (a process, a client): longer on a slow machine."""
    return timeout_s * SLOWNESS


def until(
    is_so: Callable[[], object],
    what: object = "what is waited for",
    *,
    timeout_s: float = TIMEOUT_S,
    poll_s: float = _POLL_S,
) -> None:
    """Return as soon as `is_so` holds. After the time, longer on a slow machine, raise AssertionError with
    `what`, or with what it says when it is called. Whatever `is_so` raises goes on."""
    timeout_s = patience_s(timeout_s)
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what() if callable(what) else what}")
        time.sleep(poll_s)


def result_of(
    ask: Callable[[], T],
    passing: type[Exception] | tuple[type[Exception], ...],
    *,
    timeout_s: float = TIMEOUT_S,
    poll_s: float = _POLL_S,
) -> T:
    """Return what `ask` returns, as soon as it raises none of `passing`. After the time, longer on a slow
    machine, the last of them goes on."""
    deadline_s = time.monotonic() + patience_s(timeout_s)
    while True:
        try:
            return ask()
        except passing:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(poll_s)

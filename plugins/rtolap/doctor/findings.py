"""Findings of looks, which are made side by side, each within its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LookTimeout
from typing import Literal, NamedTuple

import msgspec

from rtolap.base.errors import RtolapError

Outcome = Literal["ok", "warning", "failed"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence about one thing that was looked at.

    Attributes:
        subject: what was looked at, such as `Kafka default`.
        found: in words.
        action: what mends it, with the command if there is one; empty where all is well.
    """

    subject: str
    outcome: Outcome
    found: str
    action: str = ""


class Look(NamedTuple):
    """A look at one thing. An error that `make` raises is a finding: others are found all the same."""

    subject: str
    make: Callable[[], Iterable[Finding]]


def ok(subject: str, found: str) -> Finding:
    return Finding(subject=subject, outcome="ok", found=found)


def warning(subject: str, found: str, action: str) -> Finding:
    return Finding(subject=subject, outcome="warning", found=found, action=action)


def failed(subject: str, found: str, action: str) -> Finding:
    return Finding(subject=subject, outcome="failed", found=found, action=action)


def look_at_all(looks: Iterable[Look], each_s: float) -> Iterator[Finding]:
    """Make all looks at the same time, and give their findings in the order of the looks.

    each_s: seconds after which a look that has not ended failed. Its thread is left behind.
    """
    ordered = tuple(looks)
    pool = ThreadPoolExecutor(max_workers=max(len(ordered), 1), thread_name_prefix="look")
    try:
        made = [(look, pool.submit(lambda look=look: tuple(look.make()))) for look in ordered]  # type: ignore[misc]
        for look, future in made:
            yield from _result(look, future, each_s)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _result(look: Look, future: Future[tuple[Finding, ...]], each_s: float) -> tuple[Finding, ...]:
    try:
        error = future.exception(timeout=each_s)
    except LookTimeout:
        return (failed(look.subject, f"no answer within {each_s:g} s", "see whether it runs, and its log"),)
    if error is None:
        return future.result()
    if isinstance(error, RtolapError):
        found = error.message if error.found is None else f"{error.message}: {error.found}"
        return (failed(look.subject, found, error.action or _expected(error)),)
    found = f"looking at it ended with {type(error).__name__}: {error}"
    return (failed(look.subject, found, "see what this host's settings say of it"),)


def _expected(error: RtolapError) -> str:
    return f"expected {error.expected}" if error.expected is not None else "see whether it runs, and its log"

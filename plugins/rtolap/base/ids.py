"""Ids of what a process works for: a load, a statement, a segment. They go from service to service.

    door      bound(...)       a request begins: ids that it brings, or a new one
    within    note(...)        what becomes known of it: its label, its transaction
    client    sent()           the header of the next request
    server    received(text)   the ids of that header, at the next door
    logs      ids()            each line says them (`base.logs`)
    parent    handed_over()    the environment of a process that works for the same request
    child     of_parent()      the ids in that environment

A pool of threads has to take them along: `CarryingPool` does, and so does asyncio by itself. What comes from
outside is bounded, and holds nothing that could be taken for another line of a log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from random import getrandbits
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

HEADER: Final = "rtolap-ids"
VARIABLE: Final = "RTOLAP_IDS"
IDS_MAX: Final = 16
VALUE_CHARS_MAX: Final = 128

_NAME = re.compile(r"[a-z]{1,20}")
_OTHER = re.compile(r"[^A-Za-z0-9_.:@+-]")
_HEADER_CHARS_MAX = IDS_MAX * (VALUE_CHARS_MAX + 24)

_bound: ContextVar[dict[str, str] | None] = ContextVar("rtolap_ids", default=None)


def ids() -> Mapping[str, str]:
    """Return the ids of what this thread or task works for, by name."""
    return _bound.get() or {}


@contextmanager
def bound(given: Mapping[str, str] | None = None, **more: object) -> Iterator[None]:
    """Work for these ids, beside those of the caller; afterwards for the caller's alone."""
    held = dict(ids())
    for name, value in {**(given or {}), **more}.items():
        _put(held, name, value)
    token = _bound.set(held)
    try:
        yield
    finally:
        _bound.reset(token)


def note(**known: object) -> None:
    """Add ids to the request that is under way, in whatever thread: all of its lines have them from now on.

    Without a request nothing is noted.
    """
    held = _bound.get()
    if held is not None:
        for name, value in known.items():
            _put(held, name, value)


def forget(*names: str) -> None:
    """Take ids off what is under way: what they name is over, and the work goes on."""
    held = _bound.get()
    if held is not None:
        for name in names:
            held.pop(name, None)


def new_id() -> str:
    """Return an id that no other request has; nobody trusts who knows it.

    It comes from a generator of this process: bytes of the system would let another thread run first, which
    a service of many clients notices with each statement.
    """
    return f"{getrandbits(64):016x}"


def sent() -> str:
    """Return the value of the header; "" where there is nothing to send."""
    held = _bound.get()
    return ";".join(f"{name}={value}" for name, value in list(held.items())) if held else ""


def received(text: str) -> dict[str, str]:
    """Return the ids of a header; none of one that is in no form."""
    found: dict[str, str] = {}
    if text and len(text) <= _HEADER_CHARS_MAX:
        for pair in text.split(";"):
            name, _, value = pair.partition("=")
            _put(found, name, value)
    return found


def handed_over() -> dict[str, str]:
    """Return the environment by which a child process works for the ids of this thread; empty without any."""
    known = sent()
    return {VARIABLE: known} if known else {}


def of_parent(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the ids that a process was started for."""
    return received(environment.get(VARIABLE, ""))


def carried(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function, which works for the ids of its caller in whatever thread it is called, once."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return context.run(function, *args, **kwargs)

    return run


class CarryingPool(ThreadPoolExecutor):
    """A pool whose threads work for the ids of those who submit."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(carried(fn), *args, **kwargs)


def _put(held: dict[str, str], name: str, value: object) -> None:
    text = _OTHER.sub("_", str(value)[:VALUE_CHARS_MAX])
    if text and _NAME.fullmatch(name) and (name in held or len(held) < IDS_MAX):
        held[name] = text

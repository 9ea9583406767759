"""Reads sources of brokers over HTTP, all at once. Answers are bounded in bytes and in time.

A source that sends slowly must not delay a look. A silent source is reported, and is no error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TypeVar

import httpx

from rtolap.base.errors import Corrupted, RtolapError, Unavailable
from rtolap.base.ids import CarryingPool
from rtolap.fleet.monitoring.sources import BrokerSources, FleetSources, open_http

_THREADS = 32

T = TypeVar("T")


def read_page(
    http: httpx.Client,
    method: str,
    url: str,
    *,
    content: bytes | None = None,
    bytes_max: int,
    timeout_s: float,
) -> bytes:
    """Read a page. Raises Unavailable, which says why without the URL's own text."""
    deadline_s = time.monotonic() + timeout_s
    parts: list[bytes] = []
    size = 0
    try:
        with http.stream(method, url, content=content) as answer:
            if answer.status_code != httpx.codes.OK:
                raise Unavailable(
                    f"HTTP status {answer.status_code}", action=_ACTIONS.get(answer.status_code)
                )
            for part in answer.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > bytes_max:
                    raise Unavailable("the answer is too large", expected=f"at most {bytes_max} bytes")
                if time.monotonic() > deadline_s:
                    raise Unavailable(f"no whole answer within {timeout_s:g} s")
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise Unavailable(str(error) or type(error).__name__) from error
    return b"".join(parts)


_ACTIONS = {
    401: "give user and password, or a token, in access",
    403: "let the agent's policy allow this host and user to read",
}


def ask_brokers(
    sources: FleetSources,
    brokers: Collection[int],
    read: Callable[[int, BrokerSources, httpx.Client], T],
    timeout_s: float,
) -> dict[int, T | RtolapError]:
    """Return by broker what `read` returns or raises of RtolapError; brokers have sources."""

    def ask(broker: int) -> T | RtolapError:
        try:
            with open_http(sources.access_of(broker), f"broker {broker}", timeout_s) as http:
                return read(broker, sources.brokers[broker], http)
        except RtolapError as error:
            return error

    if not brokers:
        return {}
    with CarryingPool(min(_THREADS, len(brokers))) as pool:
        return dict(zip(brokers, pool.map(ask, brokers), strict=True))


def post_to_agent(
    http: httpx.Client, jolokia: str, content: bytes, *, bytes_max: int, timeout_s: float
) -> bytes:
    """Post to a Jolokia agent, which answers at the path with a slash and redirects from the one without."""
    url = jolokia.rstrip("/") + "/"
    return read_page(http, "POST", url, content=content, bytes_max=bytes_max, timeout_s=timeout_s)


def check_is(broker: int, ids: Collection[int]) -> None:
    """Check that a source belongs to the broker. `ids` are what its process calls itself, if it says so.
    Raises Corrupted for another broker's."""
    if ids and broker not in ids:
        called = ", ".join(map(str, sorted(ids)))
        raise Corrupted(f"it is the agent of broker {called}", expected=f"of broker {broker}")

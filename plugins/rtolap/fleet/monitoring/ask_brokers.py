"""All brokers' sources are asked at once, each within its time. Silence is told, and is no error."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import httpx

from rtolap.base.errors import Corrupted, RtolapError
from rtolap.fleet.monitoring.http_pages import read_page
from rtolap.fleet.monitoring.sources import BrokerSources, FleetSources, open_http

_THREADS = 32

T = TypeVar("T")


def ask_brokers(
    sources: FleetSources,
    brokers: Collection[int],
    read: Callable[[int, BrokerSources, httpx.Client], T],
    timeout_s: float,
) -> dict[int, T | RtolapError]:
    """By broker, what `read` returns or raises of RtolapError; brokers have sources."""

    def ask(broker: int) -> T | RtolapError:
        try:
            with open_http(sources.access_of(broker), f"broker {broker}", timeout_s) as http:
                return read(broker, sources.brokers[broker], http)
        except RtolapError as error:
            return error

    if not brokers:
        return {}
    with ThreadPoolExecutor(min(_THREADS, len(brokers))) as pool:
        return dict(zip(brokers, pool.map(ask, brokers), strict=True))


def post_to_agent(
    http: httpx.Client, jolokia: str, content: bytes, *, bytes_max: int, timeout_s: float
) -> bytes:
    """A Jolokia agent answers at the path with a slash, and redirects from the one without."""
    url = jolokia.rstrip("/") + "/"
    return read_page(http, "POST", url, content=content, bytes_max=bytes_max, timeout_s=timeout_s)


def check_is(broker: int, ids: Collection[int]) -> None:
    """ids: what the source's process calls itself, if it tells. Raises Corrupted for another broker's."""
    if ids and broker not in ids:
        called = ", ".join(map(str, sorted(ids)))
        raise Corrupted(f"it is the agent of broker {called}", expected=f"of broker {broker}")

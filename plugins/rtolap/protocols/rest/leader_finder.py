"""Finds the coordinator that leads, from the answers: 307 and 503 name the leader, silence unseats it.

Only the addresses that it was made with get requests: who leads is reported by whoever stands for election in
ZooKeeper, and requests to configured addresses carry the cluster's token.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx

from rtolap.base.errors import (
    DefinitionError,
    Impostor,
    RtolapError,
    Unauthorized,
    Unavailable,
    from_dict,
)


class LeaderFinder:
    """Shared by the synchronous and the asynchronous client. Thread-safe."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = tuple(dict.fromkeys(url.rstrip("/") for url in urls))
        if not self._urls:
            raise DefinitionError("no coordinator is named", expected="at least one URL")
        self._lock = threading.Lock()
        self._leader: str | None = None
        self._last_failure = "no answer yet"

    def attempts(self) -> Iterator[str]:
        """Yield the believed leader first, then the others.

        A leader named on the way is next. Each comes once.
        """
        tried: set[str] = set()
        while True:
            with self._lock:
                candidates = (*((self._leader,) if self._leader else ()), *self._urls)
            url = next((url for url in candidates if url not in tried), None)
            if url is None:
                return
            tried.add(url)
            yield url

    @contextmanager
    def asking(self, url: str) -> Iterator[None]:
        """Make one attempt. Silence at the address, or an impostor, is noted, and the next address
        follows."""
        try:
            yield
        except (httpx.TransportError, Impostor) as error:
            self.failed(url, error)

    def failed(self, url: str, error: Exception) -> None:
        with self._lock:
            self._last_failure = f"{url}: {error or type(error).__name__}"
            if self._leader == url:
                self._leader = None

    def answered(self, url: str, response: httpx.Response) -> bool:
        """Return True if this is the leader's answer. Raises the error that the leader answered with."""
        if response.status_code == httpx.codes.TEMPORARY_REDIRECT:
            target = urlsplit(response.headers.get("location", ""))
            self._named(url, f"{target.scheme}://{target.netloc}", "a leader that does not answer")
            return False
        if response.is_success:
            with self._lock:
                self._leader = url
            return True
        payload = _payload(response)
        if payload.get("code") == "not_leader":
            named = payload.get("leader_url")
            self._named(url, str(named).rstrip("/") if named else None, str(payload.get("message")))
            return False
        raise _error(response, payload)

    def _named(self, by: str, leader: str | None, failure: str) -> None:
        """Try `leader` next, if it is one of ours. `failure` says what is wrong when nobody responds."""
        known = leader is None or leader in self._urls
        with self._lock:
            self._leader = leader if known else None
            self._last_failure = (
                f"{by}: {failure}" if known else f"{by} names {leader} as leader, which is not configured"
            )

    def nobody(self, request: str) -> Unavailable:
        with self._lock:
            return Unavailable(
                f"no coordinator took {request}",
                expected=f"a leader among {', '.join(self._urls)}",
                found=self._last_failure,
                action="start one with `rtolap coordinator serve`, name all in RTOLAP_COORDINATORS as each "
                "announces itself, or try again after the election",
            )


def _payload(response: httpx.Response) -> dict[str, object]:
    try:
        payload = response.json()
    except ValueError:
        return {}
    return payload if isinstance(payload, dict) else {}


def _error(response: httpx.Response, payload: dict[str, object]) -> RtolapError:
    if "code" in payload:
        return from_dict(payload)
    text = f"{response.request.method} {response.request.url} answered {response.status_code}"
    if response.status_code == httpx.codes.UNAUTHORIZED:
        return Unauthorized(text)
    if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        return Unavailable(text, found=response.text[:500])
    return RtolapError(text, found=response.text[:500])

"""Finds the coordinator that leads, from the answers: 307 and 503 name the leader, silence unseats it.

Applications have owners among the coordinators, found in the same way: who takes the requests about a subject
is remembered beside who leads.

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
    NotLeader,
    NotOwner,
    RtolapError,
    Unauthorized,
    Unavailable,
    from_dict,
)
from rtolap.protocols.rest.clients import service_url

SUBJECTS_MAX = 10_000  # as many are remembered; then the search begins again
_OTHERS = (NotLeader.code, NotOwner.code)


class LeaderFinder:
    """Shared by the synchronous and the asynchronous client. Thread-safe. `subject`: an application, or empty
    for what the leader answers."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = tuple(dict.fromkeys(map(service_url, urls)))
        if not self._urls:
            raise DefinitionError("no coordinator is named", expected="at least one URL")
        self._lock = threading.Lock()
        self._leaders: dict[str, str] = {}
        self._last_failure = "no answer yet"

    def attempts(self, subject: str = "") -> Iterator[str]:
        """Yield who is believed to take it first, then the others.

        One that is named on the way is next. Each comes once.
        """
        tried: set[str] = set()
        while True:
            with self._lock:
                believed = self._leaders.get(subject)
            candidates = (*((believed,) if believed else ()), *self._urls)
            url = next((url for url in candidates if url not in tried), None)
            if url is None:
                return
            tried.add(url)
            yield url

    @contextmanager
    def asking(self, url: str, subject: str = "") -> Iterator[None]:
        """Make one attempt. Silence at the address, or an impostor, is noted, and the next address
        follows."""
        try:
            yield
        except (httpx.TransportError, Impostor) as error:
            self.failed(url, error, subject)

    def failed(self, url: str, error: Exception, subject: str = "") -> None:
        with self._lock:
            self._last_failure = f"{url}: {error or type(error).__name__}"
            if self._leaders.get(subject) == url:
                del self._leaders[subject]

    def answered(self, url: str, response: httpx.Response, subject: str = "") -> bool:
        """Return True if this is the answer of who takes the subject. Raises the error that is answered."""
        if response.status_code == httpx.codes.TEMPORARY_REDIRECT:
            target = urlsplit(response.headers.get("location", ""))
            named = f"{target.scheme}://{target.netloc}"
            self._named(subject, url, named, "a leader or owner that does not answer")
            return False
        if response.is_success:
            self._remember(subject, url)
            return True
        payload = _payload(response)
        if payload.get("code") in _OTHERS:
            leader = payload.get("leader_url")
            self._named(
                subject, url, str(leader).rstrip("/") if leader else None, str(payload.get("message"))
            )
            return False
        raise _error(response, payload)

    def _named(self, subject: str, by: str, leader: str | None, failure: str) -> None:
        """Try `leader` next, if it is one of ours. `failure` says what is wrong when nobody responds."""
        known = leader is None or leader in self._urls
        self._remember(subject, leader if known else None)
        with self._lock:
            self._last_failure = (
                f"{by}: {failure}"
                if known
                else f"{by} names {leader} as {'owner' if subject else 'leader'}, which is not configured"
            )

    def _remember(self, subject: str, url: str | None) -> None:
        with self._lock:
            if len(self._leaders) >= SUBJECTS_MAX:
                self._leaders.clear()
            if url is None:
                self._leaders.pop(subject, None)
            else:
                self._leaders[subject] = url

    def nobody(self, request: str) -> Unavailable:
        with self._lock:
            return Unavailable(
                f"no coordinator took {request}",
                expected=f"a leader or owner among {', '.join(self._urls)}",
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

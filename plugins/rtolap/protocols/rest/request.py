"""A request to a coordinator as a value, and the way to read its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, ParamSpec, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError
from tenacity import retry_if_exception_type, wait_exponential_jitter

from rtolap.base.errors import CommitConflict, CommitUnknown, SessionLost, Unavailable
from rtolap.protocols.rest.error_responses import unreadable
from rtolap.protocols.rest.messages import API
from rtolap.protocols.rest.request_ids import HEADER, new_request_id

P = ParamSpec("P")
T = TypeVar("T")
Body = dict[str, object] | None

RETRY_S = 20.0  # longer than a session time-out plus an election
TIMEOUT_S = 10.0
PASSING = retry_if_exception_type((Unavailable, SessionLost, CommitUnknown, CommitConflict))
_reader: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)  # one is costly to make
PAUSE = wait_exponential_jitter(initial=0.1, max=1.0, jitter=0.1)


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request to a coordinator.

    Attributes:
        answer: the type of what is answered.
        once: True if the request is not repeated when nobody leads, because the next one follows anyway.
        request_id: identifies a request that must not take effect twice, over all of its repetitions.
        subject: the application whose owner takes the request; empty: the leader takes it.
    """

    method: str
    path: str
    answer: type[T]
    body: Body = None
    params: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    timeout_s: float | None = None
    request_id: str | None = None
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def request_at(self, url: str) -> dict[str, Any]:
        """Return the arguments of an httpx client's `request`. `url`: of a coordinator."""
        timeout = httpx.USE_CLIENT_DEFAULT if self.timeout_s is None else self.timeout_s
        return {
            "method": self.method,
            "url": url + self.path,
            "json": self.body,
            "params": self.params,
            "headers": {} if self.request_id is None else {HEADER: self.request_id},
            "timeout": timeout,
        }

    def read(self, response: httpx.Response) -> T:
        try:
            found: T = _reader(self.answer).validate_json(response.content)
            return found
        except ValidationError as error:
            raise unreadable(response, error, "coordinator") from error


def path(*parts: str) -> str:
    return API + "/" + "/".join(quote(part, safe="") for part in parts)


def get(answer: type[T], *parts: str, params: Mapping[str, object] = {}) -> Call[T]:
    """Return a call that reads. `params` that are None are left out."""
    given = {name: str(value) for name, value in params.items() if value is not None}
    return Call("GET", path(*parts), answer, params=given)


def post(answer: type[T], *parts: str, body: Body = None) -> Call[T]:
    return Call("POST", path(*parts), answer, body)


def delete(answer: type[T], *parts: str) -> Call[T]:
    """Return a call that deletes what may be recreated before the response is known: it carries an id."""
    return Call("DELETE", path(*parts), answer, request_id=new_request_id())


class Method(Generic[P, T]):
    """A call as a method of a client: subclasses say how it is sent."""

    def __init__(self, make: Callable[P, Call[T]]) -> None:
        self.make = make
        self.__doc__ = make.__doc__


def headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}

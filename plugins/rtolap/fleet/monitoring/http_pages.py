"""Answers over HTTP, bounded in bytes and in time: a source that drips must not hold up a look."""

from __future__ import annotations

import time

import httpx

from rtolap.base.errors import Unavailable


def read_page(
    http: httpx.Client,
    method: str,
    url: str,
    *,
    content: bytes | None = None,
    bytes_max: int,
    timeout_s: float,
) -> bytes:
    """Raises Unavailable, which says why without the URL's own text."""
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

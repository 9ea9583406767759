"""HTTP clients of the product's own services.

They send the ids of requests and the parent of spans (see `base.ids` and `base.spans`), and follow no proxy
of the environment: services of a cluster reach each other directly. A proxy on the way out of the network
does not know their addresses, and would see their tokens. Threads may share a client.

Clients of what is not rtolap's, such as a schema registry, say by `trust_env` whether they follow it.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

import httpx

from rtolap.base.addresses import http_url, without_credentials
from rtolap.base.errors import DefinitionError
from rtolap.base.spans import sent_headers
from rtolap.base.tls import trust

SHARED_BY_THREADS: Final = httpx.Limits(
    max_connections=None, max_keepalive_connections=None, keepalive_expiry=None
)
"""Connection limits that let threads share an HTTP client.

httpx keeps 20 idle connections by default, each for 5 seconds. The code that closes the others (httpcore 1.0)
may close a connection that another thread was just given, so that thread meets "bad file descriptor". Without
these limits a connection is closed by its server only, and there are at most as many as threads.
"""


def service_url(url: str, what: str = "a service") -> str:
    """Return the base URL without a slash at its end. Raises DefinitionError for what nobody can ask."""
    try:
        return http_url(url)
    except ValueError:
        raise DefinitionError(
            f"not the address of {what}",
            expected="http(s)://host:port, without credentials",
            found=repr(without_credentials(url)),
        ) from None


def service_client(*, verify: ssl.SSLContext | None = None, **options: Any) -> httpx.Client:
    """Return a client of a service.

    Args:
        verify: whom it trusts; None: the system's authorities.
        options: further ones of `httpx.Client`.
    """
    return httpx.Client(event_hooks={"request": [_send]}, **_direct(verify), **options)


def async_service_client(*, verify: ssl.SSLContext | None = None, **options: Any) -> httpx.AsyncClient:
    """Return what `service_client` returns, for an event loop."""
    return httpx.AsyncClient(event_hooks={"request": [_send_async]}, **_direct(verify), **options)


def beginning_of(response: httpx.Response, bytes_min: int) -> bytes:
    """Return what comes, up to the piece with which there are so many bytes."""
    taken = bytearray()
    for piece in response.iter_bytes():
        taken += piece
        if len(taken) >= bytes_min:
            break
    return bytes(taken)


def _direct(verify: ssl.SSLContext | None) -> dict[str, Any]:
    return {"trust_env": False, "limits": SHARED_BY_THREADS, "verify": verify or trust(None)}


def _send(request: httpx.Request) -> None:
    request.headers.update(sent_headers())


async def _send_async(request: httpx.Request) -> None:
    _send(request)

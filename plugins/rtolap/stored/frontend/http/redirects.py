"""The address to which a front end that is not master redirects, and whether it carries the credentials.

A client of HTTP/1.1 sends its credentials to the other address again, or is set to (`--location-trusted`
of curl). One of HTTP/1.0 cannot be. Doris' front end writes user and password into the address of every
redirect; here that is done for HTTP/1.0 only, because addresses are written into logs.
"""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from fastapi import Request

from rtolap.base.users import basic_credentials


def location(request: Request, base_url: str) -> str:
    """The same path and query below another base URL. For a request whose credentials have been checked."""
    path = request.scope["raw_path"].decode("ascii")
    query = urlsplit(str(request.url)).query
    return f"{_with_credentials(request, base_url)}{path}{'?' + query if query else ''}"


def _with_credentials(request: Request, base_url: str) -> str:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if request.scope.get("http_version") != "1.0" or scheme.lower() != "basic":
        return base_url
    name, password = (quote(each, safe="") for each in basic_credentials(value.strip()))
    kind, _, host_and_path = base_url.partition("://")
    return f"{kind}://{name}:{password}@{host_and_path}"

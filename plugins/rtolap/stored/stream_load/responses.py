"""Responses of whoever takes bodies: errors, and redirects with their addresses."""

from __future__ import annotations

import logging
from urllib.parse import quote, urlsplit

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from rtolap.base.errors import Forbidden, RtolapError, Unauthorized
from rtolap.base.users import basic_credentials

log = logging.getLogger(__name__)

API = "/api/v1/"


def error_response(request: Request, error: RtolapError) -> Response:
    """Return the response that states an error."""
    if error.http_status >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, error)
    headers = {}
    if isinstance(error, Unauthorized):
        own_path = request.url.path.startswith(API)
        headers = {"WWW-Authenticate": "Bearer" if own_path else 'Basic realm="rtolap"'}
    if isinstance(error, Unauthorized | Forbidden) and expects(request):
        headers["Connection"] = "close"
    return JSONResponse({**error.to_dict(), "msg": str(error)}, error.http_status, headers=headers)


def redirect(request: Request, base_url: str) -> Response:
    """Return a redirect to another base URL. A client that waits for a 100 may send its body or not."""
    ending = {"Connection": "close"} if expects(request) else {}
    return Response(status_code=307, headers={"Location": location(request, base_url), **ending})


def expects(request: Request) -> bool:
    """Return True if the client waits for a 100. If it gets something else, it may send the body or not: it
    cannot be known what comes next on the connection. A client that does not wait sends it, and the server
    throws it away.
    """
    return "expect" in request.headers


def location(request: Request, base_url: str) -> str:
    """Return the address to which a front end that is not master redirects: same path and query, another base
    URL.

    For a request whose credentials have been checked.

    A client of HTTP/1.1 sends its credentials to the other address again, or is set to (`--location-trusted`
    of curl). One of HTTP/1.0 cannot be. Doris' front end writes user and password into the address of every
    redirect; here that is done for HTTP/1.0 only, because addresses are written into logs.
    """
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

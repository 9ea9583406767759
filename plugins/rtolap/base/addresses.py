"""A host and a port as one text, `host:port`: IPv6 addresses stand in brackets there, as in URLs (RFC 3986,
section 3.2.2). Pure.

`Host`, `Port`, `Servers` and `Urls` are types of settings, which refuse what names nothing.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

PORT_MAX = (1 << 16) - 1
_ANY_PORT = 7070


def bracketed(host: str) -> str:
    """Return a host as URLs have it: an IPv6 address gets brackets, unless it has them."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def host_port(host: str, port: int) -> str:
    """Return `host:port`, or `[host]:port` for an IPv6 address."""
    return f"{bracketed(host)}:{port}"


def split_host_port(address: str, default_port: int | None = None) -> tuple[str, int]:
    """Return the host, without brackets, and the port of `host:port`.

    An address without a port gets `default_port`; an IPv6 address has to be in brackets. Raises ValueError,
    which says what the address is not.
    """
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, "" if default_port is None else str(default_port)
    is_v6 = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if is_v6 else host
    if not bare or (":" in bare) != is_v6 or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
        raise ValueError(f"not host:port, with an IPv6 address in brackets: {without_credentials(address)!r}")
    return bare, int(port)


def is_unspecified(host: str) -> bool:
    """Return True for 0.0.0.0 and ::, on which a server listens and where nobody finds it."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False  # a name


def callable_host(host: str) -> str:
    """Return the host at which this machine calls what listens at `host`: a loopback address for 0.0.0.0 and
    ::, itself for any other."""
    if not is_unspecified(host):
        return host
    return "::1" if ipaddress.ip_address(host).version == 6 else "127.0.0.1"


def plain_host(text: str) -> str:
    """Return a host as sockets take it, without the brackets of a URL. Empty stays empty.

    Raises ValueError for what is no host: an address with a port, a URL, an IPv6 address with a zone.
    """
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        if ":" in bare and "%" not in bare:
            return str(ipaddress.IPv6Address(bare))
    except ValueError:
        bare = ":"
    if any(letter in "/@:[]%?#," or letter.isspace() for letter in bare):
        shown = without_credentials(text)
        raise ValueError(f"expected a host name or an IP address, without port and zone; found {shown!r}")
    return bare


def checked_servers(text: str) -> str:
    """Return servers as they stand: host or host:port, comma-separated, and maybe a path behind the last.

    Raises ValueError.
    """
    for server in text.partition("/")[0].split(","):
        split_host_port(server.strip(), _ANY_PORT)
    return text


def checked_urls(text: str) -> str:
    """Return base URLs of http or https as they stand, comma-separated, or none. Raises ValueError."""
    for url in filter(None, map(str.strip, text.split(","))):
        http_url(url)
    return text


def without_credentials(url: str) -> str:
    """Return what may be shown of a text that is, or was meant as, a URL."""
    return url.rpartition("@")[2]


def http_url(text: str) -> str:
    """Return a base URL of http or https, without a slash at its end.

    Raises ValueError for what no client can ask, and for credentials, which errors and logs would show.
    """
    url = text.strip().rstrip("/")
    parts = urlsplit(url)
    sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    if not sound or "@" in parts.netloc or any(letter.isspace() for letter in url):
        raise ValueError(f"not http(s)://host:port, without credentials: {without_credentials(url)!r}")
    return url


Host = Annotated[str, AfterValidator(plain_host)]
Port = Annotated[int, Field(ge=0, le=PORT_MAX)]  # 0: any free one
Servers = Annotated[str, AfterValidator(checked_servers)]
Urls = Annotated[str, AfterValidator(checked_urls)]

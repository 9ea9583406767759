"""Declared backends of a server: `host`, `host:port`, `*.domain` or a network. Pure."""

from __future__ import annotations

import fnmatch
import ipaddress

from rtolap.base.errors import DefinitionError


def check_backend(pattern: str) -> None:
    """Raises DefinitionError for a pattern that names no backend."""
    if "/" in pattern:
        try:
            ipaddress.ip_network(pattern)
        except ValueError as error:
            raise DefinitionError(
                "not a network of backends", expected="10.0.0.0/8", found=f"{pattern!r}: {error}"
            ) from error
        return
    host, port = _split(pattern)
    if not host or host == "*" or "@" in host or (port is not None and not 0 < port < 1 << 16):
        expected = "host, host:port, *.domain or a network"
        raise DefinitionError("not a backend", expected=expected, found=repr(pattern))


def is_backend(pattern: str, host: str, port: int) -> bool:
    """Return True if the pattern names this host, in lower case, and this port."""
    if "/" in pattern:
        try:
            return ipaddress.ip_address(host) in ipaddress.ip_network(pattern)
        except ValueError:
            return False  # a name: only addresses are in a network
    wanted, wanted_port = _split(pattern)
    return fnmatch.fnmatchcase(host, wanted.lower()) and wanted_port in (None, port)


def _split(pattern: str) -> tuple[str, int | None]:
    """Return host and port; an IPv6 host stands in brackets."""
    host, colon, port = pattern.rpartition(":")
    if not colon or pattern.endswith("]"):
        return pattern.strip("[]"), None
    return host.strip("[]"), int(port) if port.isdecimal() else 0

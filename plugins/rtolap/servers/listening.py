"""The sockets on which servers listen: one for each address of a host, all at one port."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from rtolap.base.addresses import host_port
from rtolap.base.errors import Unavailable

BACKLOG = 2048
_TRIES = 16


def listening_sockets(what: str, host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of `host`. Port 0 takes a free one, the same for all addresses.

    Raises Unavailable, which says that `what` cannot be served.
    """
    try:
        infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = [(info[0], info[4]) for info in infos]
        for _ in range(_TRIES - 1):
            try:
                return _bound(addresses, port)
            except OSError as error:
                if port or error.errno != errno.EADDRINUSE:
                    raise
        return _bound(addresses, port)
    except OSError as error:
        raise Unavailable(
            f"{what} cannot be served on {host_port(host, port)}",
            found=error.strerror,
            action="take another port",
        ) from error


def _bound(
    addresses: Sequence[tuple[socket.AddressFamily, tuple[object, ...]]], port: int
) -> list[socket.socket]:
    """Bind all addresses. A free port that one address gives may be taken at another."""
    sockets: list[socket.socket] = []
    try:
        for family, (address, _, *scope) in dict.fromkeys(addresses):
            sock = socket.socket(family)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address, port, *scope))
            sock.listen(BACKLOG)
            port = sock.getsockname()[1]
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets

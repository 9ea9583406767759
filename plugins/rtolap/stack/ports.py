"""Ports on loopback."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Mapping

# Below the range that Linux gives to outgoing connections (32768 and up), so that a server which is
# restarted on its port does not find it taken by a client socket.
_FIRST, _LAST = 15_000, 32_000
_TRIES = 1_000


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return True if a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(taken: Collection[int] = ()) -> int:
    """A port on which nothing listens, not among `taken`."""
    source = random.SystemRandom()
    for _ in range(_TRIES):
        port = source.randrange(_FIRST, _LAST)
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free port found between {_FIRST} and {_LAST} in {_TRIES} tries")


def choose_port(preferred: int, taken: Collection[int] = ()) -> int:
    """The preferred port when it is free, another free one otherwise."""
    if preferred not in taken and is_free(preferred):
        return preferred
    return free_port(taken)


def choose_ports(preferred: Mapping[str, int], taken: Collection[int]) -> dict[str, int]:
    """By name: each its preferred port where it is free and nobody else's, another one otherwise."""
    chosen: dict[str, int] = {}
    for name, port in preferred.items():
        chosen[name] = choose_port(port, {*taken, *chosen.values()})
    return chosen

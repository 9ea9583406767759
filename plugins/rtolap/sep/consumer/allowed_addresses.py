"""Addresses that may connect: HBase without Kerberos shows no credentials, so a consumer goes by them.

Addresses are declared, as IP addresses, networks (`10.1.0.0/16`) or host names, or listed by a callable: the
region servers of the source's ZooKeeper. They are looked up again from time to time, and when an unknown
client knocks, for it may be a region server that has just started.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import time
from collections.abc import Callable, Iterable
from typing import Final

from rtolap.base.errors import DefinitionError, RtolapError

log = logging.getLogger(__name__)

_REFRESH_PAUSE_S: Final = 1.0  # unknown clients cause no more look-ups than this

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AllowedAddresses:
    """The addresses that may connect, for one event loop. A failed look-up leaves them as they were.

    `read` returns addresses, networks and host names.
    """

    def __init__(self, read: Callable[[], Iterable[str]], *, refresh_s: float = 30.0) -> None:
        self._read = read
        self._refresh_s = refresh_s
        self._networks: frozenset[Network] = frozenset()
        self._refreshing: asyncio.Task[None] | None = None
        self._looked_up_s = -float("inf")
        self.failures = 0

    def allows(self, address: str) -> bool:
        """Answer by what was looked up last."""
        parsed = _address(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    async def admits(self, address: str) -> bool:
        """Look up again, unless that was done just now, before the address is turned away."""
        if self.allows(address):
            return True
        if time.monotonic() - self._looked_up_s < _REFRESH_PAUSE_S and self._refreshing is None:
            return False
        await self.refresh()
        return self.allows(address)

    async def refresh(self) -> None:
        """Look up once; callers that come meanwhile share the result."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._look_up())
        await asyncio.shield(self._refreshing)

    async def keep_fresh(self) -> None:
        """Look up again and again, until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._refresh_s)

    async def _look_up(self) -> None:
        try:
            self._networks = await asyncio.to_thread(self._networks_of)
        except (RtolapError, OSError) as error:
            self.failures += 1
            log.warning("who may connect could not be looked up; the last answer counts on: %s", error)
        except Exception:  # whatever it was, who is known stays known, and it is tried again
            self.failures += 1
            log.exception("who may connect could not be looked up; the last answer counts on")
        finally:
            self._looked_up_s = time.monotonic()
            self._refreshing = None

    def _networks_of(self) -> frozenset[Network]:
        return frozenset(network for text in self._read() for network in networks_of(text))


def networks_of(text: str) -> list[Network]:
    """Look up a declared address; a host name that cannot be resolved has none.

    DefinitionError: it is a network with bits behind its mask.
    """
    try:
        return [ipaddress.ip_network(text)]
    except ValueError as error:
        if "/" in text:
            raise DefinitionError(
                "an allowed address is no network", expected="as 10.1.0.0/16", found=text
            ) from error
    try:
        answers = socket.getaddrinfo(text, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        log.warning("the allowed host %s cannot be resolved: %s", text, error)
        return []
    addresses = {_address(str(answer[4][0])) for answer in answers}
    return [ipaddress.ip_network(address) for address in addresses if address is not None]


def _address(text: str) -> Address | None:
    """Parse the address of a socket; IPv4 within IPv6 is IPv4. None: a socket without addresses."""
    try:
        parsed = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed

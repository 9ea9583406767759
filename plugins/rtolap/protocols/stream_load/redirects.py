"""The policy for redirects: to which address a request goes on, and its credentials with it. Pure.

A front end redirects a load to a backend. The credentials go along, because the backend asks for them. So:

    from TLS to TLS         followed: the certificate is checked there too
    from TLS to plain       only to a declared backend
    from plain              followed; once backends are declared, a plain one has to be among them
    to a declared backend   in plain, whatever scheme the front end names: some versions of Doris name their
                            own scheme, and their backends speak plain HTTP only
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from rtolap.base.addresses import host_port
from rtolap.base.errors import Forbidden, Refused
from rtolap.model.backend_hosts import check_backend, is_backend

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class PlainBackends:
    """The declared backends that speak plain HTTP: `host`, `host:port`, `*.domain`, or a network.

    `ours`: the configured front ends, which may redirect to each other in plain where they are plain.
    """

    patterns: tuple[str, ...] = ()
    ours: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            check_backend(pattern)

    def has(self, host: str, port: int) -> bool:
        return any(is_backend(pattern, host, port) for pattern in self.patterns)

    def next_url(self, url: str, location: str) -> str:
        """Return the URL of a redirect, without the credentials that some servers put there.

        Raises Refused for a redirect that leads nowhere, Forbidden where the policy lets none go.
        """
        try:
            target = urlsplit(urljoin(url, location))
            host, port = target.hostname or "", target.port or _PORTS.get(target.scheme, 0)
        except ValueError:
            raise _nowhere(location) from None
        if not location or target.scheme not in _PORTS or not host:
            raise _nowhere(location)
        bare = target._replace(netloc=target.netloc.rpartition("@")[2])
        if self.has(host, port):
            return urlunsplit(bare._replace(scheme="http", netloc=_netloc(bare, port)))
        leaves_tls = urlsplit(url).scheme == "https"
        if (
            target.scheme == "http"
            and (leaves_tls or self.patterns)
            and bare.netloc not in self._plain_ours()
        ):
            raise Forbidden(
                "a redirect would send the credentials in plain",
                expected="https, or a backend of `sink.backends.plain`",
                found=host_port(host, port),
                action="declare the backend if the network to it is trusted, or give backends a TLS proxy",
            )
        return urlunsplit(bare)

    def _plain_ours(self) -> frozenset[str]:
        return frozenset(urlsplit(url).netloc for url in self.ours if url.startswith("http://"))


def _netloc(target: SplitResult, port: int) -> str:
    return host_port(target.hostname or "", port)


def _nowhere(location: str) -> Refused:
    return Refused("a redirect that leads nowhere", found=repr(location.rpartition("@")[2][:200]))

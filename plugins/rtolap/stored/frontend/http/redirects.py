"""The policy for redirects of loads: to this front end's own port for bodies, or to storage nodes in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

from rtolap.stored.frontend.election import Endpoint

RedirectPolicy = Literal["none", "nodes"]


class BodyRedirects:
    """Addresses that take bodies. Thread-safe.

    `none` sends loads to this front end's own port. `nodes` sends them to the living nodes that take bodies,
    in turn; to the own port where there is none.

    Args:
        node_urls: returns the base URLs of living nodes that take bodies.
    """

    def __init__(
        self, policy: RedirectPolicy, here: Endpoint, node_urls: Callable[[], tuple[str, ...]]
    ) -> None:
        self._policy, self._here, self._node_urls = policy, here, node_urls
        self._turn = itertools.count()

    def urls(self) -> tuple[str, ...]:
        """Return all addresses to which loads are redirected."""
        nodes = self._node_urls() if self._policy == "nodes" else ()
        return nodes or (self._here.body_url,)

    def next_url(self) -> str:
        urls = self.urls()
        return urls[next(self._turn) % len(urls)]

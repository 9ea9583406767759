"""A quick look whether the leader can be reached, so that no client is redirected to a dead address."""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

PROBE_S = 0.5


class LeaderProbe:
    """A probe of the leader's port, made before a request is sent there; remembered for a second."""

    def __init__(self) -> None:
        self._last: tuple[str, bool, float] = ("", False, 0.0)

    def reachable(self, url: str) -> bool:
        known, answer, until_s = self._last
        if known == url and time.monotonic() < until_s:
            return answer
        parts = urlsplit(url)
        try:
            socket.create_connection((parts.hostname or "", parts.port or 80), timeout=PROBE_S).close()
            answer = True
        except OSError:
            answer = False
        self._last = (url, answer, time.monotonic() + 1.0)
        return answer

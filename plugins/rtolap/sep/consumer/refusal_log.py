"""The log of refused clients: a line for each, until there are too many; all of them are in the metrics."""

from __future__ import annotations

import logging
import time
from typing import Final

log = logging.getLogger(__name__)

_LINES_MAX: Final = 20
_PERIOD_S: Final = 60.0


class RefusalLog:
    """Writes at most 20 lines a minute, and then how many were left out."""

    def __init__(self) -> None:
        self._since_s = time.monotonic()
        self._lines = 0

    def refused(self, address: str, reason: object) -> None:
        now_s = time.monotonic()
        if now_s - self._since_s >= _PERIOD_S:
            if self._lines > _LINES_MAX:
                log.warning("%d more clients were refused", self._lines - _LINES_MAX)
            self._since_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines <= _LINES_MAX:
            log.warning("%s is refused: %s", address, reason)

"""Unhandled errors of servers in this process: those logged with their traceback, and threads that died."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Handler(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None or record.levelno >= logging.ERROR:
            self.said.append(logging.Formatter().format(record))


@contextmanager
def unhandled_errors() -> Iterator[list[str]]:
    """Yield a list that grows with each unhandled error."""
    handler, hook = _Handler(), threading.excepthook
    loggers = [logging.getLogger(name) for name in ("", "uvicorn", "uvicorn.error")]
    threading.excepthook = lambda found: handler.said.append(f"{found.thread}: {found.exc_value!r}")
    taking = [one for one in loggers if one.name == "root" or not one.propagate]
    for one in taking:
        one.addHandler(handler)
    try:
        yield handler.said
    finally:
        threading.excepthook = hook
        for one in taking:
            one.removeHandler(handler)

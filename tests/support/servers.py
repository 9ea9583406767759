"""Servers that run while a test or a module of tests does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rtolap.stack.process import ManagedProcess
from rtolap.stack.spec import ProcessSpec


@contextmanager
def running(spec: ProcessSpec) -> Iterator[ManagedProcess]:
    server = ManagedProcess(spec)
    try:
        server.start()
        yield server
    finally:
        server.stop()

"""Ends statements whose clients went away: one thread watches the sockets of all statements that run.

A thread a statement costs a third of what a small statement takes.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rtolap.base.closeable import Closeable
from rtolap.query.cancel import Cancellation

log = logging.getLogger(__name__)


class ClientWatch(Closeable):
    """A watch over clients, which runs from its creation until `close`. It is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoll = select.epoll()
        self._watched: dict[int, Cancellation] = {}  # descriptor -> its statement
        self._wake = os.eventfd(0)
        self._closed = False
        self._epoll.register(self._wake, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="client-watch", daemon=True)
        self._thread.start()

    @contextmanager
    def watch(self, sock: socket.socket, cancellation: Cancellation) -> Iterator[None]:
        """Cancel the statement when the socket's other end is closed while the block runs."""
        descriptor = sock.fileno()
        with self._lock:
            is_watched = not self._closed and descriptor >= 0
            if is_watched:
                self._watched[descriptor] = cancellation
                self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLONESHOT)
        try:
            yield
        finally:
            with self._lock:
                if self._watched.pop(descriptor, None) is not None:
                    self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Stop watching, also for statements that still run."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for descriptor in self._watched:
                self._epoll.unregister(descriptor)
            self._watched.clear()
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        self._epoll.close()
        os.close(self._wake)

    def _run(self) -> None:
        while not self._closed:
            for descriptor, _ in self._epoll.poll():
                # Under the lock, so that no statement is cancelled by the end of another one's descriptor.
                with self._lock:
                    cancellation = self._watched.get(descriptor)
                if cancellation is None:
                    continue
                try:
                    cancellation.cancel("the client went away")
                except Exception:  # one statement's error must not end the watch of all others
                    log.exception("a statement could not be ended")

"""Interrupts a query whose client has closed its side of the socket."""

from __future__ import annotations

import select
import socket
import threading

from rtolap.query.cancel import Cancellation

POLL_MS = 200  # how often a running query looks whether its client is still there
_POLLRDHUP = getattr(select, "POLLRDHUP", 0x2000)


class ClientWatch:
    """Watches from its creation until `stop`, in a thread of its own."""

    def __init__(self, sock: socket.socket, cancellation: Cancellation) -> None:
        self._over = threading.Event()
        self._poll = select.poll()
        self._poll.register(sock.fileno(), _POLLRDHUP)
        self._cancellation = cancellation
        self._thread = threading.Thread(target=self._run, name="client-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            if self._poll.poll(POLL_MS) and not self._over.is_set():
                self._cancellation.cancel("the client went away")
                return

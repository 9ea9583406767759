"""A listener of a process that has no descriptors left, for a while."""

from __future__ import annotations

import errno
import socket
from typing import Any


class ExhaustedListener(socket.socket):
    """Fails `failures` times to accept; a client that connects meanwhile waits."""

    failures = 3

    def accept(self) -> tuple[socket.socket, Any]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()

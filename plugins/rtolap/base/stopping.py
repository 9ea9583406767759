"""Waiting in the main thread for what a signal sets."""

from __future__ import annotations

import threading

AWAKE_EVERY_S = 0.5


def wait_awake(event: threading.Event) -> None:
    """Until it is set; for the main thread.

    The system may hand a signal to any thread, and Python runs its handler in the main thread once that wakes
    up. One that waits without end does not: a busy process has been deaf to SIGTERM like that.
    """
    while not event.wait(AWAKE_EVERY_S):
        pass

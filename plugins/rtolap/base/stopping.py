"""The end of a process by a signal, for its main thread."""

from __future__ import annotations

import signal
import threading

AWAKE_EVERY_S = 0.5


def stop_event() -> threading.Event:
    """Set by SIGTERM and SIGINT from now on."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def wait_awake(event: threading.Event) -> None:
    """Wait until it is set.

    The system may hand a signal to any thread, and Python runs its handler in the main thread once that
    wakes up. A thread that waits without end does not wake up: a busy process has ignored SIGTERM for that
    reason.
    """
    while not event.wait(AWAKE_EVERY_S):
        pass

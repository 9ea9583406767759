"""What the commands that run a service have in common: settings, logging, the end by a signal."""

from __future__ import annotations

import logging
import signal
import threading

from rtolap.base.settings import Settings


def service_settings() -> Settings:
    """Those of the environment, and logging at their level."""
    settings = Settings()
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return settings


def stop_event() -> threading.Event:
    """Set by SIGTERM and SIGINT from now on. For the main thread."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping

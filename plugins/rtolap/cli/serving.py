"""What the commands that run a service have in common: settings, logging, the end by a signal."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import NoReturn

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


def end_now() -> NoReturn:
    """End the process although calls of its door are still open; all that it keeps is closed already."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

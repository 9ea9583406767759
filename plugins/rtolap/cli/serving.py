"""Common parts of the commands that run a service: settings, logging, the end."""

from __future__ import annotations

import logging
import os
import sys

from rtolap.base.files import PRIVATE
from rtolap.base.settings import Settings

SWITCH_S = 0.0005


def service_settings() -> Settings:
    """Return the settings of the environment, and configure logging at their level.

    Files that the process writes are readable by its user alone.
    """
    os.umask(PRIVATE)
    settings = Settings()
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return settings


def switch_often() -> None:
    """Let threads that answer have the interpreter soon while others compute: a small call over Flight waits
    for it some six times, by default up to 5 ms each."""
    sys.setswitchinterval(SWITCH_S)

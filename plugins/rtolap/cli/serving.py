"""Common parts of the commands that run a service: settings, logging, the end."""

from __future__ import annotations

import os
import sys

from rtolap.base.files import PRIVATE
from rtolap.base.logs import write_logs
from rtolap.base.settings import Settings
from rtolap.base.spans import start_spans

SWITCH_S = 0.0005


def service_settings() -> Settings:
    """Return the settings of the environment, and configure logging at their level.

    Files that the process writes are readable by its user alone.
    """
    os.umask(PRIVATE)
    settings = Settings()
    write_logs(settings.log_level, settings.log_format)
    start_spans("-".join(("rtolap", *sys.argv[1:2])))
    return settings


def switch_often() -> None:
    """Let threads that answer have the interpreter soon while others compute: a small call over Flight waits
    for it some six times, by default up to 5 ms each."""
    sys.setswitchinterval(SWITCH_S)

"""Common parts of the commands that run a service or watch one: settings, logging, metrics."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from rtolap.base.addresses import PORT_MAX
from rtolap.base.errors import DefinitionError
from rtolap.base.files import PRIVATE
from rtolap.base.logs import write_logs
from rtolap.base.metrics import Metrics
from rtolap.base.settings import Settings
from rtolap.base.spans import start_spans
from rtolap.cli.output import success
from rtolap.servers.metrics_server import MetricsServer

T = TypeVar("T")
SWITCH_S = 0.0005
_ZONE_FOLDERS = (Path("/usr/share/zoneinfo"), Path("/usr/share/uclibc/zoneinfo"))  # where Arrow looks

FlightPortOption = Annotated[
    int | None, typer.Option(min=0, max=PORT_MAX, help="Flight port; 0 takes a free one.")
]
ServedMetricsPortOption = Annotated[
    int, typer.Option(min=0, max=PORT_MAX, help="Port of /metrics; 0 takes a free one.")
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(min=0, max=PORT_MAX, help="With --watch: port at which Prometheus reads the last look."),
]


def service_settings() -> Settings:
    """Return the settings of the environment, and configure logging at their level.

    Files that the process writes are readable by its user alone.
    """
    os.umask(PRIVATE)
    settings = Settings()
    require_time_zones()
    write_logs(settings.log_level, settings.log_format)
    start_spans("-".join(("rtolap", *sys.argv[1:2])))
    return settings


def require_time_zones(folders: Sequence[Path] = _ZONE_FOLDERS) -> None:
    """Raise DefinitionError on a machine without the database of time zones: Arrow has none of its own, and
    would fail with the first instant."""
    if not any((folder / "UTC").is_file() for folder in folders):
        raise DefinitionError(
            "this machine has no database of time zones",
            expected=f"the file UTC in {' or '.join(map(str, folders))}",
            action="install the system's package tzdata",
        )


def serve_gauges(opened: ExitStack, port: int, service: str, gauges_of: Callable[[Metrics], T]) -> T:
    """Return the gauges of a command that watches, and serve them at a port until `opened` is closed."""
    metrics = Metrics(service)
    gauges = gauges_of(metrics)
    server = MetricsServer.of_settings(metrics, Settings(), port)
    opened.callback(server.close)
    success(f"metrics at {server.url}")
    return gauges


def switch_often() -> None:
    """Let threads that answer have the interpreter soon while others compute: a small call over Flight waits
    for it some six times, by default up to 5 ms each."""
    sys.setswitchinterval(SWITCH_S)

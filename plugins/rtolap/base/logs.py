"""Lines of the services' logs: as text or as JSON, each with the ids of what it is about.

2026-03-01 12:00:00,123 INFO rtolap.stored.node: published 3 tablets [load=hits-7 transaction=41]
{"at": "2026-03-01T12:00:00.123+00:00", "level": "INFO", "logger": …, "message": …, "load": "hits-7", …}
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, TextIO

from rtolap.base.ids import ids

LogFormat = Literal["text", "json"]

_LEVEL, _FORMAT = "RTOLAP_LOG_LEVEL", "RTOLAP_LOG_FORMAT"
_RESERVED = frozenset({"at", "level", "logger", "message", "error"})


class TextLines(logging.Formatter):
    """Lines for people, with the ids behind the message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s%(ids)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        known = ids()
        record.ids = f" [{' '.join(f'{name}={value}' for name, value in known.items())}]" if known else ""
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """A JSON object a line, the ids as fields of their own."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in ids().items() if name not in _RESERVED}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class _StandardError(logging.StreamHandler[TextIO]):
    """A handler that writes to standard error as it is then: a driver that waits for jobs redirects it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # nobody sets it: see `__init__`
        return sys.stderr


def write_logs(level: str, log_format: LogFormat) -> None:
    """Have this process write its log to standard error, in that format."""
    handler = _StandardError()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(level=level, handlers=[handler])


def handed_over() -> dict[str, str]:
    """Return the environment by which a child process writes its log as this one does.

    It is empty in a process whose log somebody else writes, such as a task of Airflow's.
    """
    root = logging.getLogger()
    ours = [each.formatter for each in root.handlers if isinstance(each.formatter, TextLines | JsonLines)]
    if not ours:
        return {}
    log_format: LogFormat = "json" if isinstance(ours[0], JsonLines) else "text"
    return {_LEVEL: logging.getLevelName(root.level), _FORMAT: log_format}


def is_json(environment: Mapping[str, str]) -> bool:
    """Return True where the environment has a process write its log as JSON."""
    return environment.get(_FORMAT) == "json"


def write_logs_of_child(environment: Mapping[str, str]) -> None:
    """Have a child process write its log as its environment says: see `handed_over`.

    Repeated, it changes nothing.
    """
    level = environment.get(_LEVEL, "INFO").upper()
    known = level if level in logging.getLevelNamesMapping() else "INFO"  # its parent has checked it
    write_logs(known, "json" if is_json(environment) else "text")

"""Lines of the services' logs: as text or as JSON, each with the ids of what it is about.

2026-03-01 12:00:00,123 INFO rtolap.stored.node: published 3 tablets [load=hits-7 transaction=41]
{"at": "2026-03-01T12:00:00.123+00:00", "level": "INFO", "logger": …, "message": …, "load": "hits-7", …}
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Literal

from rtolap.base.ids import ids

LogFormat = Literal["text", "json"]

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


def write_logs(level: str, log_format: LogFormat) -> None:
    """Have this process write its log to standard error, in that format."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(level=level, handlers=[handler])

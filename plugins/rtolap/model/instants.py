"""Instants as people and DAGs write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from rtolap.base.errors import DefinitionError

_MILLISECONDS = re.compile(r"-?[0-9]+")


def instant_ms(value: str | int | datetime) -> int:
    """Return milliseconds since the epoch from ISO 8601 text (no zone means UTC), a datetime, or
    milliseconds.

    Raises DefinitionError for anything else.
    """
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        text = value.strip()
        if _MILLISECONDS.fullmatch(text):
            return int(text)
        try:
            value = datetime.fromisoformat(text)
        except ValueError as error:
            raise DefinitionError(
                "not an instant",
                expected="ISO 8601, as 2013-01-31 or 2013-01-31T10:00, or milliseconds since the epoch",
                found=repr(text),
            ) from error
    zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
    return round(zoned.timestamp() * 1000)


def utc_text(at_ms: int) -> str:
    """Return the instant for people, in whole seconds: 2026-01-31T12:00:00+00:00."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")

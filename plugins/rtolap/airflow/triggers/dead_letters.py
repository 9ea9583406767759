"""The event of a dead letter: the provider's trigger calls this for each record of the topic."""

from __future__ import annotations

from typing import Any

LETTER = "rtolap.airflow.triggers.dead_letters.letter"  # triggers name functions by their path


def letter(message: Any) -> dict[str, str]:
    """Return the topic that had the record, its place there, and why it was refused; never its value.

    `message` is Kafka's.
    """
    headers = {name: value for name, value in message.headers() or () if isinstance(value, bytes)}
    told = {
        name: headers[name].decode("utf-8", "replace")
        for name in ("topic", "partition", "offset", "reason", "detail")
        if name in headers
    }
    return {"letters": str(message.topic()), **told}

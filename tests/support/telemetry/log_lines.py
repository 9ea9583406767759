"""Lines of logs that other processes write, or were ended while they wrote."""

from __future__ import annotations

import json
from typing import Any


def json_lines(text: str) -> list[dict[str, Any]]:
    """Return the objects of those lines that are JSON. What has no end yet may be half a line."""
    whole = text.split("\n")[:-1]
    return [json.loads(line) for line in whole if line.startswith("{")]

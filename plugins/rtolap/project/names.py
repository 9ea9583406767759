"""Names of tables and columns that are close to what a topic or its records say."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rtolap.model.cube import TIME_UNITS

_NAME_CHARS_MAX = 60  # room for a number behind it


def plain_name(text: str, taken: Sequence[str] | dict[str, str]) -> str:
    """Return a name of the product's that is close to the text, and is not taken."""
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    name = re.sub(r"[^a-z0-9]+", "_", spread).strip("_")[:_NAME_CHARS_MAX].strip("_") or "column"
    if name[0].isdigit():
        name = f"n_{name}"
    reserved = {f"{unit}_start" for unit in TIME_UNITS}
    number, free = 2, name
    while free in taken or free in reserved:
        free = f"{name}_{number}"
        number += 1
    return free

"""Paths to values inside of others: `route.legs[0].from`, or `$.route.legs[0].from`, as JSONPath writes it.

A step is a name or the index of an array, `[0]`, as text.
"""

from __future__ import annotations

import re

_STEP = re.compile(r"([^\[\]]*)((?:\[\d{1,6}\])*)")
_INDEX = re.compile(r"\[\d+\]")


def path_steps(path: str) -> tuple[str, ...]:
    """Return the steps of a path. What is no path has an empty step."""
    steps: list[str] = []
    for part in path.removeprefix("$.").split("."):
        found = _STEP.fullmatch(part)
        if found is None:
            return ("",)
        steps += [found[1], *(f"[{int(index[1:-1])}]" for index in _INDEX.findall(found[2]))]
    return tuple(steps)


def index_of(step: str) -> int | None:
    """Return the index that a step is; None for a name."""
    return int(step[1:-1]) if step.startswith("[") else None


def path_text(steps: tuple[str, ...]) -> str:
    return ".".join(steps).replace(".[", "[")

"""Paths into JSON: `$`, `$.a.b`, `$.a[0]`, `$."a.b"`, `$['a']`. No wildcards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from rtolap.base.errors import DefinitionError

Step = str | int
_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]"'*\s]+)|\."(?P<quoted>[^"]+)"|\[(?P<index>\d{1,9})\]|\[(?P<mark>["'])(?P<key>.+?)(?P=mark)\]"""
)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def parse_path(text: str, header: str) -> tuple[Step, ...]:
    """Parse a path. Raises DefinitionError naming the header."""
    written = text.strip()
    steps: list[Step] = []
    at = 1
    while written[:1] == "$" and at < len(written):
        match = _STEP.match(written, at)
        if match is None:
            break
        index = match["index"]
        steps.append(int(index) if index else match["name"] or match["quoted"] or match["key"])
        at = match.end()
    if written[:1] != "$" or at < len(written):
        raise DefinitionError(f"header {header}", expected="a path such as $.a.b[0]", found=repr(text))
    return tuple(steps)


def pointer(steps: Sequence[Step]) -> str:
    """Return the path as RFC 6901 writes it, which the engine reads."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def raw_at(document: bytes, steps: Sequence[Step]) -> bytes | None:
    """Return the value at `steps` as it is written; None when there is none. msgspec.DecodeError: it is no
    JSON.
    """
    document_at = document
    for step in steps:
        try:
            if isinstance(step, int):
                items = _ITEMS.decode(document_at)
                part = items[step] if step < len(items) else None
            else:
                part = _FIELDS.decode(document_at).get(step)
        except msgspec.ValidationError:
            return None
        if part is None:
            return None
        document_at = bytes(part)
    return document_at


def value_at(value: Any, steps: Sequence[Step]) -> Any:
    """Return the same within what `json` has read; None when there is nothing."""
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value

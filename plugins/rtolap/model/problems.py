"""Problems of a definition: collected, so that a person sees all of them at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import msgspec

from rtolap.base.errors import DefinitionError

Key = tuple[str | int, ...]


class Problem(msgspec.Struct, frozen=True):
    """A problem of a definition.

    Attributes:
        key: the path to the wrong value: ("measures", 2, "column").
    """

    key: Key
    message: str
    expected: str = ""
    found: str = ""
    hint: str = ""
    line: int | None = None

    def text(self, where: str = "") -> str:
        """Return the problem as text: `include/cubes/flights.yaml:12: measures[2].column: …; expected …;
        found …; did you mean …?`"""
        parts = [self.message]
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.found:
            parts.append(f"found {self.found}")
        if self.hint:
            parts.append(self.hint)
        place = where if self.line is None else f"{where}:{self.line}"
        return ": ".join(part for part in (place, dotted(self.key), "; ".join(parts)) if part)


def bound_problems(key: Key, value: int, least: int, most: int | None = None) -> list[Problem]:
    if least <= value and (most is None or value <= most):
        return []
    expected = f"{least} or more" if most is None else f"{least} to {most}"
    return [Problem(key, "out of bounds", expected=expected, found=str(value))]


def unknown_name(key: Key, message: str, name: str, known: Iterable[str], expected: str = "") -> Problem:
    """Return the problem of a name that is none of those known, with the one that may be meant.

    Args:
        expected: what the name should be; empty for one of those known.
    """
    names = list(known)
    expected = expected or f"one of {', '.join(names)}"
    return Problem(key, message, expected=expected, found=repr(name), hint=did_you_mean(name, names))


def error_problem(error: DefinitionError, key: Key) -> Problem:
    """Return the problem that an error tells of."""
    expected, found, action = error.expected, error.found, error.action
    return Problem(
        key,
        error.message,
        expected="" if expected is None else str(expected),
        found="" if found is None else str(found),
        hint=action or "",
    )


def dotted(key: Key) -> str:
    text = ""
    for step in key:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def raise_all(subject: str, problems: Sequence[Problem]) -> None:
    """Raise a DefinitionError with a line for each problem; do nothing if there is none."""
    if not problems:
        return
    lines = [f"{subject}: {problem.text()}" for problem in problems]
    raise DefinitionError("\n".join(lines))

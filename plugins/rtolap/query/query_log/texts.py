"""Texts of statements without the values that are written in them."""

from __future__ import annotations

import re

TEXT_CHARACTERS_MAX = 4_096
_VALUE = re.compile(
    r"""(?P<value>\b[xXbBnN]?'(?:[^'\\]|\\.|'')*+'|'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")"""
    r"""|(?P<passed>`[^`]*+`)|(?P<comment>--[^\n]*+|\#[^\n]*+|/\*.*?\*/)"""
    r"""|(?P<open>['"`].*|/\*.*)|(?P<number>(?<![\w.])(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?\w*+)""",
    re.DOTALL,
)
_LIST = re.compile(r"\?(?:\s*+,\s*+\?)++")


def cut(text: str) -> str:
    """Return the beginning of a text, in at most TEXT_CHARACTERS_MAX characters."""
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[: TEXT_CHARACTERS_MAX - 1]}…"


def without_values(text: str) -> str:
    """Return the text with `?` in the place of each value, one for a whole list, and without comments.

    What follows a quote without an end is left out too: it may be a value of which the end is cut off.
    """

    def replaced(piece: re.Match[str]) -> str:
        if piece["passed"] is not None:
            return piece[0]
        return " " if piece["comment"] is not None else "?"

    return _LIST.sub("?, …", _VALUE.sub(replaced, text))

"""The shape of a statement: its text without the texts that it compares columns with.

`… WHERE country = 'de' AND page IN ('/a', '/b') …` has the literals `de`, `/a` and `/b`, and the text around
them is its shape. A literal is taken out only where the words around it leave no doubt that it is a whole
operand: behind a comparison or in a list of IN that has nothing but texts, and before the end of the
condition. Everything else, and each literal that could be a moment or a number, stays in the shape.

A text that this module does not read to the end (comments, other quotes, escapes) has no shape. Question
marks are operands by the same rule: the texts that a statement binds to them are literals of its shape too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

TEXT_CHARACTERS_MAX = 8_192  # longer statements are written by programs, mostly once
LITERALS_MAX = 64
_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<text>'[^'\\]*')"
    r"|(?P<name>`[^`\\]*`)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<number>\d[\w.]*)"
    r"|(?P<mark><=>|<=|>=|<>|!=|[-+*/%=<>(),.;])"
    r"|(?P<hole>\?)"
)
_COMPARISONS = frozenset(("=", "<>", "!=", "<", ">", "<=", ">="))
_ENDS = frozenset(("AND", "OR", "GROUP", "ORDER", "HAVING", "LIMIT", ")", ";", ""))
_OTHER_TYPE = re.compile(r"\W*\d+(\W|$)|\W*$")  # how a moment or a number begins; the empty text
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class StatementShape(NamedTuple):
    """The shape of one statement.

    Attributes:
        pieces: the text around the literals, one more than there are literals: what all statements of the
            shape have in common.
        literals: the literals' values, in the order of the text.
    """

    pieces: tuple[str, ...]
    literals: tuple[str, ...]

    def text(self, literals: Sequence[str]) -> str:
        """Return the statement of this shape with these literals, as many as it has."""
        parts = [self.pieces[0]]
        for literal, piece in zip(literals, self.pieces[1:], strict=True):
            parts += ("'", literal, "'", piece)
        return "".join(parts)


class _Token(NamedTuple):
    kind: str
    value: str  # words in capitals
    start: int
    end: int


def shape_of(text: str) -> StatementShape | None:
    """Return the shape of a statement; None where it has no literal to take out, or is not read to the
    end."""
    if len(text) > TEXT_CHARACTERS_MAX or "'" not in text:
        return None
    tokens = _tokens(text)
    if tokens is None or any(token.kind == "hole" for token in tokens):
        return None
    chosen = [tokens[place] for place in _operands(tokens)]
    if not chosen or len(chosen) > LITERALS_MAX:
        return None
    bounds = [0, *(bound for token in chosen for bound in (token.start, token.end)), len(text)]
    pieces = tuple(text[bounds[place] : bounds[place + 1]] for place in range(0, len(bounds), 2))
    return StatementShape(pieces, tuple(token.value for token in chosen))


def operands_of(text: str) -> tuple[bool, ...]:
    """Return, for each question mark of a statement, whether it is a whole operand; nothing where the text is
    not read to the end."""
    tokens = _tokens(text) if len(text) <= TEXT_CHARACTERS_MAX else None
    if tokens is None:
        return ()
    places = set(_operands(tokens))
    return tuple(place in places for place, token in enumerate(tokens) if token.kind == "hole")


def is_plain(value: str) -> bool:
    """Return True if the text is not read as a number or a moment, and has no characters that control."""
    return not _OTHER_TYPE.match(value) and not _CONTROL.search(value)


def _tokens(text: str) -> list[_Token] | None:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or text.startswith(("--", "/*"), at):
            return None
        kind, value = str(found.lastgroup), found.group()
        if kind == "text":
            tokens.append(_Token(kind, value[1:-1], at, found.end()))
        elif kind != "space":
            tokens.append(_Token(kind, value.upper() if kind == "word" else value, at, found.end()))
        at = found.end()
    return tokens


def _operands(tokens: Sequence[_Token]) -> list[int]:
    """Return the places of the literals that are whole operands of a comparison or of an IN."""
    places: list[int] = []
    for place, token in enumerate(tokens):
        if token.kind == "mark" and token.value in _COMPARISONS:
            if _is_plain(tokens, place + 1) and _value(tokens, place + 2) in _ENDS:
                places.append(place + 1)
        elif token.kind == "word" and token.value == "IN" and _value(tokens, place + 1) == "(":
            places += _listed(tokens, place + 2)
    return places


def _listed(tokens: Sequence[_Token], first: int) -> list[int]:
    """Return the places of the literals of a list that begins there; none where it has anything else."""
    places: list[int] = []
    place = first
    while _is_plain(tokens, place):
        places.append(place)
        if _value(tokens, place + 1) != ",":
            break
        place += 2
    ended = bool(places) and _value(tokens, places[-1] + 1) == ")" and _value(tokens, places[-1] + 2) in _ENDS
    return places if ended else []


def _is_plain(tokens: Sequence[_Token], place: int) -> bool:
    if place >= len(tokens):
        return False
    return tokens[place].kind == "hole" or (tokens[place].kind == "text" and is_plain(tokens[place].value))


def _value(tokens: Sequence[_Token], place: int) -> str:
    """Return the word or mark there, the empty text at the end, and a text's quotes for a text."""
    if place >= len(tokens):
        return ""
    return tokens[place].value if tokens[place].kind in ("word", "mark") else "''"

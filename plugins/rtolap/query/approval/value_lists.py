"""Long lists of written values, `x IN ('a', 'b', …)`: one node of the tree instead of one a value.

The parser takes some tens of microseconds a word, and every rule walks every node. Ten thousand values take
more than a second that way, though nothing is decided by one of them. They are therefore taken out of the
text in one linear pass before it is parsed, and put into the tree as one node. What is not plain (a
backslash, an exponent, NULL, numbers beside texts) stays in the text, as do short lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Literal

from sqlglot import exp

from rtolap.base.errors import QueryError

MEMBERS_MIN = 32  # of a list: shorter ones cost little
MEMBERS_MAX = 60_000  # of all lists of a statement
_MARK = "__value_list_"
_TEXT = r"""(?:'(?:[^'\\]|'')*+'|"(?:[^"\\]|"")*+")"""
_NUMBER = r"-?\d++(?:\.\d++)?+"
# Quotes and comments are passed over as the parser does; what is left of a text is looked at for lists.
PASSED_OVER = (
    r"""'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+"|`[^`]*+`"""
    r"""|--[^\n]*+|\#[^\n]*+|/\*.*?\*/|(?P<open>['"`]|/\*)"""
)
_PIECES = re.compile(
    rf"{PASSED_OVER}|(?P<before>\bIN\s*+\()\s*+(?P<list>{_TEXT}(?:\s*+,\s*+{_TEXT}){{{MEMBERS_MIN - 1},}}+"
    rf"|{_NUMBER}(?:\s*+,\s*+{_NUMBER}){{{MEMBERS_MIN - 1},}}+)\s*+\)",
    re.DOTALL | re.IGNORECASE,
)
_MEMBER = re.compile(rf"{_TEXT}|{_NUMBER}")


class NotClosed(Exception):
    """A quote or a comment has no end."""


ListKind = Literal["text", "number", "date"]


@dataclass(frozen=True)
class Members:
    """The values of a list, all of one kind.

    Attributes:
        values: texts without quotes, numbers as they are written with their signs, or ISO dates.
        written: the list as its author wrote it.
    """

    kind: ListKind
    values: tuple[str, ...]
    written: str = field(default="", compare=False)

    def constants(self) -> list[object]:
        """Return the values as the fold of a literal gives them."""
        if self.kind != "number":
            return list(self.values)
        return [Decimal(value) if "." in value else int(value) for value in self.values]

    def literals(self) -> list[exp.Expr]:
        """Return a node a value, as the parser makes them."""
        if self.kind == "number":
            return [_number(value) for value in self.values]
        texts: list[exp.Expr] = [exp.Literal.string(value) for value in self.values]
        return texts if self.kind == "text" else [exp.cast(each, exp.DType.DATE) for each in texts]

    def sql(self) -> str:
        """Return the list in SQL, alike for MySQL and the engine: no value holds a backslash."""
        if self.kind == "number":
            return ", ".join(self.values)
        quoted = ("'" + value.replace("'", "''") + "'" for value in self.values)
        return ", ".join(quoted if self.kind == "text" else (f"CAST({each} AS DATE)" for each in quoted))


class ValueList(exp.Expression, exp.Condition):
    """The only expression of an `exp.In`; its `members` are `Members`."""

    arg_types: ClassVar = {"members": True}

    @property
    def members(self) -> Members:
        members = self.args["members"]
        assert isinstance(members, Members), "a list has its values from where it is made"
        return members


def value_list_of(node: exp.Expr) -> ValueList | None:
    """Return the list of an `exp.In`; None if its values are nodes of their own."""
    items = node.expressions
    return items[0] if len(items) == 1 and isinstance(items[0], ValueList) else None


@dataclass(frozen=True)
class ShortText:
    """A text whose long lists are marks.

    Attributes:
        lists: the name of a placeholder → the values in whose place it stands.
    """

    text: str
    lists: Mapping[str, Members]

    def written(self, text: str) -> str:
        """Return a part of the text with its lists as they were written."""
        for name, members in self.lists.items():
            text = text.replace(f":{name}", members.written)
        return text


def shortened(sql: str) -> ShortText:
    """Take long lists out of a text. Raises QueryError for too many values."""
    if sql.count(",") < MEMBERS_MIN - 1 or _MARK in sql:
        return ShortText(sql, {})
    lists: dict[str, Members] = {}
    count = 0

    def mark(piece: re.Match[str]) -> str:
        nonlocal count
        written = piece["list"]
        if piece["open"] is not None:
            raise NotClosed
        if written is None:
            return piece[0]
        found = _MEMBER.findall(written)
        count += len(found)
        if count > MEMBERS_MAX:
            raise QueryError(
                "the statement has too many parts",
                expected=f"at most {MEMBERS_MAX} values in all its lists",
                action="join with a table of them",
            )
        name = f"{_MARK}{len(lists)}"
        is_number = written[0] not in "'\""
        values = found if is_number else [each[1:-1].replace(each[0] * 2, each[0]) for each in found]
        lists[name] = Members("number" if is_number else "text", tuple(values), written)
        return f"{piece['before']}:{name})"

    try:
        return ShortText(_PIECES.sub(mark, sql), lists)
    except NotClosed:  # the parser says so; what follows is not looked at again and again
        return ShortText(sql, {})


def put_in(tree: exp.Expr, lists: Mapping[str, Members]) -> bool:
    """Put the lists in the place of their marks. Return False if the parser did not read each as one list."""
    found = {str(node.this): node for node in tree.find_all(exp.Placeholder) if str(node.this) in lists}
    if found.keys() != lists.keys():
        return False
    for name, node in found.items():
        if not isinstance(node.parent, exp.In) or node.parent.expressions != [node]:
            return False
        node.replace(ValueList(members=lists[name]))
    return True


def _number(value: str) -> exp.Expr:
    literal: exp.Expr = exp.Literal.number(value.lstrip("-"))
    return exp.Neg(this=literal) if value.startswith("-") else literal

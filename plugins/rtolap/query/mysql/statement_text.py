"""The text of a statement out of its bytes, which may hold others than UTF-8 in `_binary'…'`.

Clients that write parameters into the text send bytes so: Go's driver with `interpolateParams`, Java's ones
without prepared statements on the server.
"""

from __future__ import annotations

import re

from rtolap.base.errors import SqlSyntaxError

_PIECE = re.compile(
    rb"""_binary\s*'(?P<bytes>(?:[^'\\]|\\.|'')*+)'|'(?:[^'\\]|\\.|'')*+'?|"(?:[^"\\]|\\.|"")*+"?"""
    rb"""|`[^`]*+`?|--[ \t][^\n]*+|\#[^\n]*+|/\*.*?\*/""",
    re.DOTALL | re.IGNORECASE,
)
_ESCAPED = re.compile(rb"\\(.)|''", re.DOTALL)
_MEANT = {b"0": b"\0", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"Z": b"\x1a"}


def statement_text(data: bytes) -> str:
    """Return the text of a statement. Raises SqlSyntaxError for bytes that are no text outside of
    `_binary'…'`."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    try:
        return _PIECE.sub(_hexadecimal, data).decode()
    except UnicodeDecodeError as error:
        raise SqlSyntaxError(
            "bad SQL: the statement is not UTF-8",
            found=f"byte {data[error.start] if error.start < len(data) else 0:#04x}",
            action="write bytes as _binary'…' or x'…', or bind them",
        ) from error


def _hexadecimal(piece: re.Match[bytes]) -> bytes:
    content = piece["bytes"]
    if content is None:
        return piece[0]
    return b"x'" + _ESCAPED.sub(_unescaped, content).hex().encode() + b"'"


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return b"'" if escape[1] is None else _MEANT.get(escape[1], escape[1])

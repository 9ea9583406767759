"""Column types of tables and cubes, as they are written in YAML."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import msgspec

from rtolap.base.errors import DefinitionError

Kind = Literal["string", "boolean", "int", "bigint", "double", "decimal", "date", "timestamp", "binary"]

DECIMAL_PRECISION_MAX = 38
_DECIMAL = re.compile(r"decimal\((\d+)\s*,\s*(\d+)\)")
_SIMPLE: tuple[Kind, ...] = ("string", "boolean", "int", "bigint", "double", "date", "timestamp")


class ColumnType(msgspec.Struct, frozen=True):
    """`int` is 32 bit, `bigint` 64 bit, `timestamp` is an instant in microseconds without a zone (UTC).

    `binary` is of columns of sketches, and of the partials that hold sketches.
    """

    kind: Kind
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.kind == "decimal" else self.kind

    @property
    def is_numeric(self) -> bool:
        return self.kind in ("int", "bigint", "double", "decimal")


STRING = ColumnType("string")
BOOLEAN = ColumnType("boolean")
INT = ColumnType("int")
BIGINT = ColumnType("bigint")
DOUBLE = ColumnType("double")
DATE = ColumnType("date")
TIMESTAMP = ColumnType("timestamp")
BINARY = ColumnType("binary")


def decimal(precision: int, scale: int) -> ColumnType:
    return ColumnType("decimal", precision, scale)


@lru_cache(maxsize=256)  # asked for with every look at a stored column
def parse_type(text: str, *, binary: bool = False) -> ColumnType:
    """Return the type that a text like `"decimal(10,2)"` names.

    Args:
        binary: True where columns of bytes may be.

    Raises DefinitionError naming the known types.
    """
    cleaned = text.strip().lower()
    if binary and cleaned == BINARY.kind:
        return BINARY
    for kind in _SIMPLE:
        if cleaned == kind:
            return ColumnType(kind)
    match = _DECIMAL.fullmatch(cleaned)
    if match:
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= DECIMAL_PRECISION_MAX and scale <= precision:
            return decimal(precision, scale)
    known = (*_SIMPLE, BINARY.kind) if binary else _SIMPLE
    raise DefinitionError(
        "unknown column type",
        expected=f"one of {', '.join(known)}, decimal(p,s) with s <= p <= {DECIMAL_PRECISION_MAX}",
        found=repr(text),
    )


def sum_type(column: ColumnType) -> ColumnType:
    """Return the type that a SUM over the column has, wide enough never to overflow in practice."""
    if column.kind == "int":
        return BIGINT  # 2^32 rows of the largest value still fit
    if column.kind == "bigint":
        return decimal(38, 0)
    if column.kind == "decimal":
        return decimal(38, column.scale)
    return DOUBLE

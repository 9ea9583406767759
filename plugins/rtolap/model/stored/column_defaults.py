"""A column's default, written as text, as the value that it means."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal, InvalidOperation

from rtolap.base.errors import DefinitionError
from rtolap.model.types import ColumnType

Value = str | bool | int | float | Decimal | date | datetime
_BITS = {"int": 32, "bigint": 64}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def default_value(text: str, kind: ColumnType) -> Value:
    """Exact: a default that the type would have to round is refused. Raises DefinitionError."""
    try:
        return _read(text, kind)
    except (ValueError, InvalidOperation, KeyError) as error:
        raise DefinitionError(
            "a default that its column cannot hold", expected=f"a value of type {kind}", found=repr(text)
        ) from error


def _read(text: str, kind: ColumnType) -> Value:
    match kind.kind:
        case "string":
            return text
        case "boolean":
            return _BOOLEANS[text.strip().lower()]
        case "int" | "bigint":
            number, limit = int(text), 1 << (_BITS[kind.kind] - 1)
            if not -limit <= number < limit:
                raise ValueError(text)
            return number
        case "double":
            return float(text)
        case "decimal":
            exact = Decimal(text)
            whole = exact.scaleb(kind.scale)
            if (
                not exact.is_finite()
                or whole != whole.to_integral_value()
                or abs(whole) >= 10**kind.precision
            ):
                raise ValueError(text)
            return exact
        case "date":
            return date.fromisoformat(text)
        case "timestamp":
            instant = datetime.fromisoformat(text)
            if instant.tzinfo is not None:
                raise ValueError(text)
            return instant
        case "binary":
            raise ValueError(text)

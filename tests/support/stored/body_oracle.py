"""The meaning of a body, worked out row by row and value by value, and obviously so. Slow.

Nothing of `rtolap.stored.bodies` is used but its options.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

from rtolap.column_types import ColumnType
from rtolap.model.stored.schema import SchemaColumn, StoredSchema, default_value
from rtolap.stored.bodies.batches import DecodedBatch
from rtolap.stored.bodies.options import CsvOptions, LoadOptions

Row = dict[str, Any]
ABSENT = object()
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Unfit(Exception):
    """A text is no value of its column."""


@dataclass
class Told:
    """`rows` in order; numbers of the rows that were refused."""

    rows: list[Row] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    unselected: int = 0
    total: int = 0


def told(batches: Iterator[DecodedBatch]) -> Told:
    """Return the decoder's result in the same form."""
    found = Told()
    for batch in batches:
        found.rows += batch.rows.to_pylist()
        found.unselected += batch.unselected
        found.total += batch.total
        if batch.rejected is not None:
            found.refused += batch.rejected.rows.column("row").to_pylist()
    return found


def csv_told(body: bytes, options: LoadOptions, schema: StoredSchema) -> Told:
    found = Told()
    for fields in csv_lines(body, options.csv):
        found.total += 1
        if fields is None or len(fields) != len(schema.columns):
            found.refused.append(found.total)
        else:
            _add(found, dict(zip(schema.names, fields, strict=True)), options, schema)
    return found


def json_told(records: list[bytes], options: LoadOptions, schema: StoredSchema) -> Told:
    found = Told()
    for record in records:
        found.total += 1
        row = _json_row(record)
        if row is None or not any(name in row for name in schema.names):
            found.refused.append(found.total)
        else:
            _add(found, {name: row.get(name, ABSENT) for name in schema.names}, options, schema)
    return found


def table_told(rows: list[Row], options: LoadOptions, schema: StoredSchema) -> Told:
    """Return the outcome of typed values: each means what it means when it is written out, floats with all
    their digits."""
    found = Told()
    for row in rows:
        found.total += 1
        _add(
            found, {name: None if row[name] is None else _written(row[name]) for name in row}, options, schema
        )
    return found


def _written(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return format(Decimal(repr(value)), "f")
    return str(int(value)) if isinstance(value, bool) else str(value)


def _json_row(record: bytes) -> dict[str, Any] | None:
    def first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, value in pairs:
            row.setdefault(name, value)
        return row

    def refuse(name: str) -> Any:
        raise ValueError(name)

    try:
        row = json.loads(
            record.decode(),
            parse_float=_fraction,
            parse_int=str,
            object_pairs_hook=first,
            parse_constant=refuse,
        )
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in row.items()}


def _fraction(written: str) -> str:
    """Return a fraction as a double is written, where that loses nothing: 1e3 is the whole number 1000."""
    digits = sum(one.isdigit() for one in re.split("[eE]", written)[0])
    return written if digits > 15 or float(written) in (float("inf"), float("-inf")) else repr(float(written))


def _add(found: Told, texts: dict[str, Any], options: LoadOptions, schema: StoredSchema) -> None:
    row: Row = {}
    for column in schema.columns:
        try:
            row[column.name] = _column_value(texts[column.name], column, options)
        except Unfit:
            found.refused.append(found.total)
            return
    found.rows.append(row)


def _column_value(text: Any, column: SchemaColumn, options: LoadOptions) -> Any:
    definition = column.definition
    if text is ABSENT:
        written = definition.default
        value = None if written is None else default_value(written, definition.load_type)
    elif text is None:
        value = None
    else:
        try:
            value = read_value(text, definition.load_type, rounds=not options.strict_mode)
        except Unfit:
            if options.strict_mode:
                raise
            value = None
    if value is None and not definition.nullable:
        raise Unfit
    return value


def csv_lines(body: bytes, options: CsvOptions) -> Iterator[list[str | None] | None]:
    """Yield the fields of each line that is a row; None for a line that cannot be read."""
    lines = list(_lines(body, options))
    for line in lines[options.skip_lines :]:
        if line == []:
            continue
        if line is None:
            yield None
            continue
        try:
            yield [_field(raw, enclosed, options) for raw, enclosed in line]
        except UnicodeDecodeError:
            yield None


def _field(raw: bytes, enclosed: bool, options: CsvOptions) -> str | None:
    if options.trim_double_quotes and len(raw) >= 2 and raw[:1] == raw[-1:] == b'"':
        raw = raw[1:-1]
    if raw == b"\\N" and not enclosed:
        return None
    if options.empty_field_as_null and not raw:
        return None
    return raw.decode()


def _lines(body: bytes, options: CsvOptions) -> Iterator[list[tuple[bytes, bool]] | None]:
    """Yield lines, byte by byte. An empty line is an empty list."""
    at = 0
    while at < len(body):
        fields: list[tuple[bytes, bool]] = []
        start, malformed = at, False
        while True:
            raw, enclosed, at, end, broken = _one_field(body, at, options)
            malformed |= broken
            fields.append((raw, enclosed))
            if end != "column":
                break
        content = body[start : at - (len(options.line_delimiter) if end == "line" else 0)]
        if options.line_delimiter == b"\n" and content.endswith(b"\r"):
            content = content[:-1]
            raw, enclosed = fields[-1]
            fields[-1] = (raw[:-1] if raw.endswith(b"\r") and not enclosed else raw, enclosed)
        if not content:
            yield []
        else:
            yield None if malformed else fields


def _one_field(body: bytes, at: int, options: CsvOptions) -> tuple[bytes, bool, int, str, bool]:
    raw = bytearray()
    if options.enclose and body[at : at + 1] == options.enclose:
        at += 1
        while at < len(body):
            one = body[at : at + 1]
            if options.escape and one == options.escape:
                raw += body[at + 1 : at + 2]
                at += 2
            elif one == options.enclose and body[at + 1 : at + 2] == options.enclose:
                raw += one
                at += 2
            elif one == options.enclose:
                at += 1
                break
            else:
                raw += one
                at += 1
        else:
            return bytes(raw), True, at, "end", True
        rest, _, at, end, _ = _one_field(
            body,
            at,
            CsvOptions(column_separator=options.column_separator, line_delimiter=options.line_delimiter),
        )
        carriage = rest == b"\r" and options.line_delimiter == b"\n" and end != "column"
        return bytes(raw), True, at, end, bool(rest) and not carriage
    while at < len(body):
        if body.startswith(options.line_delimiter, at):
            return bytes(raw), False, at + len(options.line_delimiter), "line", False
        if body.startswith(options.column_separator, at):
            return bytes(raw), False, at + len(options.column_separator), "column", False
        raw += body[at : at + 1]
        at += 1
    return bytes(raw), False, at, "end", False


def read_value(text: str, kind: ColumnType, *, rounds: bool) -> Any:
    """Read a value. Raises Unfit."""
    if kind.kind == "string":
        return text
    text = text.strip(" \t\n\r")
    match kind.kind:
        case "boolean":
            found = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
            if found is None:
                raise Unfit
            return found
        case "int" | "bigint":
            if not re.fullmatch(r"[+-]?\d+(\.0*)?", text, re.ASCII):
                raise Unfit
            number = int(text.partition(".")[0])
            bits = 31 if kind.kind == "int" else 63
            if not -(1 << bits) <= number < 1 << bits:
                raise Unfit
            return number
        case "double":
            if not _NUMBER.fullmatch(text) or float(text) in (float("inf"), float("-inf")):
                raise Unfit
            return float(text)
        case "decimal":
            return _decimal(text, kind, rounds)
        case "date":
            return _instant(text, rounds).date()
        case "timestamp":
            return _instant(text, rounds)
    raise Unfit


def _decimal(text: str, kind: ColumnType, rounds: bool) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise Unfit
    with localcontext(prec=200):
        try:
            exact = Decimal(text)
            rounded = exact.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
        except InvalidOperation as error:
            raise Unfit from error
        if (rounded != exact and not rounds) or abs(rounded) >= Decimal(10) ** (kind.precision - kind.scale):
            raise Unfit
        return rounded


def _instant(text: str, rounds: bool) -> datetime:
    """Read an instant, which is shown in UTC."""
    match = re.fullmatch(
        r"(\d{4})(?:[-/](\d{1,2})[-/](\d{1,2})|(\d{2})(\d{2}))"
        r"(?:[T ](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,18}))?)?)?)?(Z|[+-]\d{2}:?\d{2})?",
        text,
    )
    if match is None:
        raise Unfit
    fraction = (match[9] or "0").ljust(18, "0")
    if not rounds and int(fraction[6:]):
        raise Unfit
    try:
        found = datetime(
            int(match[1]),
            int(match[2] or match[4]),
            int(match[3] or match[5]),
            int(match[6] or 0),
            int(match[7] or 0),
            int(match[8] or 0),
        )
        found += timedelta(microseconds=int(fraction[:6]) + (int(fraction[6:]) >= 5 * 10**11))
        if match[10] and match[10] != "Z":
            digits = match[10].replace(":", "")
            ahead = timedelta(hours=int(digits[1:3]), minutes=int(digits[3:]))
            found -= ahead if digits[0] == "+" else -ahead
    except (ValueError, OverflowError) as error:
        raise Unfit from error
    return found

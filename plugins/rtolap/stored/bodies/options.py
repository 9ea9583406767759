r"""Options of a load's body from its headers, parsed and checked.

| header | default | |
|---|---|---|
| `format` | csv | csv, csv_with_names, csv_with_names_and_types, json, parquet, orc, arrow |
| `compress_type` | none | gz, bz2, lz4, zstd, deflate, snappy |
| `column_separator`, `line_delimiter` | tab, newline | several characters; `\x01` is a byte in hexadecimal |
| `enclose`, `escape` | none | one character each |
| `skip_lines`, `trim_double_quotes`, `empty_field_as_null` | 0, false, false | |
| `json_root`, `jsonpaths` | none | `$.a.b`, `["$.a", "$.b[0]"]` |
| `strip_outer_array`, `read_json_by_line` | neither: by line | |
| `num_as_string`, `fuzzy_parse` | false | |
| `columns`, `where`, `partitions` | all, none, all | |
| `merge_type`, `delete` | APPEND | MERGE needs `delete` |
| `function_column.sequence_col`, `hidden_columns`, `partial_columns`, `negative` | none, false | |
| `unique_key_update_mode`, `partial_update_new_key_behavior` | UPSERT, APPEND | fixed columns, APPEND only |
| `strict_mode`, `max_filter_ratio`, `timezone` | false, 0, UTC | |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError
from rtolap.base.undecodable import UNDECODABLE
from rtolap.columnar.time_zones import require_zone

L = TypeVar("L", bound=str)
Format = Literal["csv", "csv_with_names", "csv_with_names_and_types", "json", "parquet", "orc", "arrow"]
Compression = Literal["gz", "bz2", "lz4", "zstd", "deflate", "snappy"]
MergeType = Literal["APPEND", "DELETE", "MERGE"]

FORMATS: tuple[Format, ...] = (
    "csv",
    "csv_with_names",
    "csv_with_names_and_types",
    "json",
    "parquet",
    "orc",
    "arrow",
)
_COMPRESSIONS: dict[str, Compression | None] = {
    "": None,
    "plain": None,
    "none": None,
    "gz": "gz",
    "gzip": "gz",
    "bz2": "bz2",
    "lz4": "lz4",
    "lz4frame": "lz4",
    "lz4_frame": "lz4",
    "zstd": "zstd",
    "deflate": "deflate",
    "snappy": "snappy",
}
_MERGE_TYPES: tuple[MergeType, ...] = ("APPEND", "DELETE", "MERGE")
_BOOLEANS = {"true": True, "false": False}
_HEX = re.compile(r"\\x([0-9a-fA-F]{2})|(\\[tnr])")
_ESCAPES = {"\\t": b"\t", "\\n": b"\n", "\\r": b"\r"}
_HEX_WHOLE = re.compile(r"0[xX]([0-9a-fA-F]{2})+")
OFFSET = re.compile(r"([+-])([01]\d):([0-5]\d)")
_SEPARATOR_BYTES_MAX = 64
_SKIP_LINES_MAX = 1_000_000


class CsvOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Separators, the enclosing and the escaping character as bytes; empty for none."""

    column_separator: bytes = b"\t"
    line_delimiter: bytes = b"\n"
    enclose: bytes = b""
    escape: bytes = b""
    skip_lines: int = 0
    trim_double_quotes: bool = False
    empty_field_as_null: bool = False


class JsonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for reading JSON.

    Attributes:
        by_line: True if each line holds a document; False if the body is a single document.
        strip_outer_array: True if documents are lists of rows.
    """

    by_line: bool = True
    strip_outer_array: bool = False
    root: str | None = None
    paths: tuple[str, ...] = ()
    num_as_string: bool = False


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a load. `decode_body` checks `columns`, `where` and `delete` against the table.

    Attributes:
        columns: the clause as it was written; None for the table's columns in their order.
        where: the condition as it was written; None for all rows.
        partitions: the partitions that take rows; empty for all. The router applies it.
        merge_type: whether rows are written or deleted.
        delete: the condition of MERGE, as it was written.
        max_filter_ratio: the largest part of rows that may be refused. The load applies it.
        timezone: the zone of times without one.
    """

    format: Format = "csv"
    compression: Compression | None = None
    csv: CsvOptions = CsvOptions()
    json: JsonOptions = JsonOptions()
    columns: str | None = None
    where: str | None = None
    partitions: tuple[str, ...] = ()
    merge_type: MergeType = "APPEND"
    delete: str | None = None
    sequence_column: str | None = None
    hidden_columns: tuple[str, ...] = ()
    partial_columns: bool = False
    negative: bool = False
    strict_mode: bool = False
    max_filter_ratio: float = 0.0
    timezone: str = "UTC"


def load_options(headers: Mapping[str, str]) -> LoadOptions:
    """Return the options. `headers`: by lower-case name; those that do not concern the body are passed over.

    Raises DefinitionError naming the header.
    """
    merge_type = one_of(headers, "merge_type", _MERGE_TYPES, "APPEND", upper=True)
    delete = _text(headers, "delete")
    if (merge_type == "MERGE") != (delete is not None):
        raise bad_header("delete", "a condition with merge_type MERGE, and only there", delete, merge_type)
    return LoadOptions(
        format=one_of(headers, "format", FORMATS, "csv"),
        compression=_compression(headers),
        csv=_csv(headers),
        json=_json(headers),
        columns=_text(headers, "columns"),
        where=_text(headers, "where"),
        partitions=_names(headers, "partitions"),
        merge_type=merge_type,
        delete=delete,
        sequence_column=_text(headers, "function_column.sequence_col"),
        hidden_columns=_names(headers, "hidden_columns"),
        partial_columns=_partial(headers),
        negative=boolean(headers, "negative"),
        strict_mode=boolean(headers, "strict_mode"),
        max_filter_ratio=_ratio(headers),
        timezone=_timezone(headers),
    )


def separator(text: str, header: str = "column_separator") -> bytes:
    r"""Return the bytes of a separator: `","`, `"||"`, `"\x01"`, `"0x01"`, `"\t"` → bytes. Raises
    DefinitionError."""
    if _HEX_WHOLE.fullmatch(text):
        decoded = bytes.fromhex(text[2:])
    else:
        decoded, at = b"", 0
        for match in _HEX.finditer(text):
            decoded += text[at : match.start()].encode()
            decoded += bytes.fromhex(match[1]) if match[1] else _ESCAPES[match[2]]
            at = match.end()
        decoded += text[at:].encode()
    if not 1 <= len(decoded) <= _SEPARATOR_BYTES_MAX:
        raise bad_header(header, f"1 to {_SEPARATOR_BYTES_MAX} bytes", text)
    return decoded


def _csv(headers: Mapping[str, str]) -> CsvOptions:
    column = separator(headers.get("column_separator") or "\\t", "column_separator")
    line = separator(headers.get("line_delimiter") or "\\n", "line_delimiter")
    if column == line:
        raise bad_header(
            "line_delimiter", "another than column_separator", headers.get("line_delimiter", "\\n")
        )
    enclose, escape = _character(headers, "enclose"), _character(headers, "escape")
    if enclose and (enclose in column or enclose in line):
        raise bad_header("enclose", "a character that no separator has", headers["enclose"])
    if escape and (escape in column or escape in line or escape == enclose):
        raise bad_header("escape", "a character that no separator has, and not enclose", headers["escape"])
    return CsvOptions(
        column_separator=column,
        line_delimiter=line,
        enclose=enclose,
        escape=escape,
        skip_lines=_count(headers, "skip_lines", _SKIP_LINES_MAX),
        trim_double_quotes=boolean(headers, "trim_double_quotes"),
        empty_field_as_null=boolean(headers, "empty_field_as_null"),
    )


def _json(headers: Mapping[str, str]) -> JsonOptions:
    boolean(headers, "fuzzy_parse")  # a hint that changes no row
    strip = boolean(headers, "strip_outer_array")
    neither = not headers.get("strip_outer_array") and not headers.get("read_json_by_line")
    paths: tuple[str, ...] = ()
    written = _text(headers, "jsonpaths")
    if written is not None:
        try:
            paths = decode_json(written, tuple[str, ...])
        except UNDECODABLE as error:
            raise bad_header("jsonpaths", 'a list such as ["$.a", "$.b"]', written) from error
        if not paths:
            raise bad_header("jsonpaths", "at least one path", written)
    return JsonOptions(
        by_line=neither or boolean(headers, "read_json_by_line"),
        strip_outer_array=strip,
        root=_text(headers, "json_root"),
        paths=paths,
        num_as_string=boolean(headers, "num_as_string"),
    )


def _compression(headers: Mapping[str, str]) -> Compression | None:
    written = headers.get("compress_type", "").strip().lower()
    if written not in _COMPRESSIONS:
        raise bad_header("compress_type", "one of gz, bz2, lz4, zstd, deflate, snappy", written)
    return _COMPRESSIONS[written]


def _timezone(headers: Mapping[str, str]) -> str:
    """Return the name of a zone, or `+08:00`."""
    written = headers.get("timezone", "").strip() or "UTC"
    if OFFSET.fullmatch(written):
        return written
    try:
        ZoneInfo(written)
    except (OSError, ValueError, KeyError) as error:
        raise bad_header("timezone", "a zone such as Europe/Paris or +02:00", written) from error
    require_zone(written)
    return written


def _ratio(headers: Mapping[str, str]) -> float:
    written = headers.get("max_filter_ratio", "").strip() or "0"
    try:
        ratio = float(written)
    except ValueError as error:
        raise bad_header("max_filter_ratio", "a number from 0 to 1", written) from error
    if not 0 <= ratio <= 1:  # also for NaN
        raise bad_header("max_filter_ratio", "a number from 0 to 1", written)
    return ratio


def _character(headers: Mapping[str, str], header: str) -> bytes:
    written = headers.get(header, "")
    if not written:
        return b""
    decoded = separator(written, header)
    if len(decoded) != 1 or decoded >= b"\x80":
        raise bad_header(header, "one ASCII character", written)
    return decoded


def _count(headers: Mapping[str, str], header: str, most: int) -> int:
    written = headers.get(header, "").strip() or "0"
    if not re.fullmatch(r"\d{1,9}", written) or int(written) > most:
        raise bad_header(header, f"a number from 0 to {most}", written)
    return int(written)


def _partial(headers: Mapping[str, str]) -> bool:
    """Return whether an update is partial. Either header says so. Other values of them would change other
    rows, so they are refused."""
    modes = ("UPSERT", "UPDATE_FIXED_COLUMNS")
    mode = one_of(headers, "unique_key_update_mode", modes, "UPSERT", upper=True)
    one_of(headers, "partial_update_new_key_behavior", ("APPEND",), "APPEND", upper=True)
    return boolean(headers, "partial_columns") or mode == "UPDATE_FIXED_COLUMNS"


def boolean(headers: Mapping[str, str], header: str) -> bool:
    written = headers.get(header, "").strip().lower() or "false"
    if written not in _BOOLEANS:
        raise bad_header(header, "true or false", written)
    return _BOOLEANS[written]


def _text(headers: Mapping[str, str], header: str) -> str | None:
    return headers.get(header, "").strip() or None


def _names(headers: Mapping[str, str], header: str) -> tuple[str, ...]:
    names = tuple(name.strip().strip("`") for name in headers.get(header, "").split(",") if name.strip())
    if len(set(names)) != len(names):
        raise bad_header(header, "every name once", headers[header])
    return names


def one_of(
    headers: Mapping[str, str], header: str, allowed: tuple[L, ...], default: L, *, upper: bool = False
) -> L:
    """Return which of the words a header says, in any case. Raises DefinitionError naming the header."""
    written = headers.get(header, "").strip() or default
    written = written.upper() if upper else written.lower()
    for each in allowed:
        if written == each:
            return each
    raise bad_header(header, f"one of {', '.join(allowed)}", written)


def bad_header(header: str, expected: str, *found: object) -> DefinitionError:
    return DefinitionError(f"header {header}", expected=expected, found=", ".join(map(repr, found)))

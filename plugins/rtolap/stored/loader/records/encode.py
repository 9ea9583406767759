r"""Rows → the body of a request, column by column; the same rows always give the same bytes.

arrow   an IPC stream, for this product's endpoints
json    one object a line; decimals and times as strings, so that no digit is lost on the way
csv     text in double quotes, a backslash before each quote or backslash in it; \N for null
"""

from __future__ import annotations

import io
from typing import assert_never

import arro3.core
import arro3.io
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.model.loader import LoaderFormat, LoaderTarget

_TIME = "%Y-%m-%d %H:%M:%S"  # with all digits of its unit
_SEPARATOR = ","

_HEADERS: dict[LoaderFormat, dict[str, str]] = {
    "arrow": {},
    "json": {"read_json_by_line": "true", "num_as_string": "true"},
    "csv": {"column_separator": _SEPARATOR, "line_delimiter": "\\n", "enclose": '"', "escape": "\\"},
}
_OF_STARROCKS: dict[LoaderFormat, dict[str, str]] = {
    "json": {"strip_outer_array": "false", "ignore_json_size": "true"},
    "csv": {"column_separator": _SEPARATOR, "row_delimiter": "\\n", "enclose": '"', "escape": "\\"},
}


def format_headers(target: LoaderTarget, form: LoaderFormat) -> dict[str, str]:
    """Return the headers that say how a body is written."""
    return dict(_OF_STARROCKS[form] if target == "starrocks" else _HEADERS[form])


def encode(rows: pa.RecordBatch, form: LoaderFormat) -> bytes:
    match form:
        case "arrow":
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_batch(rows)
            return bytes(sink.getvalue())
        case "json":
            return _json(rows)
        case "csv":
            return _csv(rows)
        case _:
            assert_never(form)


def _json(rows: pa.RecordBatch) -> bytes:
    plain = pa.RecordBatch.from_arrays(
        [_as_text(column) if _needs_text(column.type) else column for column in rows.columns],
        rows.schema.names,
    )
    out = io.BytesIO()
    arro3.io.write_ndjson(arro3.core.RecordBatch.from_arrow(plain), out, explicit_nulls=True)
    return out.getvalue()


def _csv(rows: pa.RecordBatch) -> bytes:
    fields = [_field(column) for column in rows.columns]
    lines = pc.binary_join_element_wise(*fields, _SEPARATOR)
    text = pc.binary_join(pa.LargeListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_py()
    return bytes(text.encode()) + b"\n"


def _field(column: pa.Array) -> pa.Array:
    text = _as_text(column)
    if pa.types.is_string(column.type):
        escaped = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
        quote = pa.scalar('"')
        text = pc.binary_join_element_wise(quote, escaped, quote, "")
    return text.fill_null("\\N")


def _needs_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) or pa.types.is_temporal(kind))


def _as_text(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return pc.strftime(column, format=_TIME)
    return column.cast(pa.string())

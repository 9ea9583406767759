"""JSON objects → Arrow rows, one row a record, proven: by lines where records look sound, wrapped where not.

`JsonLines` reads a chunk of well-formed records in one pass over one text, joined by newlines. Where each
begins with `{` and ends with `}`, a strict parser that finds as many values in the text as there are records
has read each of them as one object: a newline may stand in no string, so every `}` + newline + `{` between
two records ends one value and begins another. What a strict parser takes needs no wrapper in the columnar
one: its rows are the records, in order. Everything else is left to the caller, who reads it another way:
this one refuses nothing.

For `JsonReader` each record is wrapped: `{"v":` + record + `}`, one a line, and the reader's schema is a
struct `v`. A record that ends inside a string, leaves a brace open or holds two objects makes the wrapper's
own text unparsable; a record without any value does too. So every record that passes gives at least one row,
and as many rows as records means exactly one each, in order. Without the wrapper, raw newlines inside strings
and records that join into one object would shift rows silently.

The columnar parser is lenient (commas are white space to it, numbers may have leading zeros), and a record
may close the wrapper's object and open a member of its own: the caller parses strictly besides (see
`decode`). Of two equal keys the last one counts. An error that would quote a NUL aborts the process: records
that hold one and are refused for anything must not come here.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import arro3.core
import arro3.io
import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.undecodable import UNDECODABLE

_FIELD = "v"
_OPEN = b'{"v":'
_CLOSE = b"}"
_BETWEEN = _CLOSE + b"\n" + _OPEN
MARGIN = b" " * 16  # room for readers that look back from a position in the text (see `lossy`)
UNREADABLE = (
    pa.ArrowException,
    ValueError,
    OSError,
    UnicodeDecodeError,
    OverflowError,
)  # the reader's errors
_BACKSLASH, _ESCAPED_NUL = b"\\", b"\\u0000"  # one byte is found many times faster than six

Places = NDArray[np.int64]

_BRACE_OPEN, _BRACE_CLOSE = ord("{"), ord("}")


class JsonReader:
    """Reads records against one Arrow schema. Not thread-safe by promise, though it keeps no state."""

    def __init__(self, schema: pa.Schema) -> None:
        wrapped = pa.schema([pa.field(_FIELD, pa.struct(list(schema)))])
        self._schema = arro3.core.Schema.from_arrow(wrapped)
        self.nothing: pa.StructArray = pa.array([], pa.struct(list(schema)))

    @staticmethod
    def text(values: Sequence[bytes]) -> bytes:
        """Return the wrapped records. Raises TypeError when a value is None."""
        return b"".join((MARGIN, _OPEN, _BETWEEN.join(values), _CLOSE))

    @staticmethod
    def starts(lengths: Sequence[int]) -> list[int]:
        """Return where in `text` each record begins, given the records' lengths."""
        starts, at = [], len(MARGIN) + len(_OPEN)
        for length in lengths:
            starts.append(at)
            at += length + len(_BETWEEN)
        return starts

    def parse(self, text: bytes, rows: int) -> pa.StructArray | None:
        """Return all rows, or None when any record is refused. A row is null where the record is `null`."""
        try:
            reader = arro3.io.read_json(io.BytesIO(text), self._schema, batch_size=rows + 1)
            table = pa.table(reader)
        except UNREADABLE:
            return None
        if table.num_rows != rows:
            return None
        column = table.column(0)
        return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)

    def salvage(self, values: Sequence[bytes], odd: Sequence[int]) -> tuple[list[int], pa.StructArray]:
        """Read again records that are refused together: return those that parse alone, by place, and their
        rows in order.

        `odd` are places of records that will probably not parse; that only saves work: whether a record is
        taken is decided by this reader alone.
        """
        places, chunks = self._halved(values, np.delete(np.arange(len(values)), odd).tolist())
        for place in odd:
            places_alone, rows = self._halved(values, [place])
            places, chunks = places + places_alone, chunks + rows
        rows = pa.concat_arrays(chunks) if chunks else self.nothing
        order = np.argsort(np.array(places, np.int64), kind="stable")
        if (np.diff(order) == 1).all():
            return places, rows
        return [places[at] for at in order], rows.take(pa.array(order))

    def _halved(
        self, values: Sequence[bytes], places: Sequence[int]
    ) -> tuple[list[int], list[pa.StructArray]]:
        if not places:
            return [], []
        rows = self.parse(self.text([values[place] for place in places]), len(places))
        if rows is not None:
            return list(places), [rows]
        if len(places) == 1:
            return [], []
        middle = len(places) // 2
        left, left_rows = self._halved(values, places[:middle])
        right, right_rows = self._halved(values, places[middle:])
        return left + right, left_rows + right_rows


def holds_escaped_nul(text: bytes) -> bool:
    return _BACKSLASH in text and _ESCAPED_NUL in text


class Lines(NamedTuple):
    """The rows of a chunk, its text, and where in it each record begins."""

    rows: pa.StructArray
    text: bytes
    starts: Places


class JsonLines:
    """Reads records against one Arrow schema. `shape`: the type of one record for the strict parser."""

    def __init__(self, schema: pa.Schema, shape: Any) -> None:
        self._schema = arro3.core.Schema.from_arrow(schema)
        self._strict = msgspec.json.Decoder(shape)

    def read(self, records: Sequence[bytes]) -> Lines | None:
        """Return all records, or None where any of them is to be looked at more closely."""
        text = b"\n".join([MARGIN, *records, MARGIN])
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        ends = np.cumsum(lengths + 1) + len(MARGIN)
        starts = ends - lengths
        if not len(records) or not lengths.all():
            return None
        if holds_escaped_nul(text):
            return None
        chars = np.frombuffer(text, np.uint8)
        if (chars[starts] != _BRACE_OPEN).any() or (chars[ends - 1] != _BRACE_CLOSE).any():
            return None
        try:
            if len(self._strict.decode_lines(text)) != len(records):
                return None
            table = pa.table(arro3.io.read_json(text, self._schema, batch_size=len(records) + 1))
        except (*UNDECODABLE, *UNREADABLE):
            return None
        if table.num_rows != len(records):
            return None
        (batch,) = table.to_batches()
        return Lines(batch.to_struct_array(), text, starts)

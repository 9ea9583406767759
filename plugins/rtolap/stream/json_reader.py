"""JSON objects → Arrow rows, one row a record, proven.

Each record is wrapped: `{"v":` + record + `}`, one a line, and the reader's schema is a struct `v`. A record
that ends inside a string, leaves a brace open or holds two objects makes the wrapper's own text
unparsable; a record without any value does too. So every record that passes gives at least one row, and as
many rows as records means exactly one each, in order. Without the wrapper, raw newlines inside strings
and records that join into one object would shift rows silently.

The parser is lenient (commas are white space to it, numbers may have leading zeros), and a record may close
the wrapper's object and open a member of its own: whoever calls parses strictly besides (see `decode`). Of
two equal keys the last one counts. An error that would quote a NUL aborts the process: records that hold one
and are refused for anything must not come here.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import arro3.core
import arro3.io
import pyarrow as pa

_FIELD = "v"
_OPEN = b'{"v":'
_CLOSE = b"}"
_BETWEEN = _CLOSE + b"\n" + _OPEN
MARGIN = b" " * 16  # room for whoever looks back from a position in the text (see `lossy`)
_GUESS_ROWS = 64

Guess = Callable[[bytes], object]


class JsonReader:
    """Reads records against one Arrow schema. Not thread-safe by promise, though it keeps no state."""

    def __init__(self, schema: pa.Schema) -> None:
        wrapped = pa.schema([pa.field(_FIELD, pa.struct(list(schema)))])
        self._schema = arro3.core.Schema.from_arrow(wrapped)

    @staticmethod
    def text(values: Sequence[bytes]) -> bytes:
        """The wrapped records. Raises TypeError when a value is None."""
        return MARGIN + _OPEN + _BETWEEN.join(values) + _CLOSE

    @staticmethod
    def starts(lengths: Sequence[int]) -> list[int]:
        """Where in `text` each record begins, given the records' lengths."""
        starts, at = [], len(MARGIN) + len(_OPEN)
        for length in lengths:
            starts.append(at)
            at += length + len(_BETWEEN)
        return starts

    def parse(self, text: bytes, rows: int) -> pa.StructArray | None:
        """All rows, or None when any record is refused. A row is null where the record is `null`."""
        try:
            reader = arro3.io.read_json(io.BytesIO(text), self._schema, batch_size=rows + 1)
            table = pa.table(reader)
        except (pa.ArrowException, ValueError, OSError, UnicodeDecodeError, OverflowError):
            return None
        if table.num_rows != rows:
            return None
        column = table.column(0)
        return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)

    def salvage(self, values: Sequence[bytes], guess: Guess) -> tuple[list[int], list[pa.StructArray]]:
        """The records that parse alone, by place, and their rows: halves again and again around the bad ones.

        `guess` tells a record that will probably fail (anything but None); it only saves work: whether
        a record is taken is decided by this reader alone.
        """
        if not values:
            return [], []
        rows = self.parse(self.text(values), len(values))
        if rows is not None:
            return list(range(len(values))), [rows]
        if len(values) == 1:
            return [], []
        if len(values) <= _GUESS_ROWS:
            bad = [place for place, value in enumerate(values) if guess(value) is not None]
            if 0 < len(bad) < len(values):
                return self._apart(values, bad, guess)
        middle = len(values) // 2
        left, left_rows = self.salvage(values[:middle], guess)
        right, right_rows = self.salvage(values[middle:], guess)
        return left + [middle + place for place in right], left_rows + right_rows

    def _apart(
        self, values: Sequence[bytes], bad: list[int], guess: Guess
    ) -> tuple[list[int], list[pa.StructArray]]:
        suspects = set(bad)
        good = [place for place in range(len(values)) if place not in suspects]
        places, chunks = self.salvage([values[place] for place in good], guess)
        found = [good[place] for place in places]
        for place in bad:
            rows = self.parse(self.text([values[place]]), 1)
            if rows is not None:
                found.append(place)
                chunks.append(rows)
        order = sorted(range(len(found)), key=found.__getitem__)
        if not chunks:
            return [], []
        together = pa.concat_arrays(chunks).take(pa.array(order, pa.int64()))
        return [found[place] for place in order], [together]

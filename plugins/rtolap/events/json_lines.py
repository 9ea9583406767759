"""Chunks of well-formed records → Arrow rows in one pass over one text, proven.

Records are joined by newlines. Where each begins with `{` and ends with `}`, a strict parser that finds as
many values in the text as there are records has read each of them as one object: a newline may stand in no
string, so every `}` + newline + `{` between two records ends one value and begins another. What a strict
parser takes needs no wrapper in the columnar one (see `json_reader`): its rows are the records, in order.

Everything else is left to the caller, who reads it another way: this one refuses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import arro3.core
import arro3.io
import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.undecodable import UNDECODABLE
from rtolap.events.json_reader import MARGIN, UNREADABLE, holds_escaped_nul

Places = NDArray[np.int64]

_OPEN, _CLOSE = ord("{"), ord("}")


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
        """All records, or None where any of them is to be looked at more closely."""
        text = b"\n".join([MARGIN, *records, MARGIN])
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        ends = np.cumsum(lengths + 1) + len(MARGIN)
        starts = ends - lengths
        if not len(records) or not lengths.all():
            return None
        if holds_escaped_nul(text):
            return None
        chars = np.frombuffer(text, np.uint8)
        if (chars[starts] != _OPEN).any() or (chars[ends - 1] != _CLOSE).any():
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

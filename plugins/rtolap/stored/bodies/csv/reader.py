r"""CSV → source columns, all of them text.

A line with more or fewer fields than columns is refused, as is one that is no UTF-8 or whose enclosed field
does not end. Empty lines are no rows. `\N` that is not enclosed is null.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.stored.bodies.batches import Longs, Mask, Refusals, SourceRows
from rtolap.stored.bodies.blocks import is_utf8, whole_records
from rtolap.stored.bodies.csv.cut import Fields, cut, trimmed
from rtolap.stored.bodies.options import CsvOptions, Format
from rtolap.stored.bodies.settings import BodySettings

_NULL = b"\\N"
_HEADER_LINES: dict[Format, int] = {"csv_with_names": 1, "csv_with_names_and_types": 2}
_BOM = b"\xef\xbb\xbf"


class CsvReader:
    """Reader of one CSV body, whose columns have `names`, in order."""

    def __init__(self, names: tuple[str, ...], layout: Format, options: CsvOptions, settings: BodySettings):
        self._names, self._options, self._settings = names, options, settings
        self._to_skip = options.skip_lines + _HEADER_LINES.get(layout, 0)
        self._lines = self._rows = 0

    def read(self, chunks: Iterator[bytes]) -> Iterator[SourceRows]:
        yield from whole_records(
            chunks,
            self._take,
            size_bytes=self._settings.chunk_bytes,
            record_bytes_max=self._settings.record_bytes_max,
        )

    def _take(self, data: bytes, final: bool) -> tuple[int, SourceRows]:
        offset = len(_BOM) if self._lines == 0 and data.startswith(_BOM) else 0
        data = data[offset:] if offset else data
        fields = cut(data, self._options, final)
        if not fields.consumed:
            return 0, self._source(data, fields, np.zeros(len(fields.counts), bool))
        wanted = fields.line_ends > fields.line_starts
        numbers = self._lines + np.arange(len(fields.counts))
        if self._lines < self._to_skip:
            wanted &= numbers >= self._to_skip
        self._lines += len(fields.counts)
        return fields.consumed + offset, self._source(data, fields, wanted)

    def _source(self, data: bytes, fields: Fields, wanted: Mask) -> SourceRows:
        text = np.frombuffer(data, np.uint8)
        numbers = self._rows + np.cumsum(wanted)
        total = int(np.count_nonzero(wanted))
        self._rows += total
        refused = Refusals(self._settings.rejected_rows_max)

        def texts(lines: Longs) -> list[str]:
            spans = zip(fields.line_starts[lines].tolist(), fields.line_ends[lines].tolist(), strict=True)
            return [
                data[start : min(end, start + _SHOWN_BYTES)].decode(errors="replace") for start, end in spans
            ]

        def refuse(lines: Mask, reason: str) -> None:
            at = np.flatnonzero(lines)
            if len(at):
                refused.add_rejected(numbers, texts, at, [reason] * min(len(at), refused.room))
                np.logical_and(wanted, ~lines, out=wanted)

        if fields.malformed is not None:
            refuse(wanted & fields.malformed, "an enclosed field does not end, or goes on behind its end")
        self._refuse_counts(fields, wanted, numbers, texts, refused)
        if not is_utf8(data[: fields.consumed]):
            lines = np.flatnonzero(wanted)
            spans = zip(fields.line_starts[lines].tolist(), fields.line_ends[lines].tolist(), strict=True)
            broken = np.zeros(len(wanted), bool)
            broken[lines[[not is_utf8(data[start:end]) for start, end in spans]]] = True
            refuse(broken, "the row is not UTF-8")
        if self._options.trim_double_quotes:
            fields = trimmed(text, fields)
        lines = np.flatnonzero(wanted)
        columns = self._columns(data, fields, wanted)
        return SourceRows(columns, numbers[lines], lambda rows: texts(lines[rows]), refused, total)

    def _refuse_counts(
        self, fields: Fields, wanted: Mask, numbers: Longs, texts: object, refused: Refusals
    ) -> None:
        expected = len(self._names)
        at = np.flatnonzero(wanted & (fields.counts != expected))
        if len(at):
            reasons = [
                f"actual column number in csv file is {'less' if count < expected else 'more'} than schema "
                f"column number. actual number: {count}, schema column number: {expected}"
                for count in fields.counts[at[: refused.room]].tolist()
            ]
            refused.add_rejected(numbers, texts, at, reasons)  # type: ignore[arg-type]
            wanted[at] = False

    def _columns(self, data: bytes, fields: Fields, wanted: Mask) -> dict[str, pa.Array]:
        """Return the wanted columns. Fields and the text between them are one array of strings without a
        copy; columns are taken from it, one behind the other in one array."""
        width = len(self._names)
        starts, ends, enclosed = fields.starts, fields.ends, fields.enclosed
        if not wanted.all():
            chosen = np.repeat(wanted, fields.counts)
            starts, ends = starts[chosen], ends[chosen]
            enclosed = None if enclosed is None else enclosed[chosen]
        bounds = np.zeros(2 * len(starts) + 1, np.int32)
        bounds[1::2], bounds[2::2] = starts, ends
        pieces = pa.StringArray.from_buffers(2 * len(starts), pa.py_buffer(bounds), pa.py_buffer(data))
        first = np.arange(1, 2 * len(starts) + 1, 2 * width, dtype=np.int32)
        by_column = np.add.outer(np.arange(0, 2 * width, 2, dtype=np.int32), first).ravel()
        taken, rows = pc.take(pieces, pa.array(by_column), boundscheck=False), len(first)
        nulls = b"\\" in data and _NULL in data
        columns = {}
        for place, name in enumerate(self._names):
            own = None if enclosed is None else enclosed[place::width]
            values = taken.slice(place * rows, rows)
            columns[name] = self._values(values, own, nulls, fields.rewritten)
        return columns

    def _values(
        self, values: pa.Array, enclosed: NDArray[np.bool_] | None, nulls: bool, rewritten: bool
    ) -> pa.Array:
        options = self._options
        if enclosed is not None and rewritten and enclosed.any():
            values = pc.if_else(pa.array(enclosed), _plain(values, options), values)
        nothing = None
        if nulls:
            nothing = pc.equal(values, _NULL.decode())
            if enclosed is not None:
                nothing = pc.and_(nothing, pa.array(~enclosed))
        if options.empty_field_as_null:
            empty = pc.equal(values, "")
            nothing = empty if nothing is None else pc.or_(nothing, empty)
        return values if nothing is None else pc.if_else(nothing, pa.scalar(None, pa.string()), values)


_SHOWN_BYTES = 4096


def _plain(values: pa.Array, options: CsvOptions) -> pa.Array:
    """Return values in which doubled enclosing characters and escaped ones stand as the single ones that they
    mean."""
    mark = _literal(options.enclose)
    if not options.escape:
        return pc.replace_substring(values, (options.enclose * 2).decode(), options.enclose.decode())
    pattern = f"(?s){_literal(options.escape)}(.)|({mark}){mark}"
    return pc.replace_substring_regex(values, pattern, r"\1\2")


def _literal(character: bytes) -> str:
    return f"\\x{character.hex()}"

"""CSV records → rows: one record is one line, parsed by pyarrow, a batch as one text.

Alignment is proven. No record holds the end of a line, so the text has as many lines as records. A line whose
quote stays open takes the next line with it, and then the parser counts fewer lines than there are: such a
batch is halved until the record is alone. A line with another number of fields is handed back by its number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import csv

from rtolap.events.classify import Problem
from rtolap.events.formats.columns import RowBuilder, in_chunks, is_utf8
from rtolap.events.formats.reader import Places, Problems
from rtolap.events.plan import JsonPlan
from rtolap.model.formats.record_format import RecordFormat

_END, _RETURN = b"\n", b"\r"


class CsvReader:
    """The reader of one plan and thread.

    Args:
        fields: the names of the fields of a record, by position.
    """

    def __init__(self, plan: JsonPlan, form: RecordFormat, fields: Sequence[str]) -> None:
        self._plan = plan
        self._fields = list(fields)
        self._read = [path for path in dict.fromkeys(leaf.path for leaf in plan.leaves) if self._has(path)]
        self._parsing = {
            "delimiter": form.delimiter,
            "quote_char": form.quote or False,
            "double_quote": bool(form.quote),
            "newlines_in_values": False,
            "ignore_empty_lines": False,
        }
        self._quote = form.quote
        self._last = form.delimiter.join("0" for _ in self._fields).encode()
        self._converting = csv.ConvertOptions(
            column_types=dict.fromkeys(self._fields, pa.string()),
            include_columns=[path[0] for path in self._read] or self._fields[:1],
            null_values=[form.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def _has(self, path: tuple[str, ...]) -> bool:
        """Return whether the records have a field for a column. A column without one is null."""
        return len(path) == 1 and path[0] in self._fields

    def read(self, records: list[bytes], places: Places, problems: Problems) -> tuple[pa.StructArray, Places]:
        """See `RecordReader`."""
        return in_chunks(self._plan, records, places, problems, self._chunk)

    def _chunk(
        self, records: list[bytes], places: Places, problems: Problems
    ) -> tuple[pa.StructArray, Places]:
        text = _END.join(records)
        if text.count(_END) >= len(records) or _RETURN in text or not all(records) or not is_utf8(text):
            records, places = self._sound(records, places, problems)
        accepted, tables = self._halved(records, list(range(len(records))), places, problems)
        builder = RowBuilder(self._plan, len(accepted))
        rows = np.arange(len(accepted))
        if tables:
            table = pa.concat_tables(tables).combine_chunks()
            for path in self._read:
                builder.put(path, rows, table.column(path[0]).combine_chunks())
        return builder.build(places[accepted], problems)

    @staticmethod
    def _sound(records: list[bytes], places: Places, problems: Problems) -> tuple[list[bytes], Places]:
        """Return the records that are one line of text, without the end of the line that they may have.

        A loop: only for chunks in which something stands out.
        """
        sound, at = [], []
        for position, record in enumerate(records):
            line = record.removesuffix(_END).removesuffix(_RETURN)
            problem = _fault(line)
            if problem is None:
                sound.append(line)
                at.append(position)
            else:
                problems[int(places[position])] = problem
        return sound, places[at]

    def _halved(
        self, records: list[bytes], positions: list[int], places: Places, problems: Problems
    ) -> tuple[list[int], list[pa.Table]]:
        """Return the positions of the records that are sound, and their rows."""
        if not positions:
            return [], []
        odd: list[csv.InvalidRow] = []
        table = self._parsed([records[at] for at in positions], odd)
        if table.num_rows + len(odd) == len(positions) + 1:
            for row in odd:
                detail = f"expected {row.expected_columns} fields, found {row.actual_columns}"
                problems[int(places[positions[row.number - 1]])] = Problem("malformed_csv", detail)
            numbers = {row.number - 1 for row in odd}
            taken = [at for number, at in enumerate(positions) if number not in numbers] if odd else positions
            return taken, [table.slice(0, len(taken))]
        if len(positions) == 1:
            problems[int(places[positions[0]])] = Problem(
                "malformed_csv", f"a quote {self._quote} that is not closed"
            )
            return [], []
        middle = len(positions) // 2
        left, left_tables = self._halved(records, positions[:middle], places, problems)
        right, right_tables = self._halved(records, positions[middle:], places, problems)
        return left + right, left_tables + right_tables

    def _parsed(self, lines: list[bytes], odd: list[csv.InvalidRow]) -> pa.Table:
        """Return the rows of the lines; `odd` gets those with another number of fields.

        One line more ends the text, and gives a row: an open quote of the last record would take it along.
        """
        text = _END.join((*lines, self._last))
        found: list[csv.InvalidRow] = []

        def skip(row: csv.InvalidRow) -> str:
            found.append(row)
            return "skip"

        table = csv.read_csv(
            pa.BufferReader(text),
            read_options=csv.ReadOptions(
                use_threads=False, column_names=self._fields, block_size=len(text) + 1
            ),
            parse_options=csv.ParseOptions(**self._parsing, invalid_row_handler=skip),
            convert_options=self._converting,
        )
        odd += found
        return table


def _fault(line: bytes) -> Problem | None:
    if not line.strip():
        return Problem("empty", f"{len(line)} bytes without a value")
    if _END in line or _RETURN in line:
        at = min(found for found in (line.find(_END), line.find(_RETURN)) if found >= 0)
        return Problem("malformed_csv", f"byte {at}: the end of a line inside of a record")
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return Problem("invalid_utf8", f"byte {error.start}: {error.reason}")
    return None

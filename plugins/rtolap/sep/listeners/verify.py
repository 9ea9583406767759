"""A unique table of stored tables beside the rows of HBase that it mirrors: which rows differ.

Some things happen to rows without an edit that is shipped: a cell's time to live ends, a table is truncated,
a family is not replicated, files are bulk loaded; rows older than the subscription were never shipped.

    1. each row of HBase, range by range, against the row of its key        missing, different
    2. each key of the stored table against HBase                           extra

What differs is looked at again after a pause, since an edit may be on its way; what differs then as well is
told. Nothing is kept but rows that differ.
"""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from rtolap.base.errors import DefinitionError
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.sep.events.cells import decode_cells
from rtolap.sep.events.edit_batch import EVENTS_SCHEMA, EditBatch
from rtolap.sep.hbase.regions import Region, ScannedRows
from rtolap.sep.hbase.rows_pb2 import Column
from rtolap.sep.listeners.event_columns import EventColumns
from rtolap.sep.rows.reader import SCAN_ROWS, HBaseRowReader

log = logging.getLogger(__name__)

_PACKED: Final = {"short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}

Kind = Literal["missing", "extra", "different", "unreadable"]
Ask = Callable[[str, Sequence[Any]], Sequence[Sequence[Any]]]
"""A statement and its parameters → the rows of the answer."""


class RowDifference(NamedTuple):
    """A row that differs.

    Attributes:
        unreadable: True if HBase has a value that is not of its declared type, so no table can have the row.
    """

    table: str
    row: bytes
    kind: Kind


@dataclass(frozen=True)
class Mirrored:
    """The sides of a comparison.

    Attributes:
        families: the followed column families of a table; empty for all.
        prefixes: the prefixes of rows to compare; empty for all.
    """

    tables: Sequence[str]
    stored: TableName
    columns: EventColumns
    row_type: str
    types: Mapping[str, str]
    families: Callable[[str], Sequence[bytes]]
    prefixes: Sequence[bytes] = ()
    keeps_extra: bool = False


class TableVerifier:
    """A comparison of a table with HBase. Raises Unavailable where HBase or the query service does not
    answer."""

    def __init__(self, mirrored: Mirrored, reader: HBaseRowReader, ask: Ask) -> None:
        self._mirrored = mirrored
        self._reader = reader
        self._ask = ask

    def differences(
        self, start: bytes = b"", stop: bytes = b"", *, on_rows: Callable[[int], None] = lambda rows: None
    ) -> Iterator[RowDifference]:
        """Return rows from `start` to before `stop` (empty: to the end) that differ now. `on_rows`: so many
        were compared."""
        for table in self._mirrored.tables:
            for rows in self._scanned(table, start, stop):
                yield from self.check([(table, row) for row in rows])
                on_rows(len(rows))
        if self._mirrored.keeps_extra:
            return
        for keys in self._stored_keys():
            rows = [
                row for row in map(self._row_of, keys) if _within(row, start, stop, self._mirrored.prefixes)
            ]
            yield from self._extra(rows)
            on_rows(len(rows))

    def check(self, rows: Sequence[tuple[str, bytes]]) -> list[RowDifference]:
        """Return which of these rows of HBase's tables differ from the stored ones."""
        found: list[RowDifference] = []
        for table in dict.fromkeys(table for table, _ in rows):
            of_table = list(dict.fromkeys(row for each, row in rows if each == table))
            here = self._in_hbase(table, of_table)
            keys = [key for key, _ in here.values() if key is not None]
            there = self._in_table(keys)
            for row, (key, values) in here.items():
                kind = self._difference(key, values, there)
                if kind is not None and not (kind == "extra" and self._mirrored.keeps_extra):
                    found.append(RowDifference(table, row, kind))
        return found

    def _difference(
        self,
        key: Any,
        values: tuple[Any, ...] | Literal["unreadable"] | None,
        there: Mapping[Any, tuple[Any, ...]],
    ) -> Kind | None:
        if key is None or values == "unreadable":
            return "unreadable"
        stored = there.get(key)
        if values is None:
            return None if stored is None else "extra"
        if stored is None:
            return "missing"
        types = self._mirrored.types.values()
        same = all(_same(*each) for each in zip(values, stored, types, strict=True))
        return None if same else "different"

    def _extra(self, rows: list[bytes]) -> list[RowDifference]:
        """Return rows of the stored table that no table of HBase has."""
        left = dict.fromkeys(rows)
        for table in self._mirrored.tables:
            for read in self._reader.read(table, requested := list(left), {}):
                for place in read.places[read.exists].tolist():
                    left.pop(requested[place], None)
        return [RowDifference(self._mirrored.tables[0], row, "extra") for row in left]

    def _in_hbase(self, table: str, rows: list[bytes]) -> dict[bytes, tuple[Any, Any]]:
        """Return key and values by row.

        The key is None if it is not of its type; the values are None if the row does not exist.
        """
        found: dict[bytes, tuple[Any, Any]] = {}
        for read in self._reader.read(table, rows, {}):
            of_part = [rows[place] for place in read.places.tolist()]
            decoded = self._mirrored.columns.of_rows(EditBatch(_events(of_part, read.counts), read.cells))
            columns = [_plain(decoded.columns[name]) for name in self._mirrored.columns.names]
            for at, (row, (key, *values)) in enumerate(zip(of_part, zip(*columns, strict=True), strict=True)):
                present: Any = tuple(values) if read.exists[at] else None
                found[row] = (key, "unreadable" if at in decoded.refused and present is not None else present)
        return found

    def _in_table(self, keys: list[Any]) -> dict[Any, tuple[Any, ...]]:
        if not keys:
            return {}
        names = ", ".join(map(_quoted, self._mirrored.columns.names))
        marks = ", ".join("?" for _ in keys)
        sql = f"SELECT {names} FROM {self._from} WHERE {self._key} IN ({marks})"
        rows = self._ask(sql, [_parameter(key) for key in keys])
        kind = self._mirrored.row_type
        return {_key(row[0], kind): tuple(row[1:]) for row in rows}

    def _stored_keys(self) -> Iterator[list[Any]]:
        after: list[Any] = []
        while True:
            where = f"WHERE {self._key} > ? " if after else ""
            sql = f"SELECT {self._key} FROM {self._from} {where}ORDER BY {self._key} LIMIT {SCAN_ROWS}"
            keys = [_key(row[0], self._mirrored.row_type) for row in self._ask(sql, after)]
            if not keys:
                return
            yield keys
            after = [_parameter(keys[-1])]

    def _scanned(self, table: str, start: bytes, stop: bytes) -> Iterator[list[bytes]]:
        columns = [Column(family=family) for family in self._mirrored.families(table)]

        def scan(start: bytes) -> tuple[Region, ScannedRows] | None:
            region = self._reader.client.region_of(table, start)
            if region is None:
                return None
            end = min((each for each in (stop, region.end) if each), default=b"")
            return region, self._reader.client.scan(region, start, end, columns, SCAN_ROWS)

        while (found := self._reader.retrying(table, partial(scan, start))) is not None:
            region, read = found
            if read.counts:
                firsts = np.cumsum([0, *read.counts[:-1]])
                rows = decode_cells(read.block).rows(firsts).to_pylist()
                start = rows[-1] + b"\0"
                prefixes = self._mirrored.prefixes
                yield [row for row in rows if not prefixes or row.startswith(tuple(prefixes))]
            elif not region.end or (stop and region.end >= stop):
                return
            else:
                start = region.end

    def _row_of(self, key: Any) -> bytes:
        """Return the row of HBase whose key it is."""
        match self._mirrored.row_type:
            case "string" | "json":
                return str(key).encode()
            case "bytes":
                return bytes.fromhex(key)
            case "boolean":
                return b"\xff" if key else b"\x00"  # as Java writes it
            case kind if kind in _PACKED:
                return struct.pack(_PACKED[kind], key)
            case kind:
                raise DefinitionError(
                    "keys of this type do not identify their row, since a number has many encodings",
                    found=kind,
                )

    @property
    def _from(self) -> str:
        return f"{_quoted(self._mirrored.stored.db)}.{_quoted(self._mirrored.stored.name)}"

    @property
    def _key(self) -> str:
        return _quoted(self._mirrored.columns.row_name)


def _events(rows: list[bytes], counts: np.ndarray[Any, np.dtype[np.int64]]) -> pa.RecordBatch:
    known = {"table": "", "region": "", "sequence_id": 0, "write_time_ms": 0, "cluster_ids": []}
    firsts = np.cumsum(counts) - counts
    events = [
        {**known, "row": row, "first_cell": first, "cell_count": count}
        for row, first, count in zip(rows, firsts.tolist(), counts.tolist(), strict=True)
    ]
    return pa.RecordBatch.from_pylist(events, schema=EVENTS_SCHEMA)


def _within(row: bytes, start: bytes, stop: bytes, prefixes: Sequence[bytes]) -> bool:
    in_range = row >= start and (not stop or row < stop)
    return in_range and (not prefixes or row.startswith(tuple(prefixes)))


def _plain(column: pa.Array) -> list[Any]:
    values = column.to_pylist()
    return [each.hex() if isinstance(each, bytes) else each for each in values]


def _key(value: Any, kind: str) -> Any:
    """Return a key of an answer as `_plain` has it."""
    if kind == "boolean":
        return bool(int(value))
    return Decimal(str(value)) if kind.startswith("decimal") else value


def _parameter(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


def _same(here: Any, there: Any, kind: str) -> bool:
    """Return whether a value of HBase (`here`) is the value of an answer (`there`), which is JSON."""
    if here is None or there is None:
        return (here is None or _is_nan(here)) and there is None
    match kind:
        case "boolean":
            return bool(here) == bool(int(there))
        case "float" | "double":
            number = float(there)
            same = number == here or bool(np.float32(number) == np.float32(here))
            return same or (_is_nan(here) and _is_nan(number))
        case "json":
            return bool(msgspec.json.decode(here) == msgspec.json.decode(str(there)))
        case _ if kind.startswith("decimal"):
            return bool(Decimal(str(there)) == here)
        case _:
            return bool(here == there)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

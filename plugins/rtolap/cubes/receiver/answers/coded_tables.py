"""Statements that come for the first time, over the codes of local tables.

A receiver holds many small tables: some of each segment, in memory and in fragments. Read one by one, each
costs a statement the fixed price of its filter, its grouping and its part of the merge. By codes that the
tables share, the filter is judged once a value, and the rows of all tables are filtered and grouped together
(see `scan.group_scan`).

Tables are read as they are where a small cuboid covers the statement, where a column has no such form (texts
of too many values, sketches, sums beyond 64 bits, doubles, whose sums depend on the order), and where the
codes of all tables would take too much memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import NamedTuple
from weakref import WeakSet

import pyarrow as pa

from rtolap.columnar.schema import LOCAL_STRING, arrow_type, physical_schema, select_partials
from rtolap.cubes.receiver.local.table_codes import TableCodes
from rtolap.cubes.receiver.local.tables import LocalTable
from rtolap.model.cube import Schema
from rtolap.model.predicate import columns_of
from rtolap.protocols.receiver.messages import PartialQuery
from rtolap.scan.columns import CodedFile, DimensionCodes, NotCoded
from rtolap.scan.folds import is_exact_fold
from rtolap.scan.group_scan import GroupScan

_DIMENSION_BYTES, _MEASURE_BYTES = 2, 8  # of a row, at most
_TABLES_MIN = 2  # one table by itself is read about as quickly as it is


class CodedRows(NamedTuple):
    """The groups of the tables that were read by codes.

    Attributes:
        table: the groups, each once, in plain form.
        others: tables that have to be read as they are.
        rows_scanned: number of rows that were looked at.
        rows_pruned: number of rows that no value of the filter leaves.
    """

    table: pa.Table
    others: list[LocalTable]
    rows_scanned: int
    rows_pruned: int


class CodedTables:
    """The codes of one cube's tables. Thread-safe. `bytes_max`: of the codes of all tables together."""

    def __init__(self, schema: Schema, bytes_max: int) -> None:
        self._schema = schema
        self._bytes_max = bytes_max
        self._dictionaries: dict[str, DimensionCodes] = {}
        self._made: WeakSet[TableCodes] = WeakSet()
        self._lock = Lock()

    def rows(self, query: PartialQuery, tables: Sequence[LocalTable]) -> CodedRows | None:
        """Return the groups of the tables that have codes; None where the statement cannot be answered so."""
        partials = select_partials(self._schema, query.partials)
        needed = sorted({*query.dimensions, *columns_of(query.filter)})
        if len(tables) < _TABLES_MIN or not all(map(is_exact_fold, partials)) or self._has_doubles(needed):
            return None
        dictionaries = self._of_dimensions(needed)
        files: list[CodedFile] = []
        others: list[LocalTable] = []
        pruned = 0
        for local in tables:
            if not local.rows:
                continue
            if local.fragment is not None and not local.fragment.can_match(query.filter):
                pruned += local.rows
                continue
            file = self._file(local, needed, dictionaries, query.partials)
            if file is None:
                others.append(local)
            else:
                files.append(file)
        if not files:
            return None
        try:
            scan = GroupScan(query.dimensions, partials, query.filter, dictionaries)
            scanned = sum(scan.add_file(file) for file in files)
            table = scan.table()
        except NotCoded:
            return None
        pruned += sum(file.rows for file in files) - scanned
        plain = physical_schema(self._schema, query.dimensions, query.partials, plain=True)
        return CodedRows(pa.Table.from_arrays(table.columns, schema=plain), others, scanned, pruned)

    def _file(
        self,
        local: LocalTable,
        needed: Sequence[str],
        dictionaries: Mapping[str, DimensionCodes],
        partials: Sequence[str],
    ) -> CodedFile | None:
        if local.cuboids.covering(needed) is not None:
            return None
        codes = local.codes
        if codes.lacks(dictionaries, partials):
            row_bytes = _DIMENSION_BYTES * len(dictionaries) + _MEASURE_BYTES * len(partials)
            with self._lock:
                self._made.add(codes)
                taken_bytes = sum(each.nbytes for each in self._made)
            if taken_bytes + local.rows * row_bytes > self._bytes_max:
                return None
            if local.fragment is not None:
                local.fragment.verify()
        return codes.file(local.table, dictionaries, partials)

    def _of_dimensions(self, names: Sequence[str]) -> dict[str, DimensionCodes]:
        with self._lock:
            for name in names:
                if name not in self._dictionaries:
                    kind = arrow_type(self._schema.dimension_type(name))
                    self._dictionaries[name] = DimensionCodes(kind)
            return {name: self._dictionaries[name] for name in names}

    def _has_doubles(self, names: Sequence[str]) -> bool:
        return any(self._schema.dimension_type(name).kind == "double" for name in names)


def to_local(table: pa.Table) -> pa.Table:
    """Return a plain table of foldable partials in local form."""
    arrays = [
        column.combine_chunks().dictionary_encode().cast(LOCAL_STRING)
        if pa.types.is_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.Table.from_arrays(arrays, names=table.column_names)

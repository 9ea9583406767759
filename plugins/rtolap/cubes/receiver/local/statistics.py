"""Statistics of a memory table's columns, so that a predicate that excludes it need not read it.

Smallest and largest values and the number of nulls, as a fragment's header has them, and the dictionaries of
strings, which hold every value that occurs. Gathered at the first request for a column and kept: most tables
are merged away before any query needs them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.filter import mask
from rtolap.columnar.groups import single_chunk
from rtolap.cubes.format.ranges import ColumnRange, can_match, column_range
from rtolap.model.predicate import And, Compare, In, Like, Or, Predicate, columns_of


class TableStatistics:
    """The statistics of one immutable table. Thread-safe: two threads may at worst gather the same twice."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._ranges: dict[str, ColumnRange] = {}

    def excludes(self, predicate: Predicate | None) -> bool:
        """True only when no row can be kept."""
        if predicate is None or not self._table.num_rows:
            return False
        if not self._is_member(predicate):
            return True
        names = [name for name in columns_of(predicate) if name in self._table.column_names]
        types = {name: self._table.schema.field(name).type for name in names}
        may_match: bool = can_match({name: self._range(name) for name in names}, types, predicate)
        return not may_match

    def _range(self, name: str) -> ColumnRange:
        if name not in self._ranges:
            self._ranges[name] = column_range(single_chunk(self._table.column(name)))
        return self._ranges[name]

    def _is_member(self, predicate: Predicate) -> bool:
        """Return True if some value of the dictionaries may be kept; a column without a dictionary is never
        ruled out."""
        match predicate:
            case And(terms=terms):
                return all(map(self._is_member, terms))
            case Or(terms=terms):
                return any(map(self._is_member, terms))
            case Compare(column=name) | In(column=name) | Like(column=name) if self._is_coded(name):
                dictionary = single_chunk(self._table.column(name)).dictionary
                kept: bool = pc.any(mask(pa.table({name: dictionary}), predicate), min_count=0).as_py()
                return kept
            case _:
                return True

    def _is_coded(self, name: str) -> bool:
        at = self._table.schema.get_field_index(name)
        return at >= 0 and bool(pa.types.is_dictionary(self._table.schema.field(at).type))

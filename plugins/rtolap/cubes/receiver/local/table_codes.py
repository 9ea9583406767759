"""Columns of one immutable local table as codes and numbers, for statements that come for the first time.

Each column is made when a statement first needs it, and is there for as long as the table. Tables of a cube
share the codes of a dimension, so that a condition is judged once a value and not once a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from rtolap.columnar.chunks import single_chunk
from rtolap.scan.columns import (
    CodedColumn,
    CodedFile,
    DimensionCodes,
    MeasureColumn,
    coded_column,
    measure_column,
)


class TableCodes:
    """The columns made so far. Thread-safe: at worst two threads make the same column twice.

    Attributes:
        nbytes: bytes of these columns.
    """

    __slots__ = ("__weakref__", "_dimensions", "_measures", "nbytes")

    def __init__(self) -> None:
        self._dimensions: dict[str, tuple[DimensionCodes, CodedColumn | None]] = {}
        self._measures: dict[str, MeasureColumn | None] = {}
        self.nbytes = 0

    def lacks(self, dictionaries: Mapping[str, DimensionCodes], partials: Sequence[str]) -> bool:
        """Return True if one of these columns has to be made first."""
        return any(
            name not in self._dimensions or self._dimensions[name][0] is not dictionary
            for name, dictionary in dictionaries.items()
        ) or any(name not in self._measures for name in partials)

    def file(
        self, table: pa.Table, dictionaries: Mapping[str, DimensionCodes], partials: Sequence[str]
    ) -> CodedFile | None:
        """Return these columns of the table; None if one of them has too many values or too large ones.

        Args:
            table: the table in local form, always the same.
            dictionaries: those of the dimensions, by name.
            partials: names of foldable partials.
        """
        dimensions: dict[str, CodedColumn] = {}
        for name, dictionary in dictionaries.items():
            column = self._dimension(table, name, dictionary)
            if column is None:
                return None
            dimensions[name] = column
        measures: dict[str, MeasureColumn] = {}
        for name in partials:
            measure = self._measure(table, name)
            if measure is None:
                return None
            measures[name] = measure
        return CodedFile(table.num_rows, dimensions, measures, frozenset())

    def _dimension(self, table: pa.Table, name: str, dictionary: DimensionCodes) -> CodedColumn | None:
        of, column = self._dimensions.get(name, (None, None))
        if of is not dictionary:
            column = coded_column(dictionary, single_chunk(table.column(name)))
            self._dimensions[name] = (dictionary, column)
            self.nbytes += 0 if column is None else column.nbytes
        return column

    def _measure(self, table: pa.Table, name: str) -> MeasureColumn | None:
        if name not in self._measures:
            column = measure_column(table.column(name))
            self._measures[name] = column
            self.nbytes += 0 if column is None else column.nbytes
        return self._measures[name]

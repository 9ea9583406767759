"""The work that a storage node does on the rows of a scan before it sends them.

| work | the node sends |
|---|---|
| `Partials` | a row for each combination of the group columns, or several of them: the reader merges |
| `TopRows` | a superset of the first rows in an order: the reader sorts and cuts again |

The work comes after the merge by the table's model and after the filter. A node may send more rows than it
has to, so that its memory has a bound; it never sends one that changes the result.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from rtolap.column_types import BIGINT, ColumnType, sum_type

PartialFunction = Literal["rows", "count", "sum", "min", "max"]


class PartialColumn(msgspec.Struct, frozen=True):
    """A column of partial aggregates.

    Attributes:
        name: of the column that is sent.
        function: `rows` counts rows, `count` values that are not null.
        column: the aggregated column; None for `rows`.
    """

    name: str
    function: PartialFunction
    column: str | None = None

    def result_type(self, source: ColumnType | None) -> ColumnType:
        """Return the type of the partials. `source`: of the aggregated column."""
        if source is None or self.function in ("rows", "count"):
            return BIGINT
        return sum_type(source) if self.function == "sum" else source


class Partials(msgspec.Struct, frozen=True):
    """Partial aggregates of the rows, grouped.

    Attributes:
        groups: the columns to group by; empty for all rows together.
        columns: the partials of each group; empty for distinct combinations alone.
    """

    groups: tuple[str, ...]
    columns: tuple[PartialColumn, ...]

    @property
    def sources(self) -> frozenset[str]:
        """The table's columns that the partials are made of."""
        aggregated = {each.column for each in self.columns if each.column is not None}
        return frozenset(self.groups) | aggregated


class SortKey(msgspec.Struct, frozen=True):
    """A column of an order. NaN is the largest double, strings are compared by their bytes."""

    column: str
    descending: bool
    nulls_first: bool


class TopRows(msgspec.Struct, frozen=True):
    """The first rows in an order.

    Attributes:
        keys: the order; empty where any rows do.
        rows: the number of rows.
    """

    keys: tuple[SortKey, ...]
    rows: int

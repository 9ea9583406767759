"""What a body becomes: rows to load, rows that are refused with a reason, and how many of each."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rtolap.base.errors import Refused

REJECTED = pa.schema(
    [pa.field("row", pa.int64()), pa.field("text", pa.string()), pa.field("reason", pa.string())]
)
TEXT_CHARS_MAX = 1024  # of a refused row: what the error log shows of it


@dataclass(frozen=True, slots=True)
class Rejected:
    """`rows` as in REJECTED, in the order of the body: number in the body (from 1), the row's text, why not.

    Texts and reasons are kept up to a bound; `count` counts all of them.
    """

    rows: pa.RecordBatch
    count: int


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """`rows`: by column names of the table, `__delete_sign` last where the load deletes; may be empty.

    `total` = rows + rejected + unselected (those that `where` leaves out).
    """

    rows: pa.RecordBatch
    rejected: Rejected | None
    unselected: int
    total: int


@dataclass(slots=True)
class RowCounts:
    """Of a load so far. `filtered` may also grow by what finds no partition."""

    total: int = 0
    loaded: int = 0
    filtered: int = 0
    unselected: int = 0

    def add(self, batch: DecodedBatch) -> None:
        self.total += batch.total
        self.loaded += batch.rows.num_rows
        self.unselected += batch.unselected
        self.filtered += 0 if batch.rejected is None else batch.rejected.count

    def filter(self, rows: int) -> None:
        """`rows` that were counted as loaded are refused after all."""
        self.loaded -= rows
        self.filtered += rows


def check_ratio(counts: RowCounts, max_filter_ratio: float) -> None:
    """Raises Refused when too large a share of the selected rows is refused."""
    selected = counts.total - counts.unselected
    if counts.filtered and counts.filtered > max_filter_ratio * selected:
        raise Refused(
            "too many filtered rows",
            expected=f"at most {max_filter_ratio:g} of {selected} rows",
            found=counts.filtered,
            action="see the ErrorURL",
        )

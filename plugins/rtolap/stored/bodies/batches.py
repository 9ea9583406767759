"""Results of decoding a body: rows to load, rows that are refused with a reason, and the counts of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.errors import RowsRefused

Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]

REJECTED = pa.schema(
    [pa.field("row", pa.int64()), pa.field("text", pa.string()), pa.field("reason", pa.string())]
)
HELD_RATIO_MAX = 4  # of the memory that rows hold to what their columns count
TEXT_CHARS_MAX = 1024  # of a refused row: what the error log shows of it


@dataclass(frozen=True, slots=True)
class Rejected:
    """Refused rows of a body.

    Attributes:
        rows: by the schema REJECTED, in the order of the body: the row's number from 1, its text, the reason.
            The number of these rows is bounded.
        count: the number of all refused rows.
    """

    rows: pa.RecordBatch
    count: int


class Refusals:
    """Collects what becomes Rejected; texts and reasons of at most `rows_max` rows."""

    def __init__(self, rows_max: int) -> None:
        self.count = 0
        self._rows_max = rows_max
        self._shown: list[tuple[int, str, str]] = []

    @property
    def room(self) -> int:
        """Return how many more rows may be reported."""
        return max(self._rows_max - len(self._shown), 0)

    def add_rejected(
        self, numbers: Longs, texts: Callable[[Longs], list[str]], at: Longs, reasons: list[str]
    ) -> None:
        """Add rejected rows. `at` are their places among the rows that `numbers` and `texts` know; `reasons`
        has at least those of the first `room`."""
        self.count += len(at)
        at = at[: self.room]
        shown = zip(numbers[at].tolist(), texts(at), reasons, strict=False)
        self._shown += [(number, text[:TEXT_CHARS_MAX], reason) for number, text, reason in shown]

    def rejected(self) -> Rejected | None:
        if not self.count:
            return None
        columns = [list(column) for column in zip(*sorted(self._shown), strict=True)] or [[], [], []]
        rows = pa.RecordBatch.from_arrays(
            [pa.array(column, kind.type) for column, kind in zip(columns, REJECTED, strict=True)],
            schema=REJECTED,
        )
        return Rejected(rows, self.count)


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows as they were read.

    Attributes:
        columns: by source name, as text or as a file has typed them.
        numbers: of each row in the body, from 1.
        texts: gives what was written at some places.
        refused: rows that could not be read, which `columns` lacks and `total` counts.
        total: rows that were there.
        absent: by column, rows without it.
    """

    columns: dict[str, pa.Array]
    numbers: Longs
    texts: Callable[[Longs], list[str]]
    refused: Refusals
    total: int
    absent: dict[str, Mask] = field(default_factory=dict)


def together(parts: Sequence[SourceRows]) -> SourceRows:
    """Return the rows of parts with the same columns in the order of their numbers. At most one part has
    refused rows."""
    if len(parts) == 1:
        return parts[0]
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.argsort(numbers)
    place_of = pa.array(order)
    columns = {
        name: pa.concat_arrays([part.columns[name] for part in parts]).take(place_of)
        for name in parts[0].columns
    }
    absent = {
        name: np.concatenate([part.absent.get(name, np.zeros(len(part.numbers), bool)) for part in parts])[
            order
        ]
        for name in columns
        if any(name in part.absent for part in parts)
    }
    firsts = np.cumsum([0] + [len(part.numbers) for part in parts])

    def texts(rows: Longs) -> list[str]:
        at = order[rows]
        part_of = np.searchsorted(firsts, at, "right") - 1
        return [
            parts[part].texts(np.array([place - firsts[part]]))[0]
            for part, place in zip(part_of.tolist(), at.tolist(), strict=True)
        ]

    refused = next((part.refused for part in parts if part.refused.count), parts[0].refused)
    return SourceRows(columns, numbers[order], texts, refused, sum(part.total for part in parts), absent)


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """Rows of a body. `rows`: by column names of the table, `__delete_sign` last where the load deletes; may
    be empty.

    `total` = rows + rejected + unselected (those that `where` leaves out).
    """

    rows: pa.RecordBatch
    rejected: Rejected | None
    unselected: int
    total: int


def unshared(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows that hold about the memory that they count, which bounds what waits for storage nodes.

    A text may be a piece of the block that it was read from, of which nothing else is kept.
    """
    if rows.get_total_buffer_size() <= HELD_RATIO_MAX * rows.nbytes:
        return rows
    return rows.take(pa.array(np.arange(rows.num_rows)))


@dataclass(slots=True)
class RowCounts:
    """Row counts of a load so far. `filtered` may also grow by rows that find no partition."""

    total: int = 0
    loaded: int = 0
    filtered: int = 0
    unselected: int = 0

    def add_batch(self, batch: DecodedBatch) -> None:
        self.total += batch.total
        self.loaded += batch.rows.num_rows
        self.unselected += batch.unselected
        self.filtered += 0 if batch.rejected is None else batch.rejected.count

    def filter(self, rows: int) -> None:
        """Count `rows`, which were counted as loaded, as refused."""
        self.loaded -= rows
        self.filtered += rows


def check_ratio(counts: RowCounts, max_filter_ratio: float) -> None:
    """Raise RowsRefused when too large a share of the selected rows is refused."""
    selected = counts.total - counts.unselected
    if counts.filtered and counts.filtered > max_filter_ratio * selected:
        raise RowsRefused(
            "too many filtered rows",
            expected=f"at most {max_filter_ratio:g} of {selected} rows",
            found=counts.filtered,
            action="see the ErrorURL",
        )

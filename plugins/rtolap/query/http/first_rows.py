"""The first rows of a result: the statement ends with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa


class FirstRows(Iterator[pa.RecordBatch]):
    """Batches up to a number of rows. With the last of them what is read gives back what it holds."""

    def __init__(self, batches: Iterator[pa.RecordBatch], rows_max: int) -> None:
        self._batches = batches
        self._left = rows_max

    def __next__(self) -> pa.RecordBatch:
        if self._left <= 0:
            self.close()
            raise StopIteration
        batch = next(self._batches)
        if batch.num_rows > self._left:
            batch = batch.slice(0, self._left)
        self._left -= batch.num_rows
        return batch

    def close(self) -> None:
        closer: Any = getattr(self._batches, "close", None)
        if closer is not None:
            closer()

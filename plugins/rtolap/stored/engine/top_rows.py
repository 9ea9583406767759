"""The first rows of a scan in an order, within a bound of memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.chunks import single_chunk
from rtolap.model.stored.pushed import TopRows
from rtolap.stored.engine.group_rows import BATCH_BYTES, BATCH_ROWS, gathered, ordered_doubles

WAITING_BYTES_MAX = 64 << 20  # of rows that may be among the first; more are sent, and others begun


def top_rows(batches: Iterable[pa.RecordBatch], top: TopRows) -> Iterator[pa.RecordBatch]:
    """Yield the first rows, and maybe others. Without an order the scan ends after enough rows."""
    if not top.keys:
        yield from _any_rows(batches, top.rows)
        return
    waiting: pa.Table | None = None
    for rows in gathered(batches, BATCH_ROWS, BATCH_BYTES):
        first = _first(rows, top)
        waiting = first if waiting is None else _first(pa.concat_tables([waiting, first]), top)
        if waiting.nbytes > WAITING_BYTES_MAX:
            yield from waiting.to_batches()
            waiting = None
    if waiting is not None:
        yield from waiting.to_batches()


def _any_rows(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    left = rows
    for batch in batches:
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def _first(rows: pa.Table, top: TopRows) -> pa.Table:
    if rows.num_rows <= top.rows:
        return rows
    keys: dict[str, pa.Array] = {}
    order: list[tuple[str, str]] = []
    for place, key in enumerate(top.keys):
        column = single_chunk(rows.column(key.column))
        if column.null_count:
            keys[f"null{place}"] = column.is_null().cast(pa.int8())
            order.append((f"null{place}", "descending" if key.nulls_first else "ascending"))
        keys[f"key{place}"] = _comparable(column)
        order.append((f"key{place}", "descending" if key.descending else "ascending"))
    places = pc.sort_indices(pa.table(keys), sort_keys=order)
    return rows.take(places.slice(0, top.rows)).combine_chunks()


def _comparable(column: pa.Array) -> pa.Array:
    if pa.types.is_floating(column.type):
        return ordered_doubles(column)
    return column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column

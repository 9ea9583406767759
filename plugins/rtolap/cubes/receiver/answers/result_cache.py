"""Results over immutable local tables, so that a statement that comes again reads only what is new.

A dashboard repeats its statements while events arrive. The cache stores two results of such a statement: the
merged result of all tables that its last answer read, and the result over each larger table by itself. The
next answer merges the former with the tables that came since. Where a table was dropped, read again or merged
more than once, the answer starts from the results of single tables.

Results are stored from a statement's second run on, so that single statements cost no memory. `select` reads
no rows of a table, those of a small cuboid, or the table's own. A statement's first run reads the tables by
their codes where it can (see `coded_tables`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import msgspec
import pyarrow as pa

from rtolap.columnar.filter import mask
from rtolap.cubes.format.aggregate import merge_tables
from rtolap.cubes.receiver.answers.coded_tables import CodedTables, to_local
from rtolap.cubes.receiver.local.table_results import Shape
from rtolap.cubes.receiver.local.tables import LocalTable
from rtolap.model.cube import Schema
from rtolap.model.predicate import columns_of
from rtolap.protocols.receiver.messages import PartialQuery

NO_CUBOIDS: Mapping[str, int] = {}
CUBOID_ROWS_FEW = 4096  # reading them takes no longer than a look into an index

SHAPES_MAX = 256  # statements that are remembered, with or without a stored result
TABLE_ROWS_MIN = 4096  # a smaller table is read again: it is about to be merged
ROWS_PER_RESULT_MIN = 2  # a result that is hardly smaller than its table is not worth its memory
COMBINED_PER_CACHE_MIN = 8  # merged results that have room; a larger result is not stored
PIECES_PER_CACHE_MIN = 64  # so many results of single tables
LOOKS_PER_CACHE = 4  # sums that are computed while results of the size of the cache are added


class Selected(NamedTuple):
    """The rows that a query selects, in local form.

    Attributes:
        rows_scanned: number of rows that were read.
        rows_pruned: number of rows that ranges and indexes excluded.
        cuboids: for each cuboid's name, the number of tables for which the cuboid was read.
    """

    table: pa.Table
    rows_scanned: int
    rows_pruned: int
    cuboids: Mapping[str, int] = NO_CUBOIDS


def select(local: LocalTable, query: PartialQuery) -> Selected:
    """Return the rows that the query's filter keeps, with the columns that it wants."""
    columns, predicate = [*query.dimensions, *query.partials], query.filter
    if predicate is not None and local.excludes(predicate):
        return Selected(local.table.select(columns).slice(0, 0), 0, local.rows)
    needed = {*query.dimensions, *columns_of(predicate)}
    cuboid = local.cuboids.covering(needed)
    if cuboid is not None and not _is_narrower(local, query, cuboid.rows):
        rows = cuboid.table.select(columns)
        if predicate is not None:
            rows = rows.filter(mask(cuboid.table, predicate))
        return Selected(rows, cuboid.rows, 0, {cuboid.cuboid.name: 1})
    if local.fragment is not None:
        return Selected(*local.fragment.select(predicate, columns))
    wanted = local.table.select(columns)
    if predicate is not None:
        wanted = wanted.filter(mask(local.table, predicate))
    return Selected(wanted, local.rows, 0)


def _is_narrower(local: LocalTable, query: PartialQuery, rows: int) -> bool:
    """Return True if the index of values leaves fewer than `rows` rows."""
    if query.filter is None or local.fragment is None or rows <= CUBOID_ROWS_FEW:
        return False
    return local.fragment.rows_max(query.filter) < rows


@dataclass(frozen=True)
class _Combined:
    """The merged result of all tables with these tokens."""

    tokens: frozenset[int]
    table: pa.Table

    def beside(self, tables: Sequence[LocalTable]) -> list[LocalTable] | None:
        """Return the tables whose events are not in the result.

        None where the result holds events that no table has.
        """
        fresh: list[LocalTable] = []
        found = 0
        for local in tables:
            results = local.results
            if results.token in self.tokens:
                found += 1
            elif results.members and results.members <= self.tokens:
                found += len(results.members)
            else:
                fresh.append(local)
        return fresh if found == len(self.tokens) else None


_TOO_LARGE = _Combined(frozenset(), pa.table({}))


class ResultCache:
    """The results of one cube. Thread-safe; nothing waits for work that another thread does."""

    def __init__(self, schema: Schema, bytes_max: int, *, table_rows_min: int = TABLE_ROWS_MIN) -> None:
        self._schema = schema
        self._table_rows_min = table_rows_min
        self._codes = CodedTables(schema, bytes_max)  # as much again as results may take
        self._bytes_max = bytes_max
        self._recent: OrderedDict[Shape, _Combined | None] = OrderedDict()
        self._lock = Lock()
        self._added_bytes = 0  # since the last look at the sum

    def merged(self, query: PartialQuery, tables: Sequence[LocalTable]) -> Selected:
        """Return the tables' rows that the query keeps, grouped as it wants them, in local form."""
        shape = shape_of(query)
        with self._lock:
            again = shape in self._recent
            before = self._recent.setdefault(shape, None)
            self._recent.move_to_end(shape)
            while len(self._recent) > SHAPES_MAX:
                self._recent.popitem(last=False)
        if not again or before is _TOO_LARGE:
            return self._once(query, tables)
        return self._with_results(shape, query, tables, before)

    def _once(self, query: PartialQuery, tables: Sequence[LocalTable]) -> Selected:
        """Return the rows without a look at results. In plain form where all tables were read by codes."""
        coded = self._codes.rows(query, tables)
        if coded is None:
            return merged_plainly(self._schema, query, tables)
        if not coded.others:
            return Selected(coded.table, coded.rows_scanned, coded.rows_pruned)
        plain = merged_plainly(self._schema, query, coded.others)
        parts = [part for part in (to_local(coded.table), plain.table) if part.num_rows]
        return Selected(
            self._merge(query, parts),
            coded.rows_scanned + plain.rows_scanned,
            coded.rows_pruned + plain.rows_pruned,
            plain.cuboids,
        )

    def _with_results(
        self, shape: Shape, query: PartialQuery, tables: Sequence[LocalTable], before: _Combined | None
    ) -> Selected:
        fresh = before.beside(tables) if before is not None else None
        parts = [before.table] if before is not None and fresh is not None else []
        scanned, pruned = sum(part.num_rows for part in parts), 0
        cuboids: Counter[str] = Counter()
        for local in tables if fresh is None else fresh:
            chosen = self._of_table(shape, query, local)
            parts.append(chosen.table)
            scanned, pruned = scanned + chosen.rows_scanned, pruned + chosen.rows_pruned
            cuboids.update(chosen.cuboids)
        whole = self._merge(query, parts) if len(parts) != 1 or fresh is None or fresh else parts[0]
        tokens = frozenset(local.results.token for local in tables)
        fits = whole.nbytes * COMBINED_PER_CACHE_MIN <= self._bytes_max
        with self._lock:
            if shape in self._recent:
                self._recent[shape] = _Combined(tokens, whole) if fits else _TOO_LARGE
        if not fits:
            for local in tables:
                local.results.forget(shape)
        elif fresh is None or fresh:
            self._count(whole.nbytes, tables)
        return Selected(whole, scanned, pruned, cuboids)

    def _of_table(self, shape: Shape, query: PartialQuery, local: LocalTable) -> Selected:
        """Return the rows of one table, or its result. A new result is stored."""
        pieces = local.results.pieces(shape)
        if pieces is None:
            chosen = select(local, query)
            if local.rows < self._table_rows_min:
                return chosen
            result = self._merge(query, [chosen.table])
            small = result.nbytes * PIECES_PER_CACHE_MIN <= self._bytes_max
            if small and result.num_rows * ROWS_PER_RESULT_MIN <= local.rows:
                local.results.keep(shape, result)
                self._added_bytes += result.nbytes
            return chosen._replace(table=result)
        if len(pieces) == 1:
            return Selected(pieces[0], pieces[0].num_rows, 0)
        result = self._merge(query, pieces)
        local.results.keep(shape, result)
        return Selected(result, sum(piece.num_rows for piece in pieces), 0)

    def _merge(self, query: PartialQuery, parts: Sequence[pa.Table]) -> pa.Table:
        return merge_tables(self._schema, parts, query.dimensions, query.partials)

    def _count(self, added_bytes: int, tables: Iterable[LocalTable]) -> None:
        """Drop the least recently used statements until the rest is within bounds.

        The sum is computed only once enough bytes have been added.
        """
        with self._lock:
            self._added_bytes += added_bytes
            if self._added_bytes * LOOKS_PER_CACHE < self._bytes_max:
                return
            self._added_bytes = 0
            combined = {
                shape: entry.table.nbytes for shape, entry in self._recent.items() if entry is not None
            }
        results = [local.results for local in tables]
        for each in results:
            each.keep_only(self._recent.keys())
        sizes = {
            shape: size + sum(each.nbytes(shape) for each in results) for shape, size in combined.items()
        }
        over = sum(sizes.values()) - self._bytes_max
        for shape, size in sizes.items():
            if over <= 0:
                return
            over -= size
            with self._lock:
                self._recent.pop(shape, None)
            for each in results:
                each.forget(shape)


def shape_of(query: PartialQuery) -> Shape:
    """Return all that a result depends on beside the tables; values of other types are other statements."""
    return msgspec.json.encode((query.dimensions, query.partials, query.filter))


def merged_plainly(schema: Schema, query: PartialQuery, tables: Iterable[LocalTable]) -> Selected:
    """Return the same as `ResultCache.merged`, out of rows alone."""
    chosen = [select(local, query) for local in tables]
    not_empty = [one.table for one in chosen if one.table.num_rows]
    return Selected(
        merge_tables(schema, not_empty, query.dimensions, query.partials),
        sum(one.rows_scanned for one in chosen),
        sum(one.rows_pruned for one in chosen),
        sum((Counter(one.cuboids) for one in chosen), Counter()),
    )

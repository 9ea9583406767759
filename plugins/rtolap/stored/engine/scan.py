"""Reads a version: which files and blocks can hold something, and their rows merged by the model.

Duplicate and unique tables need no merge: a file after the other, less deleted rows. Aggregate tables with
more than one file are merged key range by key range; there only conditions on keys may be judged before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import FrozenBitMap

from rtolap.base.closeable import Closeable
from rtolap.base.errors import QueryError, Refused
from rtolap.columnar.filter import mask
from rtolap.columnar.literals import place
from rtolap.model.predicate import And, Compare, In, Predicate, Scalar, columns_of
from rtolap.model.stored.schema import SchemaColumn, StoredSchema
from rtolap.stored.engine.files.sorted_file import SortedFile
from rtolap.stored.engine.files.zones import Blocks
from rtolap.stored.engine.key_ranges import key_ranges, piece_rows
from rtolap.stored.engine.rows.columns import DELETE_SIGN, columns_in, file_column, renamed, stored_type
from rtolap.stored.engine.rows.keys import Hashes, hashes
from rtolap.stored.engine.rows.reduce import merge
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.state import Rowset

KEYS_MAX = 4096  # beyond, asking the bloom filters costs more than it spares


class View(NamedTuple):
    """A file as one version sees it."""

    file: SortedFile
    deleted: FrozenBitMap

    @property
    def deleted_rows(self) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """Return the deleted rows, ascending."""
        return np.frombuffer(self.deleted.to_array(), np.uint32)


def scan(
    views: Sequence[View],
    schema: StoredSchema,
    columns: Sequence[str] | None,
    predicate: Predicate | None,
    settings: TabletSettings,
) -> Iterator[pa.RecordBatch]:
    """Yield the named columns of the selected rows, in batches without an order among them.

    NotFound for an unknown column, QueryError for values that do not compare with theirs.
    """
    names = schema.names if columns is None else tuple(columns)
    if not names:
        raise QueryError("nothing to read", expected="at least one column")
    for name in (*names, *columns_of(predicate)):
        schema.named(name)
    needed = columns_of(predicate) | set(names)
    merging = schema.model == "aggregate" and len(views) > 1
    if merging:
        needed |= set(schema.key_names)
    wanted = tuple(column for column in schema.columns if column.name in needed)
    before = _on_keys(predicate, schema) if merging else predicate
    hashes = _point_hashes(before, schema)
    if hashes is not None:
        views = [view for view in views if view.file.may_contain(hashes).any()]
    tables = _merged(views, schema, wanted, before, settings) if merging else _plain(views, wanted, predicate)
    for table in tables:
        selected = table if predicate is None else table.filter(mask(table, predicate))
        if selected.num_rows:
            yield from selected.select(names).combine_chunks().to_batches()


def _plain(
    views: Sequence[View], wanted: Sequence[SchemaColumn], predicate: Predicate | None
) -> Iterator[pa.Table]:
    for view in views:
        blocks = np.flatnonzero(view.file.zones.candidates(predicate, wanted))
        if not len(blocks):
            continue
        rows = LiveRows(view, wanted, keep_deleting=False)
        size = view.file.footer.block_rows
        for block in blocks.tolist():
            yield renamed(rows.slice(block * size, (block + 1) * size), wanted)


def _merged(
    views: Sequence[View],
    schema: StoredSchema,
    wanted: Sequence[SchemaColumn],
    on_keys: Predicate | None,
    settings: TabletSettings,
) -> Iterator[pa.Table]:
    files = [view.file for view in views]
    candidates = [_row_range(file, file.zones.candidates(on_keys, wanted)) for file in files]
    lows = np.array([low for low, _ in candidates], np.int64)
    highs = np.array([high for _, high in candidates], np.int64)
    readers = [LiveRows(view, wanted, keep_deleting=False) for view in views]
    some = tuple(column for column in schema.columns if column in wanted)
    rows_max = piece_rows(((file, columns_in(file.columns, wanted)) for file in files), settings)
    for part in key_ranges(files, rows_max, repeats=False):
        starts, stops = np.maximum(part.starts, lows), np.minimum(part.stops, highs)
        pieces = [
            with_defaults(reader.slice(start, stop), some)
            for reader, start, stop in zip(readers, starts.tolist(), stops.tolist(), strict=True)
            if stop > start
        ]
        if pieces:
            yield renamed(merge(pa.concat_tables(pieces).combine_chunks(), schema), wanted)


class LiveRows:
    """Slices of a view's rows in file columns, less those that are deleted or that only delete others."""

    def __init__(self, view: View, wanted: Sequence[SchemaColumn], *, keep_deleting: bool) -> None:
        file = view.file
        self._deleted = view.deleted_rows
        self._signed = DELETE_SIGN in file.columns
        self._keep_deleting = keep_deleting
        names = columns_in(file.columns, wanted) + [DELETE_SIGN] * self._signed
        # A file without any of the columns still has to say how many rows it has.
        self._reader = file.reader(names or file.columns[:1])

    def slice(self, start: int, stop: int) -> pa.Table:
        return self.numbered(start, stop)[0]

    def numbered(self, start: int, stop: int) -> tuple[pa.Table, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """Return the rows with their numbers in the file."""
        table = self._reader.slice(start, stop)
        numbers = np.arange(start, start + table.num_rows)
        first, last = np.searchsorted(self._deleted, (start, start + table.num_rows))
        keep: Blocks | None = None
        if last > first:
            keep = np.ones(table.num_rows, np.bool_)
            keep[self._deleted[first:last].astype(np.int64) - start] = False
        if self._signed and not self._keep_deleting:
            signs = pc.invert(table.column(DELETE_SIGN)).to_numpy()
            keep = signs if keep is None else keep & signs
            table = table.drop_columns([DELETE_SIGN]) if table.num_columns > 1 else table
        if keep is None:
            return table, numbers
        return table.filter(pa.array(keep)), numbers[keep]


def with_defaults(table: pa.Table, wanted: Sequence[SchemaColumn]) -> pa.Table:
    """Return file columns for all that is wanted, and the delete signs if there are any."""
    whole = renamed(table, wanted).rename_columns([file_column(column.id) for column in wanted])
    if DELETE_SIGN in table.column_names:
        whole = whole.append_column(DELETE_SIGN, table.column(DELETE_SIGN))
    return whole


def _on_keys(predicate: Predicate | None, schema: StoredSchema) -> Predicate | None:
    """Return the terms that hold for all rows of a key or for none."""
    if predicate is None:
        return None
    terms = predicate.terms if isinstance(predicate, And) else (predicate,)
    return And(tuple(term for term in terms if columns_of(term) <= set(schema.key_names)))


def _row_range(file: SortedFile, blocks: Blocks) -> tuple[int, int]:
    """Return the rows from the first to the last of some blocks."""
    block_numbers = np.flatnonzero(blocks)
    if not len(block_numbers):
        return 0, 0
    return int(block_numbers[0]) * file.footer.block_rows, (
        int(block_numbers[-1]) + 1
    ) * file.footer.block_rows


class TabletSnapshot(Closeable):
    """A pinned version of a tablet: as long as it is open, nothing that it reads is deleted.

    Reads as often as wanted, by several threads; `close` unpins. A context manager.
    """

    def __init__(
        self,
        version: int,
        schema: StoredSchema,
        rowsets: Sequence[Rowset],
        views: Sequence[View],
        settings: TabletSettings,
        repin: Callable[[], None],
        unpin: Callable[[], None],
    ) -> None:
        self.version, self.schema, self.rowsets = version, schema, tuple(rowsets)
        self._views, self._settings, self._repin, self._unpin = tuple(views), settings, repin, unpin
        self._open = True

    def by_rowset(self) -> Iterator[tuple[Rowset, tuple[View, ...]]]:
        """Yield files as this version sees them, in order of version."""
        at = 0
        for rowset in self.rowsets:
            yield rowset, self._views[at : at + len(rowset.files)]
            at += len(rowset.files)

    def read(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        schema: StoredSchema | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selected rows, merged by the model, in batches without an order among them.

        `schema`: of this table, older or newer, whose names and columns count; by default the tablet's own.
        NotFound for an unknown column, QueryError for values that do not compare with theirs.
        """
        if not self._open:
            raise Refused(f"version {self.version} is no longer pinned", action="pin it again")
        return scan(self._views, schema or self.schema, columns, predicate, self._settings)

    def share(self) -> TabletSnapshot:
        """Return the same version, pinned once more. Not beside a `close` of this one."""
        if not self._open:
            raise Refused(f"version {self.version} is no longer pinned", action="pin it again")
        self._repin()
        return TabletSnapshot(
            *(self.version, self.schema, self.rowsets, self._views),
            *(self._settings, self._repin, self._unpin),
        )

    def close(self) -> None:
        if self._open:
            self._open = False
            self._unpin()


def _point_hashes(predicate: Predicate | None, schema: StoredSchema) -> Hashes | None:
    """Return hashes of all keys that can be selected, where the predicate names a value for every key column;
    None when they are not few.
    """
    if predicate is None or not schema.keys:
        return None
    terms = predicate.terms if isinstance(predicate, And) else (predicate,)
    columns, combinations = [], 1
    for column in schema.key_columns:
        values = _values(terms, column.name)
        if values is None:
            return None
        kind = stored_type(column)
        places = [place(value, kind) for value in values if value is not None]
        columns.append([pa.scalar(at.value, kind) for at in places if at.exact])
        combinations *= len(columns[-1])
        if combinations > KEYS_MAX:
            return None
    keys = list(product(*columns))
    kinds = [stored_type(column) for column in schema.key_columns]
    return hashes([pa.array([key[at] for key in keys], kind) for at, kind in enumerate(kinds)])


def _values(terms: tuple[Predicate, ...], name: str) -> tuple[Scalar, ...] | None:
    for term in terms:
        match term:
            case Compare(column=column, op="eq", value=value) if column == name:
                return (value,)
            case In(column=column, values=values, negated=False) if column == name:
                return values
    return None

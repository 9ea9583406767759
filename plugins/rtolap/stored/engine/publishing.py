"""A prepared transaction becomes a version: steps 4 to 6, and before them 17 and 18 for partial rows.

Partial rows become whole ones when they are published. By then it is decided what is before them, so every
replica makes the same rows. In memory: `merge_rows_max` partial rows and the rows that these had before,
beside some blocks of the files that are read.

In a unique table a publish deletes the rows that it overwrites, so that reading needs no merge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap, FrozenBitMap

from rtolap.base.errors import Unavailable
from rtolap.columnar.bitmaps import bitmap_of
from rtolap.columnar.chunks import single_chunk
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.engine.core import Core
from rtolap.stored.engine.deletes import FileId, entries_of
from rtolap.stored.engine.disk import disk_error
from rtolap.stored.engine.files.sorted_file import Matches, SortedFile
from rtolap.stored.engine.loading import write_rows
from rtolap.stored.engine.rows.columns import DELETE_SIGN, columns_in, file_column, with_signs
from rtolap.stored.engine.rows.keys import Longs, hashes, rows_below
from rtolap.stored.engine.rows.partial_rows import Former, completed, whole_columns
from rtolap.stored.engine.scan import with_defaults
from rtolap.stored.engine.state import (
    DeletesFile,
    FileMeta,
    Prepared,
    PreparedTxn,
    Published,
    Rowset,
    apply,
    check_publish,
)
from rtolap.stored.engine.steps import completing_folder, pending_folder, published_rowset, rowset_folder

_ROWS_AT_ONCE = 262_144


def decide_prepared(core: Core, prepared: PreparedTxn) -> None:
    """Step 3. Refused when it was aborted meanwhile."""
    attempted = f"preparing transaction {prepared.txn}"
    try:
        core.append(Prepared(prepared), attempted)
    except Unavailable:
        if core.log.stopped is None:  # else the record may be there after all
            core.remove(pending_folder(core.root, prepared.txn))
        raise


class _Made(NamedTuple):
    """Files that a publish has written, and their folder, before it is decided."""

    folder: Path
    metas: tuple[FileMeta, ...]
    files: list[tuple[FileId, SortedFile]]
    deleted: dict[FileId, BitMap]
    deletes: DeletesFile | None


def publish(core: Core, txn: int, version: int) -> None:
    """Do as `Tablet.publish`; under `writing`."""
    attempted = f"publishing transaction {txn} as version {version}"
    core.log.check_running(attempted)
    if not check_publish(core.state, txn, version):
        return
    prepared = core.state.prepared[txn]
    pending = pending_folder(core.root, txn)
    try:
        published = _make(core, prepared, version)
    except OSError as error:
        core.remove(completing_folder(core.root, txn))
        raise disk_error(error, attempted) from error
    record = Published(txn, version, published.deletes, published.metas if prepared.partial else None)
    core.log.append(record, attempted)  # step 5
    rowset = published_rowset(version)
    if published.metas:
        core.move(published.folder, rowset_folder(core.root, rowset))  # step 6
    core.files.put(rowset, [(name, file) for (_, name), file in published.files])
    with core.seeing:
        core.deletes.add_deleted(version, published.deleted)
        core.state = apply(core.state, record)
    if published.folder != pending or not published.metas:
        core.remove(pending)
    core.shorten_log()


def _make(core: Core, prepared: PreparedTxn, version: int) -> _Made:
    """Make the rowset. Raises OSError as the disk does."""
    rowset = Rowset(published_rowset(version), version, version, prepared.files)
    folder = pending_folder(core.root, prepared.txn)
    pending = [SortedFile(folder / meta.name) for meta in prepared.files]
    if core.state.schema.model != "unique" or not pending:
        files = [((rowset.id, meta.name), file) for meta, file in zip(prepared.files, pending, strict=True)]
        return _Made(folder, prepared.files, files, {}, None)
    overwriting = Overwriting(_older(core), core.state.schema)
    metas, files = prepared.files, []
    if prepared.partial:
        folder = completing_folder(core.root, prepared.txn)
        core.disk.remove(folder)  # of an attempt that failed
        core.disk.make_folder(folder)  # step 17
        metas = ()
    for meta, file in zip(prepared.files, pending, strict=True):
        if prepared.partial:
            meta = _complete(core, file, folder / meta.name, overwriting)
            metas = (*metas, meta)
            file = SortedFile(folder / meta.name)
        overwriting.add_file((rowset.id, meta.name), file)
        files.append(((rowset.id, meta.name), file))
    if prepared.partial:
        core.disk.sync_folder(folder)  # step 18
        core.disk.sync_folder(folder.parent)
    deleted = overwriting.deleted
    deletes = core.write_deletes(rowset.id, entries_of(version, deleted)) if deleted else None
    return _Made(folder, metas, files, deleted, deletes)


def _older(core: Core) -> list[Older]:
    state = core.state
    return [
        Older(file_id, file, core.deletes.at(file_id, state.version))
        for rowset in state.rowsets
        for file_id, file in core.files.of(rowset)
    ]


def _complete(core: Core, partial: SortedFile, target: Path, overwriting: Overwriting) -> FileMeta:
    """Copy one file into `target`, synced. OSError as the disk raises it."""
    schema = core.state.schema
    signed = DELETE_SIGN in partial.columns
    columns = whole_columns(schema, signed=signed)
    settings = core.settings

    def tables() -> Iterator[pa.Table]:
        reader = partial.reader(partial.columns)
        for start in range(0, partial.rows, settings.merge_rows_max):
            table = reader.slice(start, start + settings.merge_rows_max)
            yield completed(table, _former(table, overwriting, schema), schema).cast(columns)

    compression, block_rows = settings.load_compression, settings.block_rows
    return write_rows(core.disk, target, columns, schema, compression, block_rows, tables())


def _former(table: pa.Table, overwriting: Overwriting, schema: StoredSchema) -> Former:
    at = np.full(table.num_rows, -1, np.int64)
    known = [whole_columns(schema, signed=True).empty_table()]
    rows = 0
    for other, matches in overwriting.alive(table):
        if not len(matches.mine):
            continue
        signed = DELETE_SIGN in other.file.columns
        names = columns_in(other.file.columns, schema.columns) + [DELETE_SIGN] * signed
        former_rows = with_defaults(other.file.read_rows(matches.mine, names), schema.columns)
        former_rows = with_signs(former_rows)
        at[matches.theirs] = rows + np.arange(former_rows.num_rows)
        rows += former_rows.num_rows
        known.append(former_rows)
    return Former(pa.concat_tables(known).combine_chunks(), at)


class Older(NamedTuple):
    id: FileId
    file: SortedFile
    deleted: FrozenBitMap


class Overwriting:
    """Files of one transaction, in order of arrival, over what is older: the rows that they delete.

    Of every key at most one row is alive. A new row finds it by the hash of the key and deletes it; with a
    sequence column the larger one stays, and of equal ones the later. A null in it is smaller than
    everything.
    """

    def __init__(self, older: Sequence[Older], schema: StoredSchema) -> None:
        self._against = list(older)
        self._schema = schema
        self._keys = [file_column(column_id) for column_id in schema.keys]
        self._found: dict[FileId, BitMap] = {}

    @property
    def deleted(self) -> dict[FileId, BitMap]:
        """Rows to delete so far, of older files and of the new ones."""
        return {file_id: rows for file_id, rows in self._found.items() if rows}

    def add_file(self, file_id: FileId, file: SortedFile) -> None:
        """Add the next file, of complete rows."""
        for start in range(0, file.rows, _ROWS_AT_ONCE):
            for other, matches in self.alive(file.slice(start, start + _ROWS_AT_ONCE, self._keys)):
                new_rows, old_rows = matches.mine, matches.theirs + start
                stays = _stays(file, old_rows, other.file, new_rows, self._schema)
                self._found.setdefault(other.id, BitMap()).update(new_rows[~stays].astype(np.uint32))
                self._found.setdefault(file_id, BitMap()).update(old_rows[stays].astype(np.uint32))
        self._against.append(Older(file_id, file, FrozenBitMap()))

    def alive(self, table: pa.Table) -> Iterator[tuple[Older, Matches]]:
        """Yield rows that are alive so far of some sorted keys, by the file that has them."""
        columns = [single_chunk(table.column(name)) for name in self._keys]
        for other in self._against:
            first = rows_below(columns, [column[0] for column in other.file.sparse_keys()])
            last = rows_below(columns, other.file.last_key(), inclusive=True)
            if last <= first:
                continue
            keys = [column.slice(first, last - first) for column in columns]
            matches = other.file.find(hashes(keys), keys)
            alive = ~_among(matches.mine, other.deleted | self._found.get(other.id, BitMap()))
            yield other, Matches(matches.theirs[alive] + first, matches.mine[alive])


def _among(rows: Longs, deleted: BitMap | FrozenBitMap) -> NDArray[np.bool_]:
    hit = bitmap_of(rows) & deleted
    return np.isin(rows, np.frombuffer(hit.to_array(), np.uint32))


def _stays(
    file: SortedFile, rows: Longs, other: SortedFile, other_rows: Longs, schema: StoredSchema
) -> NDArray[np.bool_]:
    """Return a mask of the pairs in which the older row has the larger sequence."""
    if schema.sequence is None or not len(rows):
        return np.zeros(len(rows), np.bool_)
    name = file_column(schema.sequence)
    new = single_chunk(file.read_rows(rows, [name]).column(0))
    old = single_chunk(other.read_rows(other_rows, [name]).column(0))
    larger = pc.fill_null(pc.greater(old, new), False)
    is_larger = pc.or_(larger, pc.and_(new.is_null(), old.is_valid())) if new.null_count else larger
    return np.asarray(is_larger.to_numpy(zero_copy_only=False))

"""Compaction of an open tablet, steps 9 to 14: many files become one, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap, FrozenBitMap

from rtolap.columnar.bitmaps import bitmap_of
from rtolap.columnar.chunks import single_chunk
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.engine.core import Core
from rtolap.stored.engine.deletes import Deletes, FileId
from rtolap.stored.engine.disk import Disk, disk_error
from rtolap.stored.engine.files.sorted_file import SortedFile
from rtolap.stored.engine.key_ranges import KeyRange, key_ranges, piece_rows
from rtolap.stored.engine.loading import write_rows
from rtolap.stored.engine.rows.columns import DELETE_SIGN, with_signs
from rtolap.stored.engine.rows.keys import Longs
from rtolap.stored.engine.rows.partial_rows import whole_columns
from rtolap.stored.engine.rows.reduce import merge
from rtolap.stored.engine.scan import LiveRows, TabletSnapshot, View, with_defaults
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.state import Compacted, FileMeta, Rowset, apply
from rtolap.stored.engine.steps import (
    compacted_rowset,
    compacting_folder,
    deletes_file,
    file_name,
    rowset_folder,
)

_SIZE_RATIO = 2  # a rowset joins younger ones that are at least half as large together
_FILE, _ROW = "__file", "__row"
_PPM = 1_000_000


# -- which files become which; nothing here changes the tablet ---------------------------------------------


def plan(
    rowsets: Sequence[Rowset], deleted_rows: Mapping[str, int], settings: TabletSettings
) -> tuple[Rowset, ...]:
    """Choose neighbours by version that are worth one run; none when there is nothing to do.

    From the youngest on: a rowset is joined by older ones as long as these are not much larger than all
    younger ones together, so that a row is rewritten about once each time its surroundings double.
    """
    for end in range(len(rowsets), 0, -1):
        run: list[Rowset] = []
        total = 0
        for rowset in reversed(rowsets[:end]):
            if total + rowset.bytes > settings.compaction_bytes_max:
                break
            if run and rowset.bytes > _SIZE_RATIO * total:
                break
            run.insert(0, rowset)
            total += rowset.bytes
        if sum(len(rowset.files) for rowset in run) >= settings.compaction_files_min:
            return tuple(run)
    for rowset in rowsets:
        share_ppm = deleted_rows.get(rowset.id, 0) * _PPM // rowset.rows
        if share_ppm >= settings.rewrite_deleted_ppm and rowset.bytes <= settings.compaction_bytes_max:
            return (rowset,)
    return ()


class Moved(NamedTuple):
    """Mapping from a file's old row numbers to the new ones: `old` ascends, and so does `new`."""

    old: NDArray[np.int64]
    new: NDArray[np.int64]

    def carry(self, deleted: FrozenBitMap) -> BitMap:
        """Return rows that were deleted meanwhile, by their new numbers; less those that did not come
        along.
        """
        rows = np.frombuffer(deleted.to_array(), np.uint32).astype(np.int64)
        at = np.searchsorted(self.old, rows)
        known = at < len(self.old)
        known[known] = self.old[at[known]] == rows[known]
        return bitmap_of(self.new[at[known]])


class CompactionOutcome(NamedTuple):
    """The result of a compaction.

    Attributes:
        moved: the moved rows by input file, for unique tables.
    """

    files: tuple[FileMeta, ...]
    moved: tuple[Moved, ...]


def run(
    views: Sequence[View], schema: StoredSchema, disk: Disk, folder: Path, settings: TabletSettings
) -> CompactionOutcome:
    """Merge views, in order of version, into one file in `folder`. Raises OSError as the disk does."""
    unique = schema.model == "unique"
    # A deleting row has done its work when it was published; only an older sequence could still come.
    keep_deleting = unique and schema.sequence is not None
    signed = keep_deleting and any(DELETE_SIGN in view.file.columns for view in views)
    path = folder / file_name(0)
    places: list[pa.Table] = []

    def tables() -> Iterator[pa.Table]:
        rows_max = piece_rows(((view.file, view.file.columns) for view in views), settings)
        for table in _tables(views, schema, rows_max, keep_deleting):
            if unique:
                places.append(table.select([_FILE, _ROW]))
            yield with_signs(table) if signed else table

    columns, compression = whole_columns(schema, signed=signed), settings.compaction_compression
    meta = write_rows(disk, path, columns, schema, compression, settings.block_rows, tables())
    if not meta.rows:
        disk.remove(path)
        return CompactionOutcome(
            (), tuple(Moved(np.zeros(0, np.int64), np.zeros(0, np.int64)) for _ in views)
        )
    return CompactionOutcome((meta,), _moves(places, len(views)) if unique else ())


def _tables(
    views: Sequence[View], schema: StoredSchema, rows_max: int, keep_deleting: bool
) -> Iterator[pa.Table]:
    """Yield merged tables, sorted, in file columns; those of unique tables say where each row was."""
    readers = [LiveRows(view, schema.columns, keep_deleting=keep_deleting) for view in views]
    for part in _parts(views, schema, rows_max):
        pieces = []
        spans = zip(part.starts.tolist(), part.stops.tolist(), strict=True)
        for at, (reader, (start, stop)) in enumerate(zip(readers, spans, strict=True)):
            if stop <= start:
                continue
            table, numbers = reader.numbered(start, stop)
            table = with_defaults(table, schema.columns)
            if schema.model == "unique":
                table = table.append_column(_FILE, pa.array(np.full(len(numbers), at, np.int32)))
                table = table.append_column(_ROW, pa.array(numbers))
            pieces.append(with_signs(table) if keep_deleting else table)
        if pieces:
            whole = pa.concat_tables([piece.select(pieces[0].column_names) for piece in pieces])
            yield whole if part.one_key else merge(whole.combine_chunks(), schema)


def _parts(views: Sequence[View], schema: StoredSchema, rows_max: int) -> Iterator[KeyRange]:
    """Yield key ranges, none much longer than `rows_max`; without keys simply one file after the other."""
    files = [view.file for view in views]
    whole = np.array([file.rows for file in files], np.int64)
    ranges = (
        key_ranges(files, rows_max, repeats=schema.model == "duplicate")
        if schema.keys
        else [KeyRange(np.zeros(len(files), np.int64), whole, one_key=True)]
    )
    for part in ranges:
        if not part.one_key:
            yield part
            continue
        for at in range(len(files)):
            for start in range(int(part.starts[at]), int(part.stops[at]), rows_max):
                starts = np.zeros(len(files), np.int64)
                stops = np.zeros(len(files), np.int64)
                starts[at], stops[at] = start, min(start + rows_max, int(part.stops[at]))
                yield KeyRange(starts, stops, one_key=True)


def _moves(places: list[pa.Table], files: int) -> tuple[Moved, ...]:
    whole = pa.concat_tables(places)
    of_file: Longs = single_chunk(whole.column(_FILE)).to_numpy()
    rows: Longs = single_chunk(whole.column(_ROW)).to_numpy()
    moves = []
    for at in range(files):
        new = np.flatnonzero(of_file == at)
        moves.append(Moved(rows[new], new))
    return tuple(moves)


# -- steps of a run ----------------------------------------------------------------------------------------


def compact(core: Core, chosen: tuple[Rowset, ...], snapshot: TabletSnapshot) -> None:
    """Put one rowset in the place of `chosen`, neighbours of the snapshot; it runs under `compacting`.

    Corrupted where bytes of `chosen` have changed since they were opened. The tablet is stopped then: whoever
    opens it again finds the damage, and another replica has the rows.
    """
    name = compacted_rowset(core.state.serial)
    attempted = f"compacting {chosen[0].id} to {chosen[-1].id}"
    folder = compacting_folder(core.root, name)
    inputs: list[FileId] = [(rowset.id, meta.name) for rowset in chosen for meta in rowset.files]
    outcome = _merge(core, chosen, snapshot, name, attempted)
    files = [(meta.name, SortedFile(folder / meta.name)) for meta in outcome.files]
    output = Rowset(name, chosen[0].first, chosen[-1].last, outcome.files)
    with core.writing:
        core.log.check_running(attempted)
        remaining = core.deletes.without([rowset.id for rowset in chosen], snapshot.version)
        _carry(core.deletes, remaining, inputs, output, outcome, snapshot.version)
        entries = remaining.entries()
        try:
            meta = core.write_deletes(name, entries) if entries else None  # step 11
        except OSError as error:
            core.remove(folder)
            raise disk_error(error, attempted) from error
        stale = core.state.deletes
        record = Compacted(tuple(rowset.id for rowset in chosen), output, snapshot.version, meta)
        core.log.append(record, attempted)  # step 12
        if outcome.files:
            core.move(folder, rowset_folder(core.root, name))  # step 13
        core.files.put(name, files)
        with core.seeing:
            core.deletes = remaining
            core.state = apply(core.state, record)
        for old in stale:
            core.remove(deletes_file(core.root, old.name))
        if not outcome.files:
            core.remove(folder)
        core.shorten_log()
    core.files.retire(rowset.id for rowset in chosen)  # step 14


def _merge(
    core: Core, chosen: tuple[Rowset, ...], snapshot: TabletSnapshot, name: str, attempted: str
) -> CompactionOutcome:
    """Run steps 9 and 10.

    The inputs are mapped, and the output gets checksums of its own: what the disk has lost of them since they
    were opened would never be seen again. They are verified before they are read, for Arrow trusts what it
    reads, and afterwards, for what was lost meanwhile.
    """
    folder = compacting_folder(core.root, name)
    views = [view for rowset, file_views in snapshot.by_rowset() if rowset in chosen for view in file_views]
    try:
        core.disk.remove(folder)
        core.disk.make_folder(folder)
        core.verify(view.file for view in views)
        outcome = run(views, snapshot.schema, core.disk, folder, core.settings)
        core.verify(view.file for view in views)
        core.disk.sync_folder(folder)
        core.disk.sync_folder(folder.parent)
    except OSError as error:
        core.remove(folder)
        raise disk_error(error, attempted) from error
    except Exception:  # of Arrow, say: what is half there must not stay until the tablet is opened again
        core.remove(folder)
        raise
    return outcome


def _carry(
    known: Deletes,
    remaining: Deletes,
    inputs: list[FileId],
    output: Rowset,
    outcome: CompactionOutcome,
    version: int,
) -> None:
    """Carry deletes that were published while a compaction ran from its inputs to its output."""
    if not outcome.files:
        return
    target: FileId = (output.id, outcome.files[0].name)
    by_version: dict[int, BitMap] = {}
    for file_id, moved in zip(inputs, outcome.moved, strict=False):
        for delete_version, rows in known.since(file_id, version):
            by_version.setdefault(delete_version, BitMap()).update(moved.carry(rows))
    for delete_version in sorted(by_version):
        remaining.add_deleted(delete_version, {target: by_version[delete_version]})

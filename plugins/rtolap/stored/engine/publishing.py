"""A prepared transaction becomes a version: steps 4 to 6, and before them 17 and 18 for partial rows."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pyroaring import BitMap

from rtolap.base.errors import Unavailable
from rtolap.stored.engine.completing import complete
from rtolap.stored.engine.core import Core
from rtolap.stored.engine.deletes import FileId, entries_of
from rtolap.stored.engine.disk import disk_error
from rtolap.stored.engine.files.sorted_file import SortedFile
from rtolap.stored.engine.records import DeletesFile, FileMeta, Prepared, PreparedTxn, Published, Rowset
from rtolap.stored.engine.rows.overwrites import Older, Overwriting
from rtolap.stored.engine.state import apply, check_publish
from rtolap.stored.engine.steps import completing_folder, pending_folder, published_rowset, rowset_folder


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
    """As `Tablet.publish`; under `writing`."""
    attempted = f"publishing transaction {txn} as version {version}"
    core.check_running(attempted)
    if not check_publish(core.state, txn, version):
        return
    prepared = core.state.prepared[txn]
    pending = pending_folder(core.root, txn)
    try:
        made = _make(core, prepared, version)
    except OSError as error:
        core.remove(completing_folder(core.root, txn))
        raise disk_error(error, attempted) from error
    record = Published(txn, version, made.deletes, made.metas if prepared.partial else None)
    core.log.append(record, attempted)  # step 5
    rowset = published_rowset(version)
    if made.metas:
        core.move(made.folder, rowset_folder(core.root, rowset))  # step 6
    core.files.put(rowset, [(name, file) for (_, name), file in made.files])
    with core.seeing:
        core.deletes.add(version, made.deleted)
        core.state = apply(core.state, record)
    if made.folder != pending or not made.metas:
        core.remove(pending)
    core.shorten_log()


def _make(core: Core, prepared: PreparedTxn, version: int) -> _Made:
    """OSError as the disk raises it."""
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
            meta = complete(core, file, folder / meta.name, overwriting)
            metas = (*metas, meta)
            file = SortedFile(folder / meta.name)
        overwriting.add((rowset.id, meta.name), file)
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

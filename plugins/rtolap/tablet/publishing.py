"""A prepared transaction becomes a version: steps 4 to 6."""

from __future__ import annotations

from pyroaring import BitMap

from rtolap.base.errors import Unavailable
from rtolap.tablet.core import Core
from rtolap.tablet.deletes import FileId, entries_of
from rtolap.tablet.disk import disk_error
from rtolap.tablet.overwrites import Older, overwritten
from rtolap.tablet.records import FileMeta, Prepared, PreparedTxn, Published, Rowset
from rtolap.tablet.sorted_file import SortedFile
from rtolap.tablet.state import apply, check_publish
from rtolap.tablet.steps import pending_folder, published_rowset, rowset_folder


def decide_prepared(core: Core, txn: int, files: tuple[FileMeta, ...]) -> None:
    """Step 3. Refused when it was aborted meanwhile."""
    attempted = f"preparing transaction {txn}"
    try:
        core.append(Prepared(PreparedTxn(txn, files)), attempted)
    except Unavailable:
        if core.log.stopped is None:  # else the record may be there after all
            core.remove(pending_folder(core.root, txn))
        raise


def publish(core: Core, txn: int, version: int) -> None:
    """As `Tablet.publish`; under `writing`."""
    attempted = f"publishing transaction {txn} as version {version}"
    core.check_running(attempted)
    if not check_publish(core.state, txn, version):
        return
    metas = core.state.prepared[txn].files
    rowset = Rowset(published_rowset(version), version, version, metas)
    source = pending_folder(core.root, txn)
    new = [((rowset.id, meta.name), SortedFile(source / meta.name)) for meta in metas]
    deleted = _overwritten(core, new)
    try:
        meta = core.write_deletes(rowset.id, entries_of(version, deleted)) if deleted else None
    except OSError as error:
        raise disk_error(error, attempted) from error
    record = Published(txn, version, meta)
    core.log.append(record, attempted)  # step 5
    if metas:
        core.move(source, rowset_folder(core.root, rowset.id))  # step 6
    core.files.put(rowset.id, [(name, file) for (_, name), file in new])
    with core.seeing:
        core.deletes.add(version, deleted)
        core.state = apply(core.state, record)
    if not metas:
        core.remove(source)
    core.shorten_log()


def _overwritten(core: Core, new: list[tuple[FileId, SortedFile]]) -> dict[FileId, BitMap]:
    state = core.state
    if state.schema.model != "unique" or not new:
        return {}
    older = [
        Older(file_id, file, core.deletes.at(file_id, state.version))
        for rowset in state.rowsets
        for file_id, file in core.files.of(rowset)
    ]
    return overwritten(new, older, state.schema)

"""A compaction of an open tablet: steps 9 to 14. `compaction` says which files become which."""

from __future__ import annotations

from pyroaring import BitMap

from rtolap.stored.engine.compaction import Outcome, run
from rtolap.stored.engine.core import Core
from rtolap.stored.engine.deletes import Deletes, FileId
from rtolap.stored.engine.disk import disk_error
from rtolap.stored.engine.files.sorted_file import SortedFile
from rtolap.stored.engine.records import Compacted, Rowset
from rtolap.stored.engine.snapshot import Snapshot
from rtolap.stored.engine.state import apply
from rtolap.stored.engine.steps import compacted_rowset, compacting_folder, deletes_file, rowset_folder


def compact(core: Core, chosen: tuple[Rowset, ...], snapshot: Snapshot) -> None:
    """Puts one rowset in the place of `chosen`, neighbours of the snapshot; under `compacting`."""
    name = compacted_rowset(core.state.serial)
    attempted = f"compacting {chosen[0].id} to {chosen[-1].id}"
    folder = compacting_folder(core.root, name)
    inputs: list[FileId] = [(rowset.id, meta.name) for rowset in chosen for meta in rowset.files]
    outcome = _merge(core, chosen, snapshot, name, attempted)
    files = [(meta.name, SortedFile(folder / meta.name)) for meta in outcome.files]
    output = Rowset(name, chosen[0].first, chosen[-1].last, outcome.files)
    with core.writing:
        core.check_running(attempted)
        kept = core.deletes.without([rowset.id for rowset in chosen], snapshot.version)
        _carry(core.deletes, kept, inputs, output, outcome, snapshot.version)
        entries = kept.entries()
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
            core.deletes = kept
            core.state = apply(core.state, record)
        for old in stale:
            core.remove(deletes_file(core.root, old.name))
        if not outcome.files:
            core.remove(folder)
        core.shorten_log()
    core.files.retire(rowset.id for rowset in chosen)  # step 14


def _merge(core: Core, chosen: tuple[Rowset, ...], snapshot: Snapshot, name: str, attempted: str) -> Outcome:
    """Steps 9 and 10."""
    folder = compacting_folder(core.root, name)
    views = [view for rowset, file_views in snapshot.by_rowset() if rowset in chosen for view in file_views]
    try:
        core.disk.remove(folder)
        core.disk.make_folder(folder)
        outcome = run(views, snapshot.schema, core.disk, folder, core.settings)
        core.disk.sync_folder(folder)
        core.disk.sync_folder(folder.parent)
    except OSError as error:
        core.remove(folder)
        raise disk_error(error, attempted) from error
    except Exception:  # of Arrow: what is half there must not stay until the tablet is opened again
        core.remove(folder)
        raise
    return outcome


def _carry(
    known: Deletes, kept: Deletes, inputs: list[FileId], output: Rowset, outcome: Outcome, version: int
) -> None:
    """Deletes that were published while a compaction ran, from its inputs to its output."""
    if not outcome.files:
        return
    target: FileId = (output.id, outcome.files[0].name)
    by_version: dict[int, BitMap] = {}
    for file_id, moved in zip(inputs, outcome.moved, strict=False):
        for delete_version, rows in known.since(file_id, version):
            by_version.setdefault(delete_version, BitMap()).update(moved.carry(rows))
    for delete_version in sorted(by_version):
        kept.add_deleted(delete_version, {target: by_version[delete_version]})

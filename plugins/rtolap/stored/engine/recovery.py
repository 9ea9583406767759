"""Recovery when a tablet is opened after a crash: decided steps are finished, all others are discarded."""

from __future__ import annotations

from pathlib import Path

from rtolap.base.errors import Corrupted
from rtolap.stored.engine.disk import RESTORE, Disk
from rtolap.stored.engine.state import TabletState
from rtolap.stored.engine.steps import (
    COMPACTING,
    COMPLETING,
    DELETES,
    FOLDERS,
    PENDING,
    ROWSETS,
    compacting_folder,
    completing_folder,
    pending_folder,
    published_rowset,
    rowset_folder,
)


def tidy(disk: Disk, root: Path, state: TabletState) -> None:
    """Repeat steps 6 and 13, then remove everything without a name. Raises Corrupted for missing files."""
    for name in FOLDERS:
        if not (root / name).is_dir():
            disk.make_folder(root / name)
    publishers = {published_rowset(version): txn for version, txn in state.history}
    for rowset in state.rowsets:
        target = rowset_folder(root, rowset.id)
        if target.is_dir():
            continue
        txn = publishers.get(rowset.id)
        source = compacting_folder(root, rowset.id) if txn is None else _published_from(root, txn)
        if not source.is_dir():
            raise Corrupted(
                f"rowset {rowset.id} of {root} is gone",
                expected=f"{target} or {source}",
                action=RESTORE,
            )
        disk.rename(source, target)
    keep = {
        PENDING: {str(txn) for txn in state.prepared},
        ROWSETS: {rowset.id for rowset in state.rowsets},
        COMPACTING: set[str](),
        COMPLETING: set[str](),
        DELETES: {deletes.name for deletes in state.deletes},
    }
    for folder, names in keep.items():
        for path in sorted((root / folder).iterdir()):
            if path.name not in names:
                disk.remove(path)
        disk.sync_folder(root / folder)
    disk.sync_folder(root)


def _published_from(root: Path, txn: int) -> Path:
    """Return where a transaction is published from. Partial rows are published from their completed rows,
    which no other transaction has."""
    completed = completing_folder(root, txn)
    return completed if completed.is_dir() else pending_folder(root, txn)

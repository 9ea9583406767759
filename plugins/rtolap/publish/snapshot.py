"""Commits of an Iceberg table: files go, files come, in one snapshot; and the end of old snapshots.

pyiceberg's own `overwrite` adds a manifest with each commit. This one joins them as its `append` does.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from pyarrow import fs
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles

log = logging.getLogger(__name__)

ORPHAN_AGE = timedelta(days=1)
_TARGET = "commit.manifest.target-size-bytes"
_COUNT = "commit.manifest.min-count-to-merge"


class _ReplaceFiles(_OverwriteFiles):
    """An overwrite that joins small manifests, and drops those without files."""

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        properties = self._transaction.table_metadata.properties
        alive = [
            manifest
            for manifest in manifests
            if manifest.has_added_files()
            or manifest.has_existing_files()
            or manifest.added_snapshot_id == self._snapshot_id
        ]
        joined = _ManifestMergeManager(
            target_size_bytes=int(properties[_TARGET]),
            min_count_to_merge=int(properties[_COUNT]),
            merge_enabled=True,
            snapshot_producer=self,
        )
        data = [manifest for manifest in alive if manifest.content == ManifestContent.DATA]
        self.kept = joined.merge_manifests(data)
        return [*self.kept, *(each for each in alive if each.content != ManifestContent.DATA)]

    @property
    def superfluous(self) -> set[str]:
        """Return manifests that this commit wrote and then joined into others."""
        return set(self._written_manifests) - {manifest.manifest_path for manifest in self.kept}


def replace_files(
    table: Table, added: Sequence[DataFile], removed: Collection[str], summary: Mapping[str, str]
) -> None:
    """Commit a snapshot without the files whose URIs are in `removed`, and with those in `added`."""
    transaction = table.transaction()
    newest = table.metadata.current_snapshot()
    update = _ReplaceFiles(
        operation=Operation.APPEND if newest is None else Operation.OVERWRITE,
        transaction=transaction,
        io=table.io,
        snapshot_properties=dict(summary),
    )
    for file in added:
        update.append_data_file(file)
    for file in _files(table.io, newest, removed) if removed else ():
        update.delete_data_file(file)
    update.commit()
    transaction.commit_transaction()
    delete_files(table.io, update.superfluous)


def expire(table: Table, snapshot_ids: Sequence[int]) -> None:
    """Remove snapshots from the table, then the metadata files that only they named.

    1. commit            crash: files that nothing names stay until they are swept
    2. delete the files  crash: the same
    """
    gone = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id in set(snapshot_ids)]
    before = {name for snapshot in gone for name in named_by(table.io, snapshot)}
    table.maintenance.expire_snapshots().by_ids(list(snapshot_ids)).commit()
    table.refresh()
    still = {name for snapshot in table.metadata.snapshots for name in named_by(table.io, snapshot)}
    delete_files(table.io, before - still)


def sweep(table: Table) -> None:
    """Delete files in the table's metadata folder that nothing names and that are ORPHAN_AGE old.

    A commit that is on its way has written files that nothing names yet; it does not take that long.
    """
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        return
    scheme, netloc, folder = io.parse_location(f"{table.location()}/metadata", io.properties)
    filesystem = io.fs_by_scheme(scheme, netloc)
    metadata = table.metadata
    named = {table.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
    named |= {name for snapshot in metadata.snapshots for name in named_by(io, snapshot)}
    named |= {each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)}
    names = {name.rpartition("/")[2] for name in named}
    before = datetime.now(UTC) - ORPHAN_AGE
    for info in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        old = info.mtime is not None and info.mtime < before
        if info.type is fs.FileType.File and info.base_name not in names and old:
            filesystem.delete_file(info.path)


def named_by(io: FileIO, snapshot: Snapshot) -> set[str]:
    """Return the metadata files of a snapshot: its list, and the manifests in it."""
    return {snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(io))}


def delete_files(io: FileIO, paths: Iterable[str]) -> None:
    """Delete metadata files that nothing names. One that cannot be deleted is swept later."""
    for path in paths:
        try:
            io.delete(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("metadata file %s stays until it is swept: %s", path, error)


def _files(io: FileIO, snapshot: Snapshot | None, uris: Collection[str]) -> list[DataFile]:
    if snapshot is None:
        return []
    return [
        entry.data_file
        for manifest in snapshot.manifests(io)
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
        if entry.data_file.file_path in uris
    ]

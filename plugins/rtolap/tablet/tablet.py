"""One tablet, open: transactions in, versions out. `steps` has the order of what becomes durable.

Loads, readers and a compaction run beside each other. Records are written one at a time, under `_writing`;
readers wait for none of that: what they see is swapped in at once, under `_seeing`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
from pyroaring import BitMap

from rtolap.base.errors import NotFound, NotYet, Refused, StaleSnapshot, Unavailable
from rtolap.model.predicate import Predicate
from rtolap.model.stored_schema import StoredSchema
from rtolap.tablet import log
from rtolap.tablet.compaction import Outcome, plan, run
from rtolap.tablet.deletes import Deletes, FileId, encode, entries_of, read
from rtolap.tablet.disk import Disk, RealDisk, disk_error, write_file
from rtolap.tablet.files import RowsetFiles
from rtolap.tablet.lock import FolderLock
from rtolap.tablet.overwrites import Older, overwritten
from rtolap.tablet.records import (
    Aborted,
    Compacted,
    DeletesFile,
    FileMeta,
    Prepared,
    PreparedTxn,
    Published,
    Record,
    Rowset,
    SchemaChanged,
    TabletState,
)
from rtolap.tablet.recovery import tidy
from rtolap.tablet.scan import View
from rtolap.tablet.settings import TabletSettings
from rtolap.tablet.snapshot import Snapshot
from rtolap.tablet.sorted_file import SortedFile
from rtolap.tablet.state import apply, check_abort, check_begin, check_publish, check_schema
from rtolap.tablet.steps import (
    DELETES,
    FOLDERS,
    compacted_rowset,
    compacting_folder,
    deletes_file,
    pending_folder,
    published_rowset,
    rowset_folder,
)
from rtolap.tablet.transaction import Transaction


class TabletStatus(msgspec.Struct, frozen=True):
    """`rows` and `bytes` as they lie in files: before merging, deleted ones included."""

    version: int
    floor: int
    rowsets: int
    files: int
    rows: int
    bytes: int
    prepared: tuple[int, ...]
    stopped: str | None


class Tablet:
    """Made by `create` or `open`; for several threads.

    Unavailable, from every method: the disk failed, and nothing visible has changed; or it cannot be known
    what has become durable, and the tablet has stopped until it is opened again.
    """

    def __init__(
        self,
        root: Path,
        disk: Disk,
        settings: TabletSettings,
        folder_lock: FolderLock,
        tablet_log: log.Log,
        state: TabletState,
    ) -> None:
        self._root, self._disk, self._settings = root, disk, settings
        self._folder_lock, self._log, self._state = folder_lock, tablet_log, state
        self._files = RowsetFiles(disk, root)
        self._deletes = Deletes()
        self._writing, self._seeing, self._compacting = threading.Lock(), threading.Lock(), threading.Lock()
        self._begun: dict[int, Transaction] = {}
        for meta in state.deletes:
            self._deletes.load(read(deletes_file(root, meta.name), meta))
        for rowset in state.rowsets:
            self._files.open_all(rowset)

    @classmethod
    def create(
        cls,
        root: Path,
        schema: StoredSchema,
        settings: TabletSettings | None = None,
        disk: Disk | None = None,
    ) -> Tablet:
        """At version 0; what a crash left of an earlier attempt is no hindrance. Refused for a tablet."""
        disk, settings = disk or RealDisk(), settings or TabletSettings()
        state = TabletState(schema=schema)
        try:
            disk.make_folder(root)
            folder_lock = FolderLock(root)
            try:
                if log.generations(root):
                    raise Refused(f"a tablet is in {root} already", action="open it")
                for name in FOLDERS:
                    disk.make_folder(root / name)
                disk.sync_folder(root.parent)
                tablet_log = log.create(disk, root, state, settings.log_bytes_max)
                return cls(root, disk, settings, folder_lock, tablet_log, state)
            except BaseException:
                folder_lock.release()
                raise
        except OSError as error:
            raise disk_error(error, f"creating tablet {root}") from error

    @classmethod
    def open(cls, root: Path, settings: TabletSettings | None = None, disk: Disk | None = None) -> Tablet:
        """Recovers what a crash left, and verifies every byte. Raises NotFound, Corrupted, Refused."""
        disk, settings = disk or RealDisk(), settings or TabletSettings()
        if not log.generations(root):
            raise NotFound(f"no tablet in {root}")
        folder_lock = FolderLock(root)
        try:
            tablet_log, state = log.recover(disk, root, settings.log_bytes_max)
            tidy(disk, root, state)
            return cls(root, disk, settings, folder_lock, tablet_log, state)
        except OSError as error:
            folder_lock.release()
            raise disk_error(error, f"opening tablet {root}") from error
        except BaseException:
            folder_lock.release()
            raise

    def close(self) -> None:
        """Lets others open it. What is not prepared is left to the next opening."""
        self._log.stop("it is closed")
        self._folder_lock.release()

    # What is seen

    @property
    def version(self) -> int:
        return self._state.version

    @property
    def schema(self) -> StoredSchema:
        return self._state.schema

    @property
    def prepared(self) -> tuple[int, ...]:
        """Transactions that wait for publish or abort."""
        return tuple(sorted(self._state.prepared))

    def status(self) -> TabletStatus:
        state = self._state
        return TabletStatus(
            version=state.version,
            floor=state.floor,
            rowsets=len(state.rowsets),
            files=sum(len(rowset.files) for rowset in state.rowsets),
            rows=sum(rowset.rows for rowset in state.rowsets),
            bytes=sum(rowset.bytes for rowset in state.rowsets),
            prepared=tuple(sorted(state.prepared)),
            stopped=self._log.stopped,
        )

    def pin(self, version: int | None = None) -> Snapshot:
        """A version to read, by default the visible one.

        NotYet: it is not visible. StaleSnapshot: compaction has passed it, and nobody had it pinned.
        """
        with self._seeing:
            state = self._state
            wanted = state.version if version is None else version
            if wanted > state.version:
                raise NotYet(f"version {wanted} is not visible", expected=f"at most {state.version}")
            if wanted < state.floor:
                raise StaleSnapshot(
                    f"version {wanted} can no longer be read",
                    expected=f"{state.floor} to {state.version}",
                    action="take a new snapshot",
                )
            seen = tuple(rowset for rowset in state.rowsets if rowset.last <= wanted)
            views = [
                View(file, self._deletes.at(file_id, wanted))
                for rowset in seen
                for file_id, file in self._files.of(rowset)
            ]
            names = [rowset.id for rowset in seen]
            self._files.pin(names)
        unpin = partial(self._files.unpin, names)
        return Snapshot(wanted, state.schema, seen, views, self._settings.merge_rows_max, unpin)

    def read(
        self,
        version: int | None = None,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """`pin` and `Snapshot.read`; unpinned when the batches end or the iterator is closed."""
        with self.pin(version) as snapshot:
            yield from snapshot.read(columns, predicate)

    # What changes it

    def begin(self, txn: int) -> Transaction:
        """Refused while it is begun, prepared or visible."""
        with self._writing:
            self._check_running(f"beginning transaction {txn}")
            check_begin(self._state, txn)
            if txn in self._begun:
                raise Refused(f"transaction {txn} is being loaded", action="abort it first")
            transaction = Transaction(
                txn,
                self._disk,
                pending_folder(self._root, txn),
                self._state.schema,
                self._settings,
                partial(self._decide_prepared, txn),
                partial(self._forget, txn),
            )
            self._begun[txn] = transaction
            return transaction

    def publish(self, txn: int, version: int) -> None:
        """Makes a prepared transaction visible. Repeating it is harmless.

        NotYet: another version comes before. NotFound: it is not prepared. Refused: the version is another's.
        """
        attempted = f"publishing transaction {txn} as version {version}"
        with self._writing:
            self._check_running(attempted)
            if not check_publish(self._state, txn, version):
                return
            metas = self._state.prepared[txn].files
            rowset = Rowset(published_rowset(version), version, version, metas)
            source = pending_folder(self._root, txn)
            new = [((rowset.id, meta.name), SortedFile(source / meta.name)) for meta in metas]
            deleted = self._overwritten(new)
            try:
                meta = self._write_deletes(rowset.id, entries_of(version, deleted)) if deleted else None
            except OSError as error:
                raise disk_error(error, attempted) from error
            record = Published(txn, version, meta)
            self._log.append(record, attempted)  # step 5
            if metas:
                self._move(source, rowset_folder(self._root, rowset.id))  # step 6
            self._files.put(rowset.id, [(name, file) for (_, name), file in new])
            with self._seeing:
                self._deletes.add(version, deleted)
                self._state = apply(self._state, record)
            if not metas:
                self._remove_folder(source)
            self._shorten_log()

    def abort(self, txn: int) -> None:
        """Gives a transaction up; harmless for one that is not there. Refused when it is visible."""
        attempted = f"aborting transaction {txn}"
        with self._writing:
            self._check_running(attempted)
            begun = self._begun.pop(txn, None)
            if check_abort(self._state, txn):
                self._append(Aborted(txn), attempted)  # step 7
                self._remove_folder(pending_folder(self._root, txn))  # step 8
        if begun is not None:
            begun.abort()

    def change_schema(self, schema: StoredSchema) -> None:
        """Loads that have begun keep theirs. DefinitionError when it does not follow the present one."""
        attempted = f"changing the schema to version {schema.version}"
        with self._writing:
            self._check_running(attempted)
            if check_schema(self._state, schema):
                self._append(SchemaChanged(schema), attempted)

    def compact(self) -> bool:
        """One bounded run, if there is something to do. Loads and readers go on meanwhile."""
        with self._compacting:
            self._check_running("compacting")
            with self.pin() as snapshot:
                deleted = {
                    rowset.id: sum(len(view.deleted) for view in views)
                    for rowset, views in snapshot.by_rowset()
                }
                chosen = plan(snapshot.rowsets, deleted, self._settings)
                if chosen:
                    self._compact(chosen, snapshot, compacted_rowset(self._state.serial))
                return bool(chosen)

    def _compact(self, chosen: tuple[Rowset, ...], snapshot: Snapshot, name: str) -> None:
        attempted = f"compacting {chosen[0].id} to {chosen[-1].id}"
        folder = compacting_folder(self._root, name)
        inputs: list[FileId] = [(rowset.id, meta.name) for rowset in chosen for meta in rowset.files]
        views = [view for rowset, mine in snapshot.by_rowset() if rowset in chosen for view in mine]
        try:
            self._disk.remove(folder)
            self._disk.make_folder(folder)  # step 9
            outcome = run(views, snapshot.schema, self._disk, folder, self._settings)
            self._disk.sync_folder(folder)  # step 10
            self._disk.sync_folder(folder.parent)
        except OSError as error:
            self._remove_folder(folder)
            raise disk_error(error, attempted) from error
        made = [(meta.name, SortedFile(folder / meta.name)) for meta in outcome.files]
        output = Rowset(name, chosen[0].first, chosen[-1].last, outcome.files)
        with self._writing:
            self._check_running(attempted)
            kept = self._deletes.without([rowset.id for rowset in chosen], snapshot.version)
            _carry(self._deletes, kept, inputs, output, outcome, snapshot.version)
            entries = kept.entries()
            try:
                meta = self._write_deletes(name, entries) if entries else None  # step 11
            except OSError as error:
                self._remove_folder(folder)
                raise disk_error(error, attempted) from error
            stale = self._state.deletes
            record = Compacted(tuple(rowset.id for rowset in chosen), output, snapshot.version, meta)
            self._log.append(record, attempted)  # step 12
            if outcome.files:
                self._move(folder, rowset_folder(self._root, name))  # step 13
            self._files.put(name, made)
            with self._seeing:
                self._deletes = kept
                self._state = apply(self._state, record)
            for old in stale:
                self._remove_folder(deletes_file(self._root, old.name))
            if not outcome.files:
                self._remove_folder(folder)
            self._shorten_log()
        self._files.retire(rowset.id for rowset in chosen)  # step 14

    # How

    def _decide_prepared(self, txn: int, files: tuple[FileMeta, ...]) -> None:
        attempted = f"preparing transaction {txn}"
        with self._writing:
            if self._begun.pop(txn, None) is None:
                raise Refused(f"transaction {txn} was aborted meanwhile")
            self._check_running(attempted)
            try:
                self._append(Prepared(PreparedTxn(txn, files)), attempted)  # step 3
            except Unavailable:
                if self._log.stopped is None:  # else the record may be there after all
                    self._remove_folder(pending_folder(self._root, txn))
                raise

    def _forget(self, txn: int) -> None:
        self._begun.pop(txn, None)

    def _overwritten(self, new: list[tuple[FileId, SortedFile]]) -> dict[FileId, BitMap]:
        state = self._state
        if state.schema.model != "unique" or not new:
            return {}
        older = [
            Older(file_id, file, self._deletes.at(file_id, state.version))
            for rowset in state.rowsets
            for file_id, file in self._files.of(rowset)
        ]
        return overwritten(new, older, state.schema)

    def _write_deletes(self, name: str, entries: list[tuple[str, str, int, bytes]]) -> DeletesFile:
        data = encode(entries)
        write_file(self._disk, deletes_file(self._root, name), data)  # step 4, or 11
        self._disk.sync_folder(self._root / DELETES)
        return DeletesFile(name, len(data))

    def _append(self, record: Record, attempted: str) -> None:
        self._log.append(record, attempted)
        with self._seeing:
            self._state = apply(self._state, record)

    def _move(self, source: Path, target: Path) -> None:
        """What the log has decided: when it fails, the tablet stops, and recovery does it."""
        try:
            self._disk.rename(source, target)
            self._disk.sync_folder(source.parent)
            self._disk.sync_folder(target.parent)
        except OSError as error:
            self._log.stop(f"{source} was not moved to {target}: {error.strerror}")
            self._check_running(f"moving {source}")

    def _remove_folder(self, path: Path) -> None:
        """Of no use to anybody any more; what the disk does not let go is left to recovery."""
        self._files.remove(path)

    def _shorten_log(self) -> None:
        if self._log.is_long:
            self._log.begin_anew(self._state)  # steps 15 and 16

    def _check_running(self, attempted: str) -> None:
        if self._log.stopped is not None:
            raise Unavailable(
                f"{attempted}: the tablet has stopped", found=self._log.stopped, action="open it again"
            )


def _carry(
    known: Deletes, kept: Deletes, inputs: list[FileId], output: Rowset, outcome: Outcome, version: int
) -> None:
    """Deletes that were published while a compaction ran, from its inputs to its output."""
    if not outcome.files:
        return
    target: FileId = (output.id, outcome.files[0].name)
    by_version: dict[int, BitMap] = {}
    for file_id, moved in zip(inputs, outcome.moved, strict=False):
        for made, rows in known.since(file_id, version):
            by_version.setdefault(made, BitMap()).update(moved.carry(rows))
    for made in sorted(by_version):
        kept.add(made, {target: by_version[made]})

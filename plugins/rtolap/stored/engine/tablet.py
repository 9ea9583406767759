"""A tablet, open: transactions in, versions out. `steps` has the order of what becomes durable.

Loads, readers and a compaction run beside each other: `core` says which of them waits for which.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from rtolap.base.errors import NotFound, NotYet, Refused, StaleSnapshot
from rtolap.base.files import read_from_disk
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.engine import log
from rtolap.stored.engine.compaction import compact, plan
from rtolap.stored.engine.copying import Export
from rtolap.stored.engine.core import Core
from rtolap.stored.engine.disk import RESTORE, Disk, FolderLock, RealDisk, disk_error
from rtolap.stored.engine.publishing import decide_prepared, publish
from rtolap.stored.engine.recovery import tidy
from rtolap.stored.engine.scan import TabletSnapshot, View
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.state import (
    Aborted,
    FileMeta,
    PreparedTxn,
    SchemaChanged,
    TabletState,
    check_abort,
    check_begin,
    check_same_table,
    check_schema,
    version_of,
)
from rtolap.stored.engine.steps import FOLDERS, LOCK, pending_folder
from rtolap.stored.engine.transaction import Transaction


class TabletStatus(msgspec.Struct, frozen=True):
    """The state of a tablet. `rows` and `bytes` count what lies in files, before merging, with deleted
    rows."""

    version: int
    floor: int
    rowsets: int
    files: int
    rows: int
    bytes: int
    prepared: tuple[int, ...]
    stopped: str | None


class Tablet:
    """A tablet that `create` or `open` has made, for several threads. Every method may raise Unavailable: the
    disk failed, and nothing visible has changed; or it cannot be known what has become durable, and the
    tablet has stopped until it is opened again.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._pending: tuple[TabletState, int] | None = None  # files to compact, in that state

    @classmethod
    def create(
        cls,
        root: Path,
        schema: StoredSchema,
        settings: TabletSettings | None = None,
        disk: Disk | None = None,
    ) -> Tablet:
        """Create a tablet at version 0; what a crash left of an earlier attempt is no hindrance. Refused for
        a tablet."""
        disk, settings = disk or RealDisk(), settings or TabletSettings()
        state = TabletState(schema=schema)
        try:
            disk.make_folder(root)
            with _locked(root) as folder_lock:
                if log.generations(root):
                    raise Refused(f"a tablet is in {root} already", action="open it")
                for name in FOLDERS:
                    disk.make_folder(root / name)
                disk.sync_folder(root.parent)
                tablet_log = log.create(disk, root, state, settings.log_bytes_max)
                return cls(Core(root, disk, settings, folder_lock, tablet_log, state))
        except OSError as error:
            raise disk_error(error, f"creating tablet {root}") from error

    @classmethod
    def open(cls, root: Path, settings: TabletSettings | None = None, disk: Disk | None = None) -> Tablet:
        """Open a tablet: recover from a crash, and verify every byte. Raises NotFound, Corrupted, Refused."""
        disk, settings = disk or RealDisk(), settings or TabletSettings()
        if not log.generations(root):
            raise NotFound(f"no tablet in {root}")
        with _locked(root) as folder_lock:
            try:
                with read_from_disk(root, action=RESTORE):
                    tablet_log, state = log.recover(disk, root, settings.log_bytes_max)
                    tidy(disk, root, state)
                    return cls(Core(root, disk, settings, folder_lock, tablet_log, state))
            except OSError as error:
                raise disk_error(error, f"opening tablet {root}") from error

    def close(self) -> None:
        """Close the tablet, so that others can open it. Unprepared rows are left to the next opening; readers
        go on."""
        with self._core.writing:
            self._core.log.stop("it is closed")
        self._core.folder_lock.release()

    # What is seen

    @property
    def version(self) -> int:
        return self._core.state.version

    @property
    def schema(self) -> StoredSchema:
        return self._core.state.schema

    @property
    def prepared_files(self) -> Mapping[int, PreparedTxn]:
        """The transactions that wait for publish or abort, with their files."""
        return self._core.state.prepared

    def has(self, txn: int) -> bool:
        """Return whether it is prepared, or was published and is remembered."""
        state = self._core.state
        return txn in state.prepared or version_of(state, txn) is not None

    def txn_of(self, version: int) -> int | None:
        """Return the transaction of a version, as long as it is remembered."""
        return dict(self._core.state.history).get(version)

    def status(self) -> TabletStatus:
        state = self._core.state
        return TabletStatus(
            version=state.version,
            floor=state.floor,
            rowsets=len(state.rowsets),
            files=sum(len(rowset.files) for rowset in state.rowsets),
            rows=sum(rowset.rows for rowset in state.rowsets),
            bytes=sum(rowset.bytes for rowset in state.rowsets),
            prepared=tuple(sorted(state.prepared)),
            stopped=self._core.log.stopped,
        )

    def pending_files(self) -> int:
        """Return the number of files that the next compaction joins; 0 where there is none to do.

        It is looked for once in each state of the tablet: every report of a node asks all of its tablets.
        """
        if self._core.log.stopped is not None:
            return 0
        state = self._core.state
        if self._pending is None or self._pending[0] is not state:
            with self.pin() as snapshot:
                chosen = plan(snapshot.rowsets, _deleted_rows(snapshot), self._core.settings)
            self._pending = (state, sum(len(rowset.files) for rowset in chosen))
        return self._pending[1]

    def pin(self, version: int | None = None) -> TabletSnapshot:
        """Return a version to read, by default the visible one.

        NotYet: it is not visible. StaleSnapshot: compaction has passed it, and nobody had it pinned.
        """
        with self._core.seeing:
            state = self._core.state
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
                View(file, self._core.deletes.at(file_id, wanted))
                for rowset in seen
                for file_id, file in self._core.files.of(rowset)
            ]
            names = [rowset.id for rowset in seen]
            self._core.files.pin(names)
        repin = functools.partial(self._core.files.pin, names)
        unpin = functools.partial(self._core.files.unpin, names)
        return TabletSnapshot(wanted, state.schema, seen, views, self._core.settings, repin, unpin)

    def export(self, after: int) -> Export:
        """Return an export of what a replica at version `after` lacks; pinned until it is closed."""
        return Export(self._core, after)

    # What changes it

    def begin(self, txn: int, schema: StoredSchema | None = None, *, partial: bool = False) -> Transaction:
        """Begin a transaction. `schema`: that of the rows, older or newer than the tablet's own, which is the
        default. `partial`: rows keep the columns that they do not name as their keys have them at the
        publish.

        Refused while it is begun, prepared or visible. DefinitionError: a schema of another table.
        """
        with self._core.writing:
            self._core.log.check_running(f"beginning transaction {txn}")
            check_begin(self._core.state, txn)
            if schema is not None:
                check_same_table(self._core.state.schema, schema)
            if txn in self._core.begun:
                raise Refused(f"transaction {txn} is being loaded", action="abort it first")
            transaction = Transaction(
                txn,
                self._core.disk,
                pending_folder(self._core.root, txn),
                schema or self._core.state.schema,
                self._core.settings,
                functools.partial(self._prepared, txn),
                functools.partial(self._forget, txn),
                partial=partial,
            )
            self._core.begun[txn] = transaction
            return transaction

    def publish(self, txn: int, version: int) -> None:
        """Make a prepared transaction visible. It may be repeated.

        NotYet: another version comes before. NotFound: it is not prepared. Refused: the version is another's.
        """
        with self._core.writing:
            publish(self._core, txn, version)

    def abort(self, txn: int) -> None:
        """Give a transaction up. It is harmless for an unknown one. Raises Refused when the transaction is
        visible."""
        attempted = f"aborting transaction {txn}"
        with self._core.writing:
            self._core.log.check_running(attempted)
            begun = self._core.begun.pop(txn, None)
            if check_abort(self._core.state, txn):
                self._core.append(Aborted(txn), attempted)  # step 7
                self._core.remove(pending_folder(self._core.root, txn))  # step 8
        if begun is not None:
            begun.abort()

    def change_schema(self, schema: StoredSchema) -> None:
        """Change the schema. Loads that have begun keep theirs. Raises DefinitionError when it does not
        follow the present one."""
        attempted = f"changing the schema to version {schema.version}"
        with self._core.writing:
            self._core.log.check_running(attempted)
            if check_schema(self._core.state, schema):
                self._core.append(SchemaChanged(schema), attempted)

    def compact(self) -> bool:
        """Compact once, bounded, if there is something to do. Loads and readers go on meanwhile."""
        core = self._core
        with core.compacting:
            core.log.check_running("compacting")
            with self.pin() as snapshot:
                chosen = plan(snapshot.rowsets, _deleted_rows(snapshot), core.settings)
                if chosen:
                    compact(core, chosen, snapshot)
                return bool(chosen)

    def verify(self) -> Iterator[int]:
        """Read again what is on the disk, and compare the checksums; yield the bytes of each file.

        Loads, readers and compactions go on meanwhile. Corrupted as `Core.verify` has it.
        """
        core = self._core
        core.log.check_running("verifying")
        yield core.verify_records()
        for rowset in core.state.rowsets:
            core.files.pin((rowset.id,))
            try:
                for file in core.files.opened(rowset):
                    core.verify((file,))
                    yield file.size_bytes
            finally:
                core.files.unpin((rowset.id,))

    def _prepared(self, txn: int, files: tuple[FileMeta, ...], partial: bool) -> None:
        core = self._core
        with core.writing:
            if core.begun.pop(txn, None) is None:
                raise Refused(f"transaction {txn} was aborted meanwhile")
            core.log.check_running(f"preparing transaction {txn}")
            decide_prepared(core, PreparedTxn(txn, files, partial))

    def _forget(self, txn: int) -> None:
        self._core.begun.pop(txn, None)


@contextmanager
def _locked(root: Path) -> Iterator[FolderLock]:
    """Take the lock for a tablet, and give it back where none comes of it."""
    refusal = Refused(f"tablet {root} is open already", action="close it there first")
    folder_lock = FolderLock(root / LOCK, refusal)
    try:
        yield folder_lock
    except BaseException:
        folder_lock.release()
        raise


def _deleted_rows(snapshot: TabletSnapshot) -> dict[str, int]:
    """Return the number of deleted rows of each rowset."""
    return {rowset.id: sum(len(view.deleted) for view in views) for rowset, views in snapshot.by_rowset()}

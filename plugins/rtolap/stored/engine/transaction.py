"""The rows of one transaction in one tablet, until they are prepared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from rtolap.base.errors import Refused
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.engine.disk import Disk, disk_error
from rtolap.stored.engine.loading import FileLoader
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.state import FileMeta

R = TypeVar("R")


class Transaction:
    """A transaction, for one thread. After an error it takes nothing more: what it has written is removed."""

    def __init__(
        self,
        txn: int,
        disk: Disk,
        folder: Path,
        schema: StoredSchema,
        settings: TabletSettings,
        decide: Callable[[tuple[FileMeta, ...], bool], None],
        forget: Callable[[], None],
        *,
        partial: bool = False,
    ) -> None:
        self.txn = txn
        self._disk, self._folder = disk, folder
        self._decide, self._forget = decide, forget
        self._open, self._partial = True, partial
        try:
            disk.remove(folder)  # of an attempt that failed
            disk.make_folder(folder)  # step 1
        except OSError as error:
            raise self._failed(error) from error
        self._loader = FileLoader(disk, folder, schema, settings, partial=partial)

    def add_rows(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows by the names of the schema that the transaction began with; `__delete_sign` deletes by
        key. Partial rows all have the same columns, keys among them.

        DefinitionError: the batch does not fit, and is left out as a whole. Unavailable: the disk failed.
        Refused: a sum needs more than its type holds.
        """
        self._write(lambda: self._loader.add_rows(batch))

    @property
    def memory_bytes(self) -> int:
        """Return the size of rows that are in no file yet."""
        return self._loader.memory_bytes if self._open else 0

    def flush(self) -> None:
        """Write the rows in memory to a file. Unavailable, Refused: as `add_rows`."""
        self._write(self._loader.flush)

    def prepare(self) -> None:
        """Make the rows durable: from here on publish or abort decide. Raises Unavailable, Refused, as
        `add_rows` does."""
        self._decide_on(self._loader.finish, self._partial)

    def adopt(self, fill: Callable[[Disk, Path], tuple[FileMeta, ...]]) -> None:
        """Do as `prepare`, of files that another replica has made of the same rows: `fill` writes them,
        synced, into the transaction's folder. Nothing may have been added. Raises what `fill` raises as
        well."""
        try:
            self._decide_on(lambda: fill(self._disk, self._folder), partial=False)
        except BaseException:
            self.abort()  # or the transaction could not begin again with another copy
            raise

    def _decide_on(self, finish: Callable[[], tuple[FileMeta, ...]], partial: bool) -> None:
        def work() -> tuple[FileMeta, ...]:
            files = finish()
            self._disk.sync_folder(self._folder)  # step 2
            self._disk.sync_folder(self._folder.parent)
            return files

        files = self._write(work)
        self._open = False
        self._decide(files, partial)

    def _write(self, work: Callable[[], R]) -> R:
        self._check_open()
        try:
            return work()
        except OSError as error:
            raise self._failed(error) from error
        except Refused:
            self.abort()
            raise

    def abort(self) -> None:
        """Give up unprepared rows. It is harmless afterwards."""
        try:
            self._give_up()
        except OSError as error:
            raise disk_error(error, f"removing the files of transaction {self.txn}") from error

    def _give_up(self) -> None:
        if self._open:
            self._open = False
            self._forget()
            self._disk.remove(self._folder)

    def _check_open(self) -> None:
        if not self._open:
            raise Refused(f"transaction {self.txn} takes no more rows", action="begin another one")

    def _failed(self, error: OSError) -> Exception:
        try:
            self._give_up()
        except OSError as second:
            error.add_note(f"and its folder cannot be removed before the tablet is opened again: {second}")
        return disk_error(error, f"loading transaction {self.txn}")

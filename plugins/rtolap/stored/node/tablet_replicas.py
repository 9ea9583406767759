"""All tablets of a node, by the names of their tables and partitions. Table ids and incarnations distinguish
a tablet from one of an earlier table or partition."""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from threading import RLock
from typing import TypeVar

import msgspec

from rtolap.base.errors import Corrupted, NotFound, Refused, RtolapError, Unavailable
from rtolap.base.files import fsync_dir
from rtolap.model.stored.schema import StoredSchema
from rtolap.protocols.storage.messages import TabletId
from rtolap.stored.engine.copying import Arriving, complete, write_whole
from rtolap.stored.engine.disk import Disk, RealDisk, disk_error
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.tablet import Tablet
from rtolap.stored.node.folder import MAKING, DataFolder, about, generation, generations, tidy_generations

log = logging.getLogger(__name__)

_Name = tuple[str, str, str, int]
T = TypeVar("T")


class Compaction(msgspec.Struct, frozen=True):
    """The compactions of a replica since the node started, as far as they are known.

    Attributes:
        running_since_ms: of one that runs.
        ended_ms: when one has joined files last.
        problem: why the last attempt failed; "" where it did not.
    """

    running_since_ms: int | None = None
    ended_ms: int | None = None
    problem: str = ""


class TabletReplica:
    """The place of one tablet on this node: opened, reopened after its disk failed, replaced by a copy.

    For several threads. A thread that opens, replaces or closes the tablet holds the lock `changing`."""

    def __init__(self, id: TabletId, place: Path, settings: TabletSettings, disk: Disk) -> None:
        self.id, self.place = id, place
        self._settings, self._disk = settings, disk
        self.changing = RLock()
        self.compaction = Compaction()  # set by the compactor's thread alone
        self.damage = ""  # why it could not be opened last; "" where it could
        self._tablet: Tablet | None = None
        self._closed = False

    @classmethod
    def create(
        cls, id: TabletId, making: Path, settings: TabletSettings, disk: Disk, schema: StoredSchema
    ) -> None:
        """Step 1 of `folder`: a new tablet in a folder that is not in place yet."""
        Tablet.create(generation(making, 1), schema, settings, disk).close()
        fsync_dir(making)

    def open(self) -> Tablet:
        """Return the tablet, opened when it was not, or had stopped.

        Raises Corrupted; Unavailable once closed.
        """
        with self.changing:
            if self._closed:
                raise Unavailable(f"tablet {self.id} is no longer on this node")
            if self._tablet is not None and self._tablet.status().stopped is not None:
                log.warning("tablet %s is reopened: %s", self.id, self._tablet.status().stopped)
                self._tablet.close()
                self._tablet = None
            if self._tablet is None:
                try:
                    self._tablet = self._opened()
                except Corrupted as error:
                    self.damage = str(error)
                    raise
                self.damage = ""
            return self._tablet

    def _opened(self) -> Tablet:
        counts = tidy_generations(self.place)
        if counts is None:
            raise Corrupted(f"tablet {self.id} is gone", expected=f"a generation in {self.place}")
        return Tablet.open(counts, self._settings, self._disk)

    def verify(self) -> Generator[int, None, None]:
        """Verify the tablet, and yield the bytes of each file. Raises Corrupted; Unavailable once closed."""
        try:
            yield from self.open().verify()
        except Corrupted:
            self.open()  # raises what is damaged; a tablet that was replaced meanwhile is whole

    def close(self) -> None:
        with self.changing:
            self._closed = True
            if self._tablet is not None:
                self._tablet.close()

    def replace(self, arriving: Arriving) -> bool:
        """Put a whole copy in the tablet's place, unless the tablet has come as far meanwhile (steps 5 to 7
        of `folder`). Return whether it was put in place. Raises Corrupted, Unavailable.
        """
        with self.changing:
            self.open()  # raises what is to be raised for one that was dropped
            number = generations(self.place)[-1] + 1
        half = generation(self.place, number).with_name(f"g{number}{MAKING}")
        try:
            if half.exists():
                shutil.rmtree(half)
            state = write_whole(self._disk, half, arriving)
            with self.changing:
                old = self.open()
                if state.version <= old.version:
                    shutil.rmtree(half)
                    return False
                old.close()
                self._tablet = None
                before = generation(self.place, number - 1)
                complete(self._disk, half, state, old.prepared_files, before, self._settings.log_bytes_max)
                os.rename(half, generation(self.place, number))
                fsync_dir(self.place)
                self.open()
        except OSError as error:
            raise disk_error(error, f"copying tablet {self.id}") from error
        return True


class TabletReplicas:
    """The replicas of a node. It is thread-safe. It opens all tablets that are in the folder. Those that
    cannot be opened, when the node starts or later, are `broken`: they stay on the disk, and count as lost
    when another replica's copy is to be made."""

    def __init__(self, folder: DataFolder, settings: TabletSettings, disk: Disk | None = None) -> None:
        self._folder, self._settings, self._disk = folder, settings, disk or RealDisk()
        self._lock = RLock()
        self._slots: dict[_Name, TabletReplica] = {}
        self._set_aside: dict[str, str] = {}  # those that could not be opened at the start
        folder.tidy()
        for place in folder.places():
            try:
                slot = TabletReplica(about(place), place, settings, self._disk)
                slot.open()
            except (Corrupted, Refused) as error:
                log.error("the tablet in %s cannot be opened: %s", place, error)
                self._set_aside[place.name] = str(error)
                continue
            self._slots[_name(slot.id)] = slot

    @property
    def broken(self) -> dict[str, str]:
        """Return why tablets cannot be opened, by the names of their folders."""
        return self._set_aside | {slot.place.name: slot.damage for slot in self.all() if slot.damage}

    def find(self, id: TabletId) -> TabletReplica | None:
        with self._lock:
            slot = self._slots.get(_name(id))
        return slot if slot is not None and slot.id == id else None

    def get(self, id: TabletId) -> TabletReplica:
        """Return a replica. Raises NotFound; Unavailable for one that is here and cannot be opened: the
        caller tries another replica."""
        slot = self.find(id)
        if slot is None:
            reason = self._set_aside.get(self._folder.place(id).name)
            if reason is not None:
                raise Unavailable(f"tablet {id} cannot be opened here", found=reason)
            known = self._slots.get(_name(id))
            raise NotFound(
                f"tablet {id} is not here", found="nothing" if known is None else f"tablet {known.id}"
            )
        return slot

    def all(self) -> tuple[TabletReplica, ...]:
        with self._lock:
            return tuple(self._slots[name] for name in sorted(self._slots))

    def open_tablets(self) -> Iterable[tuple[TabletReplica, Tablet]]:
        """Return all that can be opened; what is the matter with the others is logged."""
        for slot in self.all():
            try:
                yield slot, slot.open()
            except RtolapError as error:
                log.warning("tablet %s cannot be opened: %s", slot.id, error)

    def create(self, id: TabletId, schema: StoredSchema) -> TabletReplica | None:
        """Return the slot, new or as it was, its schema not older than this; one of an earlier table or
        incarnation is dropped. None where a later one has its name. Raises Unavailable for a disk that fails.
        """
        with self._lock:
            known = self._slots.get(_name(id))
            if known is not None and known.id.age > id.age:
                return None
            if known is not None and known.id == id:
                try:
                    self.raise_schema(known, schema)
                    return known
                except Corrupted as error:
                    log.error("tablet %s is rebuilt: %s", id, error)
                    known.close()
            try:
                if known is not None and known.id != id:
                    self._drop(known)
                self._set_broken_aside(id)
                TabletReplica.create(id, self._folder.making(id), self._settings, self._disk, schema)
                slot = TabletReplica(id, self._folder.put_in_place(id), self._settings, self._disk)
            except OSError as error:
                raise disk_error(error, f"creating tablet {id}") from error
            slot.open()
            self._slots[_name(id)] = slot
            return slot

    def drop(self, id: TabletId) -> None:
        """Drop the tablet. Harmless when it is gone, or when a later table or incarnation has its name."""
        with self._lock:
            known = self._slots.get(_name(id))
            if known is not None and known.id.age <= id.age:
                try:
                    self._drop(known)
                except OSError as error:
                    raise disk_error(error, f"dropping tablet {id}") from error

    def change_schema(self, table_id: int, db: str, table: str, schema: StoredSchema) -> None:
        of_table = [
            slot
            for slot in self.all()
            if (slot.id.table_id, slot.id.db, slot.id.table) == (table_id, db, table)
        ]
        for_each(of_table, lambda slot: self.raise_schema(slot, schema))

    def raise_schema(self, slot: TabletReplica, schema: StoredSchema) -> None:
        """Give the tablet this schema, unless it has a later one."""
        with slot.changing:
            tablet = slot.open()
            if tablet.schema.version < schema.version:
                tablet.change_schema(schema)

    def close(self) -> None:
        for slot in self.all():
            slot.close()

    def _drop(self, slot: TabletReplica) -> None:
        slot.close()
        self._folder.drop(slot.place)
        del self._slots[_name(slot.id)]

    def _set_broken_aside(self, id: TabletId) -> None:
        """Set a tablet that cannot be opened aside. It makes room for a new one, and its bytes stay."""
        place = self._folder.place(id)
        if place.exists():
            aside = self._folder.root / "broken"
            aside.mkdir(exist_ok=True)
            os.rename(place, aside / f"{place.name}.{uuid.uuid4().hex[:8]}")
            self._set_aside.pop(place.name, None)


def for_each(tablets: Iterable[T], work: Callable[[T], object]) -> None:
    """Do the work for each tablet, and raise the first error when all were tried: one that is damaged keeps
    nobody from the others."""
    first: RtolapError | None = None
    for each in tablets:
        try:
            work(each)
        except RtolapError as error:
            first = first or error
    if first is not None:
        raise first


def _name(id: TabletId) -> _Name:
    return id.db, id.table, id.partition, id.bucket

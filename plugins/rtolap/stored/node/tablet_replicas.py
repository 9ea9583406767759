"""All tablets of a node, by the names of their tables. Table ids distinguish a table from an earlier one."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterable
from threading import RLock

from rtolap.base.errors import Corrupted, NotFound, Refused, RtolapError, Unavailable
from rtolap.model.stored.schema import StoredSchema
from rtolap.protocols.storage.messages import TabletId
from rtolap.stored.engine.disk import Disk, RealDisk, disk_error
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.tablet import Tablet
from rtolap.stored.node.folder import DataFolder, about
from rtolap.stored.node.tablet_replica import TabletReplica

log = logging.getLogger(__name__)

_Name = tuple[str, str, str, int]


class TabletReplicas:
    """Thread-safe. Opens all tablets that are in the folder; those that cannot be opened are `broken`: they
    are kept on the disk, and taken for lost when another replica's copy is to be made."""

    def __init__(self, folder: DataFolder, settings: TabletSettings, disk: Disk | None = None) -> None:
        self._folder, self._settings, self._disk = folder, settings, disk or RealDisk()
        self._lock = RLock()
        self._slots: dict[_Name, TabletReplica] = {}
        self.broken: dict[str, str] = {}
        folder.tidy()
        for place in folder.places():
            try:
                slot = TabletReplica(about(place), place, settings, self._disk)
                slot.open()
            except (Corrupted, Refused) as error:
                log.error("the tablet in %s cannot be opened: %s", place, error)
                self.broken[place.name] = str(error)
                continue
            self._slots[_name(slot.id)] = slot

    def find(self, id: TabletId) -> TabletReplica | None:
        with self._lock:
            slot = self._slots.get(_name(id))
        return slot if slot is not None and slot.id == id else None

    def get(self, id: TabletId) -> TabletReplica:
        """Raises NotFound; Unavailable for one that is here and cannot be opened: the caller tries another
        replica.
        """
        slot = self.find(id)
        if slot is None:
            reason = self.broken.get(self._folder.place(id).name)
            if reason is not None:
                raise Unavailable(f"tablet {id} cannot be opened here", found=reason)
            known = self._slots.get(_name(id))
            raise NotFound(
                f"tablet {id} is not here", found="nothing" if known is None else f"table {known.id.table_id}"
            )
        return slot

    def all(self) -> tuple[TabletReplica, ...]:
        with self._lock:
            return tuple(self._slots[name] for name in sorted(self._slots))

    def open_tablets(self) -> Iterable[tuple[TabletReplica, Tablet]]:
        """All that can be opened; what is the matter with the others is logged."""
        for slot in self.all():
            try:
                yield slot, slot.open()
            except RtolapError as error:
                log.warning("tablet %s cannot be opened: %s", slot.id, error)

    def create(self, id: TabletId, schema: StoredSchema) -> TabletReplica | None:
        """The slot, new or as it was, its schema not older than this; one of an earlier table is dropped.
        None where a later table has its name. Raises Unavailable for a disk that fails."""
        with self._lock:
            known = self._slots.get(_name(id))
            if known is not None and known.id.table_id > id.table_id:
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
        """Harmless when it is gone, or when a later table has its name."""
        with self._lock:
            known = self._slots.get(_name(id))
            if known is not None and known.id.table_id <= id.table_id:
                try:
                    self._drop(known)
                except OSError as error:
                    raise disk_error(error, f"dropping tablet {id}") from error

    def change_schema(self, table_id: int, db: str, table: str, schema: StoredSchema) -> None:
        for slot in self.all():
            if (slot.id.table_id, slot.id.db, slot.id.table) == (table_id, db, table):
                self.raise_schema(slot, schema)

    def raise_schema(self, slot: TabletReplica, schema: StoredSchema) -> None:
        """The tablet has this schema, or keeps a later one."""
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
        """A tablet that cannot be opened makes room for a new one; its bytes stay for who wants them."""
        place = self._folder.place(id)
        if place.exists():
            aside = self._folder.root / "broken"
            aside.mkdir(exist_ok=True)
            os.rename(place, aside / f"{place.name}.{uuid.uuid4().hex[:8]}")
            self.broken.pop(place.name, None)


def _name(id: TabletId) -> _Name:
    return id.db, id.table, id.partition, id.bucket

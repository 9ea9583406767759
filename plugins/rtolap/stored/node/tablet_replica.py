"""The place of one tablet on this node: opened, reopened after its disk failed, replaced by a copy."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from threading import RLock

from rtolap.base.errors import Corrupted, Unavailable
from rtolap.base.files import fsync_dir
from rtolap.model.stored.schema import StoredSchema
from rtolap.protocols.storage.messages import TabletId
from rtolap.stored.engine.copying import Arriving, complete, write_whole
from rtolap.stored.engine.disk import Disk, disk_error
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.tablet import Tablet
from rtolap.stored.node.folder import MAKING, generation, generations, tidy_generations

log = logging.getLogger(__name__)


class TabletReplica:
    """For several threads. `changing` is held by whoever opens, replaces or closes the tablet."""

    def __init__(self, id: TabletId, place: Path, settings: TabletSettings, disk: Disk) -> None:
        self.id, self.place = id, place
        self._settings, self._disk = settings, disk
        self.changing = RLock()
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
        """The tablet, opened when it was not, or had stopped. Raises Corrupted; Unavailable once closed."""
        with self.changing:
            if self._closed:
                raise Unavailable(f"tablet {self.id} is kept here no more")
            if self._tablet is not None and self._tablet.status().stopped is not None:
                log.warning("tablet %s is reopened: %s", self.id, self._tablet.status().stopped)
                self._tablet.close()
                self._tablet = None
            if self._tablet is None:
                counts = tidy_generations(self.place)
                if counts is None:
                    raise Corrupted(f"tablet {self.id} is gone", expected=f"a generation in {self.place}")
                self._tablet = Tablet.open(counts, self._settings, self._disk)
            return self._tablet

    def close(self) -> None:
        with self.changing:
            self._closed = True
            if self._tablet is not None:
                self._tablet.close()

    def replace(self, arriving: Arriving) -> bool:
        """Put a whole copy in the tablet's place, unless that has come as far meanwhile.

        Steps 5 to 7 of `folder`. Whether it was put in place. Raises Corrupted, Unavailable.
        """
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

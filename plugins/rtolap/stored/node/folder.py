"""The data folder of a node, and what is made durable in it in which order.

<data>/node.json                 the id of this folder, made once
<data>/node.lock                 held (flock) by the process that serves it
<data>/tablets/<name>/about.json whose tablet it is
<data>/tablets/<name>/g<n>/      the tablet; the highest whole generation counts

create   1. make tablets/<name>.making with about.json and g1, sync      removed at the next start
         2. rename to tablets/<name>, sync the folder                    there
drop     3. rename to tablets/<name>.dropping, sync the folder           gone; removed at the next start
         4. remove it                                                    gone
copy     5. write g<n + 1>.making: files of another replica, links to    removed at the next start
            what is prepared here, the log; sync
         6. rename to g<n + 1>, sync                                     it counts; the old one is removed
         7. remove g<n>                                                  removed at the next start

What is prepared in a tablet stays prepared over a copy: the vote was given.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from pathlib import Path
from urllib.parse import quote

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted, DefinitionError, Refused
from rtolap.base.files import fsync_dir, read_from_disk, write_atomic
from rtolap.base.undecodable import decode_own
from rtolap.protocols.storage.messages import TabletId
from rtolap.stored.engine.disk import FolderLock

log = logging.getLogger(__name__)

MAKING, DROPPING = ".making", ".dropping"
_ABOUT = "about.json"
_NAME_CHARS_MAX = 200  # file systems take 255 bytes, and the endings need some


class _Node(msgspec.Struct, frozen=True):
    node_id: str


class DataFolder:
    """Made from its beginning to `release`; by one process at a time. Raises Refused while another one has
    it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tablets = root / "tablets"
        self.tablets.mkdir(parents=True, exist_ok=True)
        refusal = Refused(f"data folder {root} is served by another process", action="stop that one first")
        self._lock = FolderLock(root / "node.lock", refusal)
        self.node_id = self._known_id()

    def release(self) -> None:
        self._lock.release()

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free

    def tidy(self) -> None:
        """Remove what a crash left of creations and drops."""
        for path in sorted(self.tablets.iterdir()):
            if path.name.endswith((MAKING, DROPPING)):
                shutil.rmtree(path)

    def places(self) -> list[Path]:
        """Return the folders of all tablets that are there."""
        return sorted(self.tablets.iterdir())

    def place(self, tablet: TabletId) -> Path:
        """Return the folder of a tablet, whether it exists or not. Raises DefinitionError for a name that no
        folder can have. Tablets without an incarnation have the names that earlier versions gave them.
        """
        of = f"{tablet.table_id}-{tablet.incarnation}" if tablet.incarnation else f"{tablet.table_id}"
        name = f"{of}.{quote(tablet.partition, safe='')}.{tablet.bucket}"
        if len(name) > _NAME_CHARS_MAX:
            raise DefinitionError(
                "the name of a partition is too long", expected=f"{_NAME_CHARS_MAX} bytes", found=name
            )
        return self.tablets / name

    def making(self, tablet: TabletId) -> Path:
        """Step 1, before the tablet itself: its folder."""
        folder = self.place(tablet).with_name(self.place(tablet).name + MAKING)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        write_atomic(folder / _ABOUT, msgspec.json.encode(tablet))
        return folder

    def put_in_place(self, tablet: TabletId) -> Path:
        """Step 2."""
        place = self.place(tablet)
        os.rename(place.with_name(place.name + MAKING), place)
        fsync_dir(self.tablets)
        return place

    def drop(self, place: Path) -> None:
        """Drop a tablet (steps 3 and 4). A folder that cannot be removed now is removed at the next start."""
        doomed = place.with_name(f"{place.name}.{uuid.uuid4().hex[:8]}{DROPPING}")
        os.rename(place, doomed)
        fsync_dir(self.tablets)
        try:
            shutil.rmtree(doomed)
        except OSError as error:
            log.warning("%s cannot be removed yet: %s", doomed, error)

    def _known_id(self) -> str:
        path = self.root / "node.json"
        if not path.exists():
            write_atomic(path, msgspec.json.encode(_Node(uuid.uuid4().hex)))
        with read_from_disk(path):
            data = path.read_bytes()
        return decode_own(data, _Node, f"the id of data folder {path.parent}").node_id


def generations(place: Path) -> list[int]:
    """Return the numbers of complete generations, in ascending order."""
    names = [path.name.removeprefix("g") for path in place.glob("g*")]
    return sorted(int(number) for number in names if number.isdigit())


def generation(place: Path, number: int) -> Path:
    return place / f"g{number}"


def tidy_generations(place: Path) -> Path | None:
    """Remove all generations but the one that counts, and return it; None if there is none."""
    for half in place.glob(f"g*{MAKING}"):
        shutil.rmtree(half)
    *old, newest = generations(place) or [0]
    for number in old:
        shutil.rmtree(generation(place, number))
    return generation(place, newest) if newest else None


def about(place: Path) -> TabletId:
    """Return the id of the tablet in a folder. Raises Corrupted."""
    try:
        return decode_json((place / _ABOUT).read_bytes(), TabletId)
    except (OSError, msgspec.MsgspecError) as error:
        raise Corrupted(f"it is not known whose tablet is in {place}", found=str(error)) from error

"""The places of a cube's files in the object store.

    staged/<cube>/<cube id>/<segment>/v<version>/<replica set>-<unique>
    history/<cube>/<cube id>/<segment>/v<version>-<build id>           data of a version
    history/<cube>/<cube id>/<segment>/v<version>-<build id>-vectors   its vectors, see `metadata.vectors`
    batches/<cube>/<cube id>/<batch>                                   staged from another source
    merged/<cube>/<cube id>/<level>/<merge>                            rows of several versions, merged

The cube's id is new for each creation of a cube. Whoever deletes what one creation has left, however late,
names no file of a later one. Folders without an id are of a time when there was none in the path: they are
read, listed and deleted as they were, and nothing is written there any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from rtolap.base.errors import DefinitionError
from rtolap.model.merging.intervals import LEVELS
from rtolap.model.merging.specs import MERGE_ID
from rtolap.model.segment import parse_segment_name
from rtolap.object_store.store import ObjectStore

Root = Literal["staged", "merged", "history", "batches"]
ROOTS: tuple[Root, ...] = ("staged", "merged", "history", "batches")

_CUBE_ID = re.compile(r"[0-9a-f]{32}")
_VERSION = re.compile(r"v(\d+)(?:-.+)?")


class VersionFolder(NamedTuple):
    path: str
    segment: str
    version: int


def creation_folder(root: Root, cube: str, cube_id: str) -> str:
    """Return the folder of a cube's creation. `cube_id` is "" for a cube that has none."""
    return f"{root}/{cube}/{cube_id}" if cube_id else f"{root}/{cube}"


def segment_folders(root: Root, cube: str, cube_id: str, segment: str) -> tuple[str, ...]:
    """Return the folders of a segment, with a cube id in the path and without."""
    return tuple(f"{creation_folder(root, cube, each)}/{segment}" for each in dict.fromkeys((cube_id, "")))


def creations(store: ObjectStore, root: Root, cube: str) -> tuple[str, ...]:
    """Return the ids of the creations that files are left of."""
    return tuple(name for name in store.folders(f"{root}/{cube}") if _CUBE_ID.fullmatch(name))


def folders_without_id(store: ObjectStore, root: Root, cube: str) -> tuple[str, ...]:
    """Return the paths of segments whose folders have no id."""
    return tuple(f"{root}/{cube}/{name}" for name in store.folders(f"{root}/{cube}") if _is_segment(name))


def version_folders(store: ObjectStore, root: Root, cube: str, cube_id: str) -> Iterator[VersionFolder]:
    """Yield every version's folder of this creation, and those without an id; what is named otherwise is left
    alone."""
    for parent in dict.fromkeys((creation_folder(root, cube, cube_id), f"{root}/{cube}")):
        for segment in filter(_is_segment, store.folders(parent)):
            for folder in store.folders(f"{parent}/{segment}"):
                match = _VERSION.fullmatch(folder)
                if match:
                    yield VersionFolder(f"{parent}/{segment}/{folder}", segment, int(match[1]))


def merge_folders(store: ObjectStore, cube: str, cube_id: str) -> Iterator[str]:
    """Yield the folder of every merge of this creation, finished or not."""
    parent = creation_folder("merged", cube, cube_id)
    for level in LEVELS:
        for merge in filter(MERGE_ID.fullmatch, store.folders(f"{parent}/{level}")):
            yield f"{parent}/{level}/{merge}"


def _is_segment(name: str) -> bool:
    try:
        parse_segment_name(name)
    except DefinitionError:
        return False
    return True

"""Tries at writing a folder of history, which never delete what another one has written.

Two drivers may write the same version or the same set: a job that was started a second time by hand, or one
that was taken for dead. The names of a try's files begin with its own mark, so the files of two tries lie
beside each other. The manifest, written last, says which of them count.

| when the second driver ends | it |
|---|---|
| no manifest is there | writes its own |
| a manifest is there | deletes its own files, and reports what is there |
| a manifest comes between its look and its write | replaces it: both name the same rows, and all files stay |

A file that a manifest has named is deleted with its whole folder only, by the coordinator's clean-up. So are
the files of a driver that was killed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from rtolap.cubes.format.manifest import CuboidEntry
from rtolap.object_store.store import ObjectStore

SCRATCH_FOLDER = "_batch"


def new_try() -> str:
    """Return the mark of a new try."""
    return uuid.uuid4().hex[:12]


def file_of(tried: str, name: str) -> str:
    """Return the name that a file has in its cuboid's folder."""
    return f"{tried}-{name}"


def scratch_of(tried: str, location: str) -> str:
    """Return the folder of what a try has not finished. `location`: of its first version."""
    return f"{location}/{SCRATCH_FOLDER}-{tried}"


def drop_try(store: ObjectStore, locations: Sequence[str], tried: str) -> None:
    """Delete the files of a try that has failed: no manifest names them."""
    store.delete_tree(scratch_of(tried, locations[0]))
    for location in locations:
        for file in store.list(location):
            if file.path.rpartition("/")[2].startswith(file_of(tried, "")):
                store.delete(file.path)


def drop_unnamed(
    store: ObjectStore, location: str, written: Sequence[CuboidEntry], named: Sequence[CuboidEntry]
) -> None:
    """Delete the files of a try that came second, but for those that the first one's manifest names."""
    kept = {file.name for entry in named for file in entry.files}
    for entry in written:
        for file in entry.files:
            if file.name not in kept:
                store.delete(f"{location}/{file.name}")

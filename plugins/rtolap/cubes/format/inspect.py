"""Looks at data at rest for people: which kind it is, what its header says, whether every byte is whole.

A place is a `.fragment` file, a folder of fragments, a folder with a manifest (or the manifest itself);
local, or a URI of an object store.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from rtolap.base.errors import NotFound
from rtolap.base.undecodable import decode_own
from rtolap.cubes.format import history
from rtolap.cubes.format.fragment import SUFFIX, fragment_paths, open_fragment
from rtolap.cubes.format.manifest import MANIFEST_NAME
from rtolap.cubes.format.merge_inputs import read_set, verify_set_files
from rtolap.cubes.format.staged import read_staged_manifest, verify_staged
from rtolap.object_store.store import ObjectStore, open_store

Kind = Literal["fragment", "staged", "history", "merged"]
_SHOWN_ROWS = 20


@dataclass(frozen=True)
class StoredData:
    """Data at rest: a fragment, a staged part, a version of history or a merged set.

    Attributes:
        folder: relative to `store` for manifests; fragments have a local path instead.
    """

    kind: Kind
    where: str
    store: ObjectStore | None = None
    folder: str = ""


def find(place: str) -> tuple[StoredData, ...]:
    """Return the artifacts that lie at a place. Raises NotFound when there is nothing of ours."""
    if "://" not in place:
        path = Path(place).absolute()
        if path.suffix == SUFFIX:
            return (StoredData("fragment", str(path)),)
        fragments = fragment_paths(path)
        if fragments:
            return tuple(StoredData("fragment", str(each)) for each in fragments)
        if not path.exists():
            raise _nothing(place)
        place = path.as_uri()
    place = place.removesuffix("/" + MANIFEST_NAME).rstrip("/")
    parent, _, folder = place.rpartition("/")
    store = open_store(parent)
    if not store.exists(f"{folder}/{MANIFEST_NAME}"):
        raise _nothing(place)
    return (StoredData(_manifest_kind(store, folder), place, store, folder),)


def dump(found: StoredData, *, rows_max: int = _SHOWN_ROWS) -> dict[str, Any]:
    """Return header or manifest as plain values; for fragments the first rows too."""
    if found.store is None:
        fragment = open_fragment(Path(found.where), verify=False)
        header: dict[str, Any] = msgspec.to_builtins(fragment.info)
        header["index"] = {name: len(entries) for name, entries in fragment.info.index.items()}
        header["columns"] = {field.name: str(field.type) for field in fragment.table.schema}
        header["first_rows"] = fragment.table.slice(0, rows_max).to_pylist()
        return header
    if found.kind == "history":
        return history.dump(found.store, found.folder)
    if found.kind == "merged":
        merged: dict[str, Any] = msgspec.to_builtins(read_set(found.store, found.folder))
        return merged
    manifest: dict[str, Any] = msgspec.to_builtins(read_staged_manifest(found.store, found.folder))
    return manifest


def verify(found: StoredData) -> int:
    """Read every byte and compare checksums, lengths and row counts; the number of rows. Raises Corrupted."""
    if found.store is None:
        return open_fragment(Path(found.where), verify=True).info.rows
    if found.kind == "history":
        return sum(cuboid.rows for cuboid in history.verify(found.store, found.folder).cuboids)
    if found.kind == "merged":
        return sum(cuboid.rows for cuboid in verify_set_files(found.store, found.folder).cuboids)
    return sum(entry.rows for entry in verify_staged(found.store, found.folder).files)


class _KindOnly(msgspec.Struct):
    kind: Literal["staged", "history", "merged"]


def _manifest_kind(store: ObjectStore, folder: str) -> Kind:
    body = store.read(f"{folder}/{MANIFEST_NAME}").partition(b"\n")[0]
    return decode_own(body, _KindOnly, f"{store.uri(folder)} has no readable manifest").kind


def _nothing(place: str) -> NotFound:
    return NotFound(
        f"nothing of rtolap's at {place}",
        expected=f"a *{SUFFIX} file, or a folder with {MANIFEST_NAME} or fragments",
    )

"""Rows of a unique table that later ones have overwritten: by file, and by the version that did it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import xxhash
from pyroaring import BitMap, FrozenBitMap

from rtolap.base.decoding import decode_msgpack
from rtolap.base.errors import Corrupted
from rtolap.base.files import read_from_disk
from rtolap.stored.engine.disk import RESTORE
from rtolap.stored.engine.state import DeletesFile

FileId = tuple[str, str]  # rowset, file
Deleted = Mapping[FileId, BitMap]
_MAGIC = b"RTOLAPD1"
_HEAD = struct.Struct("<8sQ")
_Entry = tuple[str, str, int, bytes]
_NONE = FrozenBitMap()


class Deletes:
    """Deleted rows of all versions. Results that it returns never change afterwards."""

    def __init__(self) -> None:
        self._by_file: dict[FileId, list[tuple[int, FrozenBitMap]]] = {}
        self._now: dict[FileId, FrozenBitMap] = {}

    def add_deleted(self, version: int, deleted: Deleted) -> None:
        """Add deleted rows. Versions ascend."""
        for file, rows in deleted.items():
            if rows:
                frozen = FrozenBitMap(rows)
                self._by_file.setdefault(file, []).append((version, frozen))
                self._now[file] = self._now.get(file, _NONE) | frozen

    def at(self, file: FileId, version: int) -> FrozenBitMap:
        """Return rows that are deleted when read at a version."""
        known = self._by_file.get(file)
        if known is None:
            return _NONE
        if known[-1][0] <= version:
            return self._now[file]
        return FrozenBitMap.union(_NONE, *(rows for made_version, rows in known if made_version <= version))

    def since(self, file: FileId, version: int) -> list[tuple[int, FrozenBitMap]]:
        """Return the rows that were deleted after a version, by version."""
        return [
            (made_version, rows)
            for made_version, rows in self._by_file.get(file, [])
            if made_version > version
        ]

    def without(self, rowsets: Iterable[str], floor: int) -> Deletes:
        """Return the deletes without those of the `rowsets`, and with everything up to `floor` merged."""
        gone = set(rowsets)
        remaining = Deletes()
        for file, known in self._by_file.items():
            if file[0] in gone:
                continue
            below = FrozenBitMap.union(
                _NONE, *(rows for made_version, rows in known if made_version <= floor)
            )
            versions = [(floor, below)] if below else []
            remaining._by_file[file] = versions + [
                (made_version, rows) for made_version, rows in known if made_version > floor
            ]
            remaining._now[file] = self._now[file]
        return remaining

    def entries(self) -> list[_Entry]:
        return [
            (*file, version, rows.serialize())
            for file, known in self._by_file.items()
            for version, rows in known
        ]

    def load(self, entries: Iterable[_Entry]) -> None:
        for rowset, file, version, rows in sorted(entries, key=lambda entry: entry[2]):
            self.add_deleted(version, {(rowset, file): BitMap.deserialize(rows)})


def entries_of(version: int, deleted: Deleted) -> list[_Entry]:
    return [(*file, version, rows.serialize()) for file, rows in deleted.items() if rows]


def encode(entries: list[_Entry]) -> bytes:
    body = msgspec.msgpack.encode(entries)
    return _HEAD.pack(_MAGIC, xxhash.xxh3_64_intdigest(body)) + body


def read(path: Path, meta: DeletesFile) -> list[_Entry]:
    """Read the deletes. Raises Corrupted."""
    try:
        with read_from_disk(path, action=RESTORE):
            data = path.read_bytes()
    except FileNotFoundError as error:
        raise _damaged(path, meta.bytes, "nothing there") from error
    body = data[_HEAD.size :]
    if len(data) != meta.bytes or data[: _HEAD.size] != _HEAD.pack(_MAGIC, xxhash.xxh3_64_intdigest(body)):
        raise _damaged(path, meta.bytes, f"{len(data)} bytes that do not match their checksum")
    try:
        return decode_msgpack(body, list[_Entry])
    except msgspec.MsgspecError as error:
        raise _damaged(path, meta.bytes, str(error)) from error


def _damaged(path: Path, size_bytes: int, found: str) -> Corrupted:
    return Corrupted(
        f"deletes {path}",
        expected=f"{size_bytes} bytes",
        found=found,
        action=RESTORE,
    )

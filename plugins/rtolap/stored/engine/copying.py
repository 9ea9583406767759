"""A tablet's versions on their way to another replica, as files.

`Export` is the source's side: single versions, where their files are as they were published, or the whole
tablet. It pins what it names. The other side adopts single versions as transactions (`Tablet.adopt`), or
makes a whole tablet in a folder of its own (`write_whole`, then `complete`), which its owner puts in place.

Order on the way: the manifest, then each file that it names, in its order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec

from rtolap.base.decoding import decode_msgpack
from rtolap.base.errors import Corrupted
from rtolap.base.files import read_from_disk
from rtolap.stored.engine import log
from rtolap.stored.engine.core import Core
from rtolap.stored.engine.deletes import encode
from rtolap.stored.engine.disk import RESTORE, Disk
from rtolap.stored.engine.files.sorted_file import SortedFile
from rtolap.stored.engine.state import DeletesFile, FileMeta, PreparedTxn, Rowset, TabletState
from rtolap.stored.engine.steps import (
    DELETES,
    FOLDERS,
    PENDING,
    deletes_file,
    pending_folder,
    published_rowset,
    rowset_folder,
)

MANIFEST = "manifest"
_COPIED_DELETES = "copied"
_CHUNK_BYTES = 1 << 20
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9]+)?")


class CopiedVersion(msgspec.Struct, frozen=True):
    version: int
    txn: int
    files: tuple[FileMeta, ...]


class Manifest(msgspec.Struct, frozen=True):
    """The content of a copy.

    Attributes:
        version: up to which the copy is complete.
        versions: those that are copied; each follows the one before.
        state: without any versions, the whole tablet, less what is prepared there; else None.
    """

    version: int
    versions: tuple[CopiedVersion, ...] = ()
    state: TabletState | None = None


class Chunk(NamedTuple):
    """A part of a file; the parts of one file follow each other."""

    name: str
    data: bytes


class Export:
    """Export of what a replica at version `after` lacks. A context manager: it pins what it names."""

    def __init__(self, core: Core, after: int) -> None:
        self._core = core
        with core.seeing:
            state = core.state
            self._deletes = encode(core.deletes.entries())
            self._pinned = [rowset.id for rowset in state.rowsets]
            core.files.pin(self._pinned)
            self._files = {id: file for rowset in state.rowsets for id, file in core.files.of(rowset)}
        versions = _single_versions(state, after)
        if versions is None:
            meta = (DeletesFile(_COPIED_DELETES, len(self._deletes)),)
            whole = msgspec.structs.replace(state, prepared={}, deletes=meta)
            self.manifest = Manifest(state.version, state=whole)
        else:
            self.manifest = Manifest(state.version, versions=versions)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the manifest, then the files.

        Corrupted where one has changed since it was opened; `Core.verify` then stops the tablet.
        """
        yield Chunk(MANIFEST, msgspec.msgpack.encode(self.manifest))
        whole = self.manifest.state
        for rowset, meta in _files_of(self.manifest):
            path = rowset_folder(self._core.root, rowset) / meta.name
            self._core.verify((self._files[rowset, meta.name],))
            with read_from_disk(path, action=RESTORE), path.open("rb") as file:
                while data := file.read(_CHUNK_BYTES):
                    yield Chunk(_name(rowset, meta), data)
        if whole is not None:
            yield Chunk(DELETES, self._deletes)

    def __enter__(self) -> Export:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._core.files.unpin(self._pinned)


class Arriving:
    """The other side: the manifest, then files, as they come. Corrupted where something else comes."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._next = next(chunks, None)
        try:
            self.manifest = decode_msgpack(b"".join(self._of(MANIFEST)), Manifest)
        except msgspec.MsgspecError as error:
            raise Corrupted("the manifest of a tablet's copy cannot be read", found=str(error)) from error
        _check_names(self.manifest)

    def file(self, rowset: str, meta: FileMeta) -> Iterator[bytes]:
        return self._of(_name(rowset, meta))

    def deletes(self) -> Iterator[bytes]:
        return self._of(DELETES)

    def _of(self, name: str) -> Iterator[bytes]:
        if self._next is None or self._next.name != name:
            found_name = None if self._next is None else self._next.name
            raise Corrupted("a copy of a tablet is not whole", expected=name, found=found_name)
        while self._next is not None and self._next.name == name:
            yield self._next.data
            self._next = next(self._chunks, None)


def filling(arriving: Arriving, version: CopiedVersion) -> Callable[[Disk, Path], tuple[FileMeta, ...]]:
    """Return what fills a folder for `Transaction.adopt`: the files of one version."""

    def fill(disk: Disk, folder: Path) -> tuple[FileMeta, ...]:
        for meta in version.files:
            _write(
                disk, folder / meta.name, arriving.file(published_rowset(version.version), meta), meta.bytes
            )
        return version.files

    return fill


def passing(arriving: Arriving, version: CopiedVersion) -> None:
    """Let the files of a version go by."""
    for meta in version.files:
        for _ in arriving.file(published_rowset(version.version), meta):
            """Nobody needs them."""


def write_whole(disk: Disk, root: Path, arriving: Arriving) -> TabletState:
    """Write everything but the log, durably, in a new folder. Raises OSError of the disk, and Corrupted."""
    state = arriving.manifest.state
    assert state is not None, "single versions are adopted"
    disk.make_folder(root)
    for name in FOLDERS:
        disk.make_folder(root / name)
    for rowset in state.rowsets:
        folder = rowset_folder(root, rowset.id)
        disk.make_folder(folder)
        for meta in rowset.files:
            _write(disk, folder / meta.name, arriving.file(rowset.id, meta), meta.bytes)
            SortedFile(folder / meta.name)  # verified before it replaces what is here
        disk.sync_folder(folder)
    for deletes in state.deletes:
        _write(disk, deletes_file(root, deletes.name), arriving.deletes(), deletes.bytes)
    for name in FOLDERS:
        disk.sync_folder(root / name)
    return state


def complete(
    disk: Disk,
    root: Path,
    state: TabletState,
    prepared: Mapping[int, PreparedTxn],
    prepared_in: Path,
    log_bytes_max: int,
) -> None:
    """End what `write_whole` began. Transactions that are prepared in the replaced tablet come along, unless
    its versions hold them: the vote for them was given and must stay."""
    known = {txn for _, txn in state.history}
    remaining = {txn: each for txn, each in prepared.items() if txn not in known}
    for txn, each in remaining.items():
        folder = pending_folder(root, txn)
        disk.make_folder(folder)
        for meta in each.files:
            disk.link(pending_folder(prepared_in, txn) / meta.name, folder / meta.name)
        disk.sync_folder(folder)
    disk.sync_folder(root / PENDING)
    log.create(disk, root, msgspec.structs.replace(state, prepared=remaining), log_bytes_max)


def _single_versions(state: TabletState, after: int) -> tuple[CopiedVersion, ...] | None:
    """Return None where a version is no longer there by itself."""
    of_version = dict(state.history)
    rowsets: dict[str, Rowset] = {rowset.id: rowset for rowset in state.rowsets}
    single_rowsets = []
    for version in range(after + 1, state.version + 1):
        txn, rowset = of_version.get(version), rowsets.get(published_rowset(version))
        # Below the floor a missing rowset may have been compacted; above it had no rows.
        if txn is None or (rowset is None and version <= state.floor):
            return None
        single_rowsets.append(CopiedVersion(version, txn, rowset.files if rowset else ()))
    return tuple(single_rowsets)


def _files_of(manifest: Manifest) -> Iterator[tuple[str, FileMeta]]:
    if manifest.state is not None:
        for rowset in manifest.state.rowsets:
            yield from ((rowset.id, meta) for meta in rowset.files)
    for version in manifest.versions:
        yield from ((published_rowset(version.version), meta) for meta in version.files)


def _check_names(manifest: Manifest) -> None:
    """Check names, which become paths: only those that this engine gives out (`steps`) are allowed. Raises
    Corrupted."""
    state = manifest.state
    deletes = () if state is None else tuple(each.name for each in state.deletes)
    folders = () if state is None else tuple(rowset.id for rowset in state.rowsets)
    files = tuple(meta.name for _, meta in _files_of(manifest))
    for name in (*deletes, *folders, *files):
        if not _PLAIN_NAME.fullmatch(name):
            raise Corrupted("a copy of a tablet names a strange file", expected="a plain name", found=name)
    if any(name != _COPIED_DELETES for name in deletes) or len(deletes) > 1 or (state and state.prepared):
        raise Corrupted("a copy of a tablet holds what belongs to its source only", found=deletes)


def _name(rowset: str, meta: FileMeta) -> str:
    return f"{rowset}/{meta.name}"


def _write(disk: Disk, path: Path, chunks: Iterator[bytes], size_bytes: int) -> None:
    file = disk.create(path)
    written = 0
    try:
        for data in chunks:
            file.write(data)
            written += len(data)
        file.sync()
    finally:
        file.close()
    if written != size_bytes:
        raise Corrupted(f"the copy of {path.name} is not whole", expected=size_bytes, found=written)

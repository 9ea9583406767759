"""The object store seam: whole files below one root, on local disk, S3 or HDFS, through pyarrow.fs.

Paths are relative to the root and checked. A file is visible whole or not at all:

    local    temporary file, fsync, rename             a crash leaves a temporary file, which is never listed
    S3       one PUT, or the completion of an upload   a crash leaves an unfinished upload, which is no object
    HDFS     temporary file, hsync, rename             a crash leaves a temporary file, which is never listed

Folders are deleted only where the root carries our own marker (`claim`), so that a wrong or forged address
deletes nothing of other owners. Nothing else is relied upon: no rename of folders, no listing right after a
write, no deletion in one step. Nothing here overwrites in place or appends.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from rtolap.base.errors import DefinitionError, NotFound, Refused, Unavailable
from rtolap.base.files import fsync_dir, write_atomic
from rtolap.object_store.address import refuse_pattern, resolve

_CHUNK_BYTES = 1 << 20
_NAMED_MAX = 5
_TEMPORARY_SUFFIX = ".rtolap-tmp"
MARKER = "rtolap-store"
# Of whoever writes into the store: cubes, plans of brokers, and the probe of `rtolap doctor`.
LAYOUT_FOLDERS = frozenset({"staged", "history", "batches", "merged", "fleet", "doctor"})
_SEGMENT = re.compile(r"[A-Za-z0-9_.+=,@~-]+")


class StoredFile(NamedTuple):
    """A file of an object store.

    Attributes:
        path: relative to the store's root.
    """

    path: str
    bytes: int


class ObjectStore:
    """Files below `root` of `fs`. Every method takes paths relative to the root.

    Raises DefinitionError for a path that leaves the root, NotFound for a missing file and Unavailable
    when the store does not answer.
    """

    def __init__(
        self, filesystem: fs.FileSystem, root: str, base_uri: str, spark: Mapping[str, str] | None = None
    ) -> None:
        """Take the settings that make Spark reach the same store under `uri`, in `spark`."""
        self.fs = filesystem
        self.root = root.rstrip("/")
        self.spark_settings: Mapping[str, str] = dict(spark or {})
        self._base_uri = base_uri.rstrip("/")
        self.is_local = isinstance(filesystem, fs.LocalFileSystem)
        self._claimed = False

    def absolute(self, path: str) -> str:
        """Return the path as `fs` wants it."""
        return f"{self.root}/{_checked(path)}" if path else self.root

    def uri(self, path: str) -> str:
        """Return what Hadoop and Iceberg open: the store's URI with `path` behind it, nothing escaped."""
        return f"{self._base_uri}/{_checked(path)}" if path else self._base_uri

    def spark_uri(self, path: str) -> str:
        """Return what Spark opens, given `spark_settings`: Hadoop's name of the S3 file system is s3a.

        Raises DefinitionError for a store whose path is a pattern to Spark.
        """
        refuse_pattern(self.root)
        uri = self.uri(path)
        return "s3a" + uri.removeprefix("s3") if uri.startswith("s3://") else uri

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file in one step; when this returns it is durable."""
        target = self.absolute(path)
        with self._answering("write", path):
            if self.is_local:
                _make_local_folders(Path(target).parent, Path(self.root))
                write_atomic(Path(target), data)
            elif isinstance(self.fs, fs.S3FileSystem):
                with self.fs.open_output_stream(target) as stream:
                    stream.write(data)
            else:
                self.fs.create_dir(str(PurePosixPath(target).parent), recursive=True)
                temporary = f"{target}.{uuid.uuid4().hex}{_TEMPORARY_SUFFIX}"
                with self.fs.open_output_stream(temporary) as stream:
                    stream.write(data)
                self.fs.move(temporary, target)

    def move(self, source: str, target: str) -> None:
        """Give a file another path in the store; a copy and a deletion where the store knows no renaming.

        Locally the new folders are durable when this returns; the name itself once its folder is synced.
        """
        with self._answering("move", source, needed=True):
            if self.is_local:
                _make_local_folders(Path(self.absolute(target)).parent, Path(self.root))
            elif not isinstance(self.fs, fs.S3FileSystem):
                self.fs.create_dir(str(PurePosixPath(self.absolute(target)).parent), recursive=True)
            self.fs.move(self.absolute(source), self.absolute(target))

    def read(self, path: str) -> bytes:
        target = self.absolute(path)
        opened = self._answering("read", path, needed=True)
        with opened, self.fs.open_input_stream(target, compression=None) as stream:
            return bytes(stream.read())

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for reading ranges: seekable. Reads raise pyarrow's errors."""
        with self._answering("read", path, needed=True):
            return self.fs.open_input_file(self.absolute(path))

    def chunks(self, path: str, chunk_bytes: int = _CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the file's bytes, piece by piece."""
        target = self.absolute(path)
        stream: pa.NativeFile | None = None
        try:
            while True:
                with self._answering("read", path, needed=True):
                    stream = stream or self.fs.open_input_stream(target, compression=None)
                    chunk = stream.read(chunk_bytes)
                if not chunk:
                    return
                yield chunk
        finally:
            if stream is not None:
                stream.close()

    def sha256(self, path: str) -> tuple[str, int]:
        """Return hex digest and size in bytes of the stored file, read in pieces."""
        digest, size_bytes = hashlib.sha256(), 0
        for chunk in self.chunks(path):
            digest.update(chunk)
            size_bytes += len(chunk)
        return digest.hexdigest(), size_bytes

    def sha256_of_range(self, path: str, start: int, size_bytes: int) -> str:
        """Return the hex digest of some bytes of the stored file; of fewer where it ends before."""
        digest = hashlib.sha256()
        with self.open(path) as source, self._answering("read", path, needed=True):
            source.seek(start)
            while size_bytes > 0 and (data := source.read(min(size_bytes, _CHUNK_BYTES))):
                digest.update(data)
                size_bytes -= len(data)
        return digest.hexdigest()

    def exists(self, path: str) -> bool:
        """Return True for a file or a folder."""
        return self._info(path).type is not fs.FileType.NotFound

    def size_bytes(self, path: str) -> int:
        info = self._info(path)
        if info.type is not fs.FileType.File:
            raise self._missing(path)
        return int(info.size)

    def list(self, prefix: str = "") -> tuple[StoredFile, ...]:
        """Return all files below the folder `prefix` but the marker, sorted; none when there is no such
        folder."""
        files = [
            StoredFile(info.path[len(self.root) :].lstrip("/"), int(info.size))
            for info in self._entries(prefix, recursive=True)
            if info.type is fs.FileType.File and not _is_temporary(info.path)
        ]
        return tuple(sorted(file for file in files if file.path != MARKER))

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        """Return names of the folders directly below `prefix`, sorted."""
        infos = self._entries(prefix)
        return tuple(sorted(info.base_name for info in infos if info.type is fs.FileType.Directory))

    def claim(self) -> None:
        """Mark the root as a store of ours, unless it is. Only processes whose own store this is may call it.

        Raises DefinitionError where something else lies at the root, or its path is a pattern to Spark.
        """
        refuse_pattern(self.root)
        if self._claimed or self.is_claimed():
            return
        foreign = {info.base_name for info in self._entries("")} - LAYOUT_FOLDERS
        if foreign:
            raise DefinitionError(
                f"the object store {self._base_uri} holds other things",
                expected=f"an empty folder, or one with {', '.join(sorted(LAYOUT_FOLDERS))} only",
                found=", ".join(sorted(foreign)[:_NAMED_MAX]),
                action=f"name a folder of its own in RTOLAP_OBJECT_STORE, or create the file {MARKER} in it",
            )
        self.write(MARKER, b"The folders beside this file are written and deleted by rtolap.\n")
        self._claimed = True

    def is_claimed(self) -> bool:
        if not self._claimed:
            self._claimed = self._info(MARKER).type is fs.FileType.File
        return self._claimed

    def delete(self, path: str) -> None:
        """Remove one file; nothing happens when it is gone already."""
        with self._answering("delete", path), suppress(FileNotFoundError):
            if self._info(path).type is fs.FileType.File:
                self.fs.delete_file(self.absolute(path))

    def delete_tree(self, path: str) -> None:
        """Remove a folder and what is in it; nothing happens when it is gone already.

        The root itself is refused, and so is a folder of a root without our marker.
        """
        if not path:
            raise DefinitionError(
                "the root of the object store is not deleted", action="name a folder below it"
            )
        target, kind = self.absolute(path), self._info(path).type
        if kind is fs.FileType.NotFound:
            return
        if not self.is_claimed():
            raise Refused(
                f"{path} in {self._base_uri} is not deleted",
                expected=f"the file {MARKER} at the root of the store, which says that it is ours",
                action="check the address; a coordinator that is configured with it creates the file",
            )
        with self._answering("delete", path), suppress(FileNotFoundError):
            if kind is fs.FileType.Directory:
                self.fs.delete_dir(target)
            else:
                self.fs.delete_file(target)

    def _entries(self, prefix: str, *, recursive: bool = False) -> Sequence[fs.FileInfo]:
        selector = fs.FileSelector(self.absolute(prefix), recursive=recursive, allow_not_found=True)
        with self._answering("list", prefix):
            infos: Sequence[fs.FileInfo] = self.fs.get_file_info(selector)
        return infos

    def _info(self, path: str) -> fs.FileInfo:
        with self._answering("look at", path):
            return self.fs.get_file_info(self.absolute(path))

    @contextmanager
    def _answering(self, verb: str, path: str, *, needed: bool = False) -> Iterator[None]:
        """Turn the errors of the file system into ours. `needed`: NotFound where the file is missing, which
        stores report in different ways; a look at the path is sure."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            if needed and (isinstance(error, FileNotFoundError) or not self.exists(path)):
                raise self._missing(path) from error
            raise Unavailable(
                f"cannot {verb} {path or 'the root'} in the object store {self._base_uri}",
                found=str(error),
                action="check that the store is reachable, writable and not full",
            ) from error

    def _missing(self, path: str) -> NotFound:
        return NotFound(f"no file {path} in the object store", found=self._base_uri)


def open_store(uri: str) -> ObjectStore:
    """See `store_address` for the addresses. Raises DefinitionError for anything else."""
    address = resolve(uri)
    if isinstance(address.filesystem, fs.LocalFileSystem):
        Path(address.root).mkdir(parents=True, exist_ok=True)
    return ObjectStore(address.filesystem, address.root, address.uri, address.spark)


def _checked(path: str) -> str:
    parts = path.split("/")
    if any(part in ("", ".", "..") or not _SEGMENT.fullmatch(part) for part in parts):
        raise DefinitionError(
            "not a path inside the object store",
            expected="relative, without empty parts, '.' or '..', of letters, digits and _.+=,@~-",
            found=repr(path),
        )
    return path


def _is_temporary(path: str) -> bool:
    return path.endswith((_TEMPORARY_SUFFIX, ".tmp"))


def _make_local_folders(folder: Path, root: Path) -> None:
    """Create missing folders so that they survive a power cut too: each parent is synced."""
    missing = []
    while not folder.exists() and folder != root:
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        os.makedirs(new, exist_ok=True)
        fsync_dir(new.parent)

"""Local files: atomic and durable ones, those that a disk cannot give back, those that a person has to
provide, those of the package itself."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import xxhash

from rtolap.base.errors import Corrupted, DefinitionError, NotFound, RtolapError

_PIECE_BYTES = 1 << 20  # of a checksum: other threads run in between
PRIVATE = 0o077  # umask: no rights for other users of the machine
_PACKAGE = Path(__file__).resolve().parents[1]
# What Linux says where a disk or a file system has bytes and cannot give them back (errno(3), blk_types.h):
# bad sectors, wrong checksums of XFS and ext4. Other errors, as of rights, say nothing about the bytes.
_LOST = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA, errno.EILSEQ, errno.EREMOTEIO})


def fsync_dir(path: Path) -> None:
    """Make renames inside a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Make what somebody else wrote into a file durable; its name is made so by `fsync_dir`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace `path` in one step; a crash leaves the old file or the new one, never a mixture.

    1. write and fsync `<name>.tmp`     crash: the old file stands, the .tmp is overwritten next time
    2. rename over `path`               crash: the old or the new file stands
    3. fsync the folder                 afterwards the new name survives a power cut
    """
    temporary = path.with_name(path.name + ".tmp")
    write_synced(temporary, data, mode=mode)
    os.replace(temporary, path)
    fsync_dir(path.parent)


def write_synced(path: Path, data: bytes | memoryview, *, mode: int = 0o644) -> None:
    """Write and fsync the file. Its name survives a power cut only once the folder was synced too."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def read_from_disk(path: Path, *, action: str | None = None) -> Iterator[None]:
    """Raise Corrupted where the disk cannot give back what the block reads; other errors stay as they are.

    Read calls alone have such errors: a page of a map that cannot be read ends the process with SIGBUS.
    Whatever is mapped is read first.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _LOST:
            raise
        raise Corrupted(
            f"{path} cannot be read from its disk", found=error.strerror, action=action
        ) from error


def checksum_of(descriptor: int, start: int, length_bytes: int) -> xxhash.xxh3_64:
    """Read a part of a file, as far as there is one, and return its checksum."""
    digest, end = xxhash.xxh3_64(), start + length_bytes
    piece = memoryview(bytearray(min(_PIECE_BYTES, length_bytes)))
    while start < end and (read := os.preadv(descriptor, [piece[: end - start]], start)):
        digest.update(piece[:read])
        start += read
    return digest


def read_provided(path: Path, what: str, *, action: str | None = None) -> str:
    """Return the text of a file that somebody has to provide. Raises DefinitionError naming it as `what`."""
    try:
        return path.read_text()
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or no path at all
        found = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise DefinitionError(
            f"{what} cannot be read", expected=f"a readable file {path}", found=found, action=action
        ) from error


def read_named(path: Path, noun: str, *, action: str | None = None) -> bytes:
    """Read a file that somebody names. NotFound: there is no such `noun`, `action` makes one; RtolapError: it
    cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"there is no {noun} {path}", action=action) from error
    except OSError as error:
        raise RtolapError(f"{path} cannot be read", found=error.strerror or str(error)) from error


def write_named(path: Path, data: bytes, *, append: bool = False) -> None:
    """Write a file that somebody names, atomically, or at its end. Raises RtolapError where it cannot be
    written."""
    try:
        if append:
            with path.open("ab") as file:
                file.write(data)
        else:
            write_atomic(path, data)
    except OSError as error:
        raise RtolapError(f"{path} cannot be written", found=error.strerror or str(error)) from error


def read_password(path: Path, of: str) -> str:
    """Return a password, which stands in a file of its own, never in a command or a variable.

    Without the end of its line. Raises DefinitionError, which says whose password (`of`) it is.
    """
    return read_provided(path, f"the password of {of}").rstrip("\r\n")


def checkout() -> Path | None:
    """Return the project's folder when rtolap runs out of a checkout, None when it is installed."""
    root = _PACKAGE.parents[1]
    return root if (root / "pyproject.toml").is_file() else None


def shipped(name: Literal["spark_jobs", "dags"]) -> Path:
    """Return the folder of files that go with the package and are run by others: by spark-submit, by Airflow.

    checkout    <checkout>/spark_jobs/, <checkout>/dags/
    wheel       <site-packages>/rtolap/shipped/spark_jobs/, …/shipped/dags/
    """
    return (checkout() or _PACKAGE / "shipped") / name

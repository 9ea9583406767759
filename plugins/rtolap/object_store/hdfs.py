"""HDFS as a pyarrow file system, spoken natively: no JVM in the process, no libhdfs on the machine.

The client is the optional package hdfs-native (`pip install rtolap[hdfs]`). It reads core-site.xml and
hdfs-site.xml below HADOOP_CONF_DIR (name services, Kerberos) and HADOOP_USER_NAME, as Spark does.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from rtolap.base.errors import Refused
from rtolap.base.optional import import_optional

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, FileStatus, FileWriter

# The client's default of 15 takes three minutes to report that nothing answers; this takes some ten seconds.
_ATTEMPTS_MAX = 3
_READS_MAX, _READ_PAUSE_S, _READ_PAUSE_S_MAX = 4, 0.2, 2.0


def hdfs_filesystem(authority: str) -> fs.PyFileSystem:
    """Return the file system. `authority` is `host:port` of a NameNode, or a name service of HADOOP_CONF_DIR.
    Connects at first use.

    Raises DefinitionError when the client is not installed.
    """
    native = import_optional("hdfs_native", needs="HDFS needs a client", package="hdfs-native", extra="hdfs")
    options = {"dfs.client.failover.max.attempts": str(_ATTEMPTS_MAX)}
    return fs.PyFileSystem(HdfsHandler(native.Client(f"hdfs://{authority}", options), authority))


class HdfsHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """A file system on HDFS that writes files as a whole: written, synced to the data nodes, renamed over.

    Errors are OSErrors. Nothing appends.
    """

    def __init__(self, client: Client, authority: str) -> None:
        self._client = client
        self._authority = authority

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HdfsHandler) and other._authority == self._authority

    def __ne__(self, other: object) -> bool:  # pyarrow calls it by itself
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return "hdfs"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            with _as_os_errors():
                infos = [
                    _file_info(status)
                    for status in self._client.list_status(selector.base_dir, selector.recursive)
                ]
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        base_dir = selector.base_dir.rstrip("/") or "/"
        return [info for info in infos if info.path != base_dir]  # a file lists itself

    def create_dir(self, path: str, recursive: bool) -> None:
        with _as_os_errors():
            self._client.mkdirs(path, create_parent=recursive)

    def delete_dir(self, path: str) -> None:
        with _as_os_errors():
            self._client.delete(path, True)

    def delete_file(self, path: str) -> None:
        with _as_os_errors():
            if not self._client.delete(path, False):
                raise FileNotFoundError(path)

    def move(self, source: str, target: str) -> None:
        """Replace `target` atomically, which HDFS's older rename (and so libhdfs) refuses."""
        with _as_os_errors():
            self._client.rename(source, target, True)

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.PythonFile:
        with _as_os_errors():
            return pa.PythonFile(_Reader(self._client, path), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.PythonFile:
        with _as_os_errors():
            return pa.PythonFile(_Writer(self._client.create(path)), mode="w")

    def open_append_stream(self, path: str, metadata: object) -> pa.PythonFile:
        raise Refused("the object store never appends")

    def copy_file(self, source: str, target: str) -> None:
        raise Refused("the object store never copies")

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        raise Refused("the object store deletes whole folders")

    def delete_root_dir_contents(self) -> None:
        raise Refused("the object store never deletes its root")

    def _info(self, path: str) -> fs.FileInfo:
        try:
            with _as_os_errors():
                return _file_info(self._client.get_file_info(path))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)


class _Reader(io.RawIOBase):
    """A file that is read. The client gives a data node up with the first error of a connection, and the read
    with the last node (its issues 227 and 229); the file is opened again then, as Java's client does."""

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path = client, path
        self._inner: FileReader = client.read(path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._inner.seek(offset, whence)
        return self._inner.tell()

    def tell(self) -> int:
        return self._inner.tell()

    def read(self, size: int = -1) -> bytes:
        at = self._inner.tell()
        for attempt in _reading():
            if attempt.retry_state.attempt_number > 1:
                with _as_os_errors():  # of the NameNode, which the client has tried for long enough
                    self._inner = self._client.read(self._path)
                    self._inner.seek(at)
            with attempt, _as_os_errors():
                return self._inner.read(size)
        raise AssertionError("the last attempt raises")


def _reading() -> Retrying:
    """Return the attempts of a read. A file that is gone is not looked for again."""
    return Retrying(
        stop=stop_after_attempt(_READS_MAX),
        wait=wait_exponential(_READ_PAUSE_S, max=_READ_PAUSE_S_MAX),
        retry=retry_if_exception(lambda error: type(error) is OSError),
        reraise=True,
    )


class _Writer(io.RawIOBase):
    def __init__(self, inner: FileWriter) -> None:
        self._inner = inner

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with _as_os_errors():
            return self._inner.write(data)

    def close(self) -> None:
        """Make the file durable on the data nodes, then complete it at the NameNode. Without the sync a power
        cut loses it."""
        if self.closed:
            return
        try:
            with _as_os_errors():
                self._inner.hsync()
                self._inner.close()
        finally:
            # The client's writer is closed again by its finalizer, on whatever thread collects it, and waits
            # there for servers that may be gone by then: unless it counts as closed.
            io.RawIOBase.close(self._inner)
            super().close()


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Translate the client's errors, which are RuntimeErrors: the first line names the error, Java's trace
    follows."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(str(error).replace("\\n", "\n").partition("\n")[0]) from error


def _file_info(status: FileStatus) -> fs.FileInfo:
    kind = fs.FileType.Directory if status.isdir else fs.FileType.File
    size = None if status.isdir else status.length
    return fs.FileInfo(status.path, kind, size=size, mtime=status.modification_time / 1000)

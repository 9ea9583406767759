"""Sizes of write-ahead logs, from the file system that HBase keeps them in: local, HDFS, S3."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from rtolap.base.errors import NotFound
from rtolap.object_store.address import resolve
from rtolap.object_store.store import ObjectStore

# Of living servers, of those that are taken over (`<server>-splitting`), and of closed logs.
_FOLDERS = ("WALs", "oldWALs")


class LogSizes(NamedTuple):
    """`bytes_by_log`: by the log's name. `is_exact_while_written`: False on HDFS, whose NameNode counts of a
    file that is being written the finished blocks only, unless its writer has it note more: HBase does not.
    """

    bytes_by_log: dict[str, int]
    is_exact_while_written: bool


class WalSizes:
    """`root_dir`: HBase's `hbase.rootdir`, or `hbase.wal.dir` where that is set, a URI of `object_store`."""

    def __init__(self, root_dir: str) -> None:
        address = resolve(root_dir)
        self._store = ObjectStore(address.filesystem, address.root, address.uri)
        self._is_exact_while_written = urlsplit(root_dir).scheme != "hdfs"

    def read(self) -> LogSizes:
        """Raises NotFound where no HBase has its logs there, or Unavailable."""
        if not self._store.exists(_FOLDERS[0]):
            raise NotFound(
                "there are no logs of an HBase",
                expected=f"a folder {_FOLDERS[0]} in {self._store.uri('')}",
                found="none",
                action="name HBase's hbase.rootdir, or its hbase.wal.dir",
            )
        bytes_by_log = {
            file.path.rpartition("/")[2]: file.bytes
            for folder in _FOLDERS
            for file in self._store.list(folder)
        }
        return LogSizes(bytes_by_log, self._is_exact_while_written)

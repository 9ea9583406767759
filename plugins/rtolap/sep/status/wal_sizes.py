"""Sizes of write-ahead logs, from the file system that HBase keeps them in: local, HDFS, S3."""

from __future__ import annotations

from rtolap.base.errors import NotFound
from rtolap.object_store.address import resolve
from rtolap.object_store.store import ObjectStore

# Of living servers, of those that are taken over (`<server>-splitting`), and of closed logs.
_FOLDERS = ("WALs", "oldWALs")


class WalSizes:
    """`root_dir`: HBase's `hbase.rootdir` (`hbase.wal.dir` where that is set) as a URI, see `object_store`.

    A log that is written has at least the size that is told: HDFS tells that of finished blocks.
    """

    def __init__(self, root_dir: str) -> None:
        address = resolve(root_dir)
        self._store = ObjectStore(address.filesystem, address.root, address.uri)

    def read(self) -> dict[str, int]:
        """Bytes by the name of the log. Raises NotFound where no HBase has its logs there, or Unavailable."""
        if not self._store.exists(_FOLDERS[0]):
            raise NotFound(
                "there are no logs of an HBase",
                expected=f"a folder {_FOLDERS[0]} in {self._store.uri('')}",
                found="none",
                action="name HBase's hbase.rootdir, or its hbase.wal.dir",
            )
        return {
            file.path.rpartition("/")[2]: file.bytes
            for folder in _FOLDERS
            for file in self._store.list(folder)
        }

"""spark-submit target: builds in a driver that says how many bytes it read from the object store for each.

    spark-submit counted_build.py SPECS

SPECS is what `build_segment.py` takes; each of its specs is built by itself, one after the other. Executors
of local masters run in processes of their own, which import the product anew: only what the driver itself
reads is counted. The numbers are written to `driver-read-bytes` in its working folder, as JSON by build.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from rtolap.cubes.build.build import build_all
from rtolap.cubes.build.job_ids import job_of_parent
from rtolap.cubes.build.session import open_session
from rtolap.cubes.format.build_inputs import read_specs
from rtolap.object_store.store import ObjectStore


class ReadBytes:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.total = 0

    def add(self, size_bytes: int) -> None:
        with self._lock:
            self.total += size_bytes


READ = ReadBytes()


class CountedFile(io.RawIOBase):
    def __init__(self, opened: pa.NativeFile) -> None:
        self._opened = opened

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._opened.seek(offset, whence))

    def tell(self) -> int:
        return int(self._opened.tell())

    def read(self, size: int = -1) -> bytes:
        data = bytes(self._opened.read(None if size < 0 else size))
        READ.add(len(data))
        return data

    def size(self) -> int:
        return int(self._opened.size())

    def close(self) -> None:
        self._opened.close()
        super().close()


def count_reads() -> None:
    read, opened, chunks = ObjectStore.read, ObjectStore.open, ObjectStore.chunks

    def counted_read(store: ObjectStore, path: str) -> bytes:
        data = read(store, path)
        READ.add(len(data))
        return data

    def counted_open(store: ObjectStore, path: str) -> Any:
        return pa.PythonFile(CountedFile(opened(store, path)), mode="r")

    def counted_chunks(store: ObjectStore, path: str, *sizes: int) -> Iterator[bytes]:
        for chunk in chunks(store, path, *sizes):
            READ.add(len(chunk))
            yield chunk

    counted = {"read": counted_read, "open": counted_open, "chunks": counted_chunks}
    for name, method in counted.items():
        setattr(ObjectStore, name, method)


def main(path: str) -> int:
    count_reads()
    read: dict[str, int] = {}
    worst = 0
    spark = open_session()
    try:
        for spec in read_specs(path):
            before = READ.total
            worst = max(worst, build_all(spark, [spec]))
            read[spec.build_id] = READ.total - before
    finally:
        spark.stop()
    Path("driver-read-bytes").write_bytes(msgspec.json.encode(read))
    return worst


if __name__ == "__main__":
    with job_of_parent():
        sys.exit(main(sys.argv[1]))

"""A scan is a read of history that Spark makes, from the files of versions to a table of partials."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from cachetools import LRUCache

from rtolap.base.errors import Corrupted, OutOfRange
from rtolap.base.ids import CarryingPool
from rtolap.base.settings import Settings
from rtolap.cubes.format.manifest import FileEntry
from rtolap.object_store.store import ObjectStore
from rtolap.query.cancel import Cancellation, wait_within
from rtolap.query.cubes.history_choices import ScannedVersion
from rtolap.query.cubes.history_files import FILES_CACHED_MAX, check_found, missing_file
from rtolap.query.plan import CubeRead
from rtolap.query.spark.connections import Connection, Connections
from rtolap.query.spark.errors import ERRORS, ScanGone, translated
from rtolap.query.spark.frame import DIGEST, LENGTH, PATH, digest_frame, read_frame
from rtolap.query.spark.service import SparkService, declared_service
from rtolap.query.spark.wide_sums import narrowed

log = logging.getLogger(__name__)

SCANS_MAX = 8  # at a time; more wait, and Spark shares its processors among these
_INTERRUPT_AGAIN_S = 0.5
_DIGESTS_BYTES_MAX = 64 << 20

Files = dict[str, FileEntry]  # path within the store → what the manifest says of it


def open_scans(settings: Settings, store: ObjectStore, result_bytes_max: int) -> SparkScans:
    """Return the scans of the service that the settings declare. Raises DefinitionError."""
    service = declared_service(settings)
    assert service is not None, "asked for where one is declared"
    return SparkScans(store, service, result_bytes_max)


class SparkScans:
    """See `query.cubes.history.LargeScans`. Thread-safe. The service is first called by a scan."""

    def __init__(self, store: ObjectStore, service: SparkService, result_bytes_max: int) -> None:
        self._store = store
        self._url = service.url
        self._result_bytes_max = result_bytes_max
        self.connections = Connections(service, store.spark_settings)
        self._scans = CarryingPool(SCANS_MAX, thread_name_prefix="spark-scan")
        self._interrupts = CarryingPool(SCANS_MAX, thread_name_prefix="spark-interrupt")
        self._lock = threading.Lock()
        self._verified: LRUCache[str, None] = LRUCache(FILES_CACHED_MAX)
        self._running: dict[str, Connection] = {}  # by tag

    @property
    def running(self) -> int:
        """Return the number of scans that Spark has not ended."""
        with self._lock:
            return len(self._running)

    def close(self) -> None:
        self._scans.shutdown(wait=False, cancel_futures=True)
        self._interrupts.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            running = list(self._running.values())
        for connection in running:
            connection.close()
        self.connections.close()

    def read(
        self, read: CubeRead, versions: Sequence[ScannedVersion], cancellation: Cancellation
    ) -> pa.Table:
        files = {
            f"{version.location}/{file.name}": file for version in versions for file in version.cuboid.files
        }
        if not files:
            return read.columns.empty_table()
        scan = self._scans.submit(self._read, read, files, cancellation)
        try:
            wait_within((scan,), cancellation)
        finally:
            cancellation.progress = ""
        return scan.result()

    def _read(self, read: CubeRead, files: Files, cancellation: Cancellation) -> pa.Table:
        try:
            return self._attempt(read, files, cancellation)
        except (
            ScanGone
        ):  # the service was restarted, or the session idle for too long: nothing is known of it
            return self._attempt(read, files, cancellation)

    def _attempt(self, read: CubeRead, files: Files, cancellation: Cancellation) -> pa.Table:
        cancellation.check()
        try:
            connection = self.connections.take()
        except ERRORS as error:
            raise translated(error, self._url) from error
        tag, over = f"rtolap-{uuid.uuid4().hex}", threading.Event()
        with self._lock:
            self._running[tag] = connection
        cancellation.on_cancel(lambda: self._end(connection, tag, over))
        try:
            connection.begin(tag, _Shown(cancellation))
            table = self._run(connection, read, files)
            connection.end()
        except ERRORS as error:
            connection.close()
            cancellation.check()
            raise translated(error, self._url) from error
        except BaseException:
            connection.close()
            raise
        finally:
            over.set()
            with self._lock:
                self._running.pop(tag, None)
        if cancellation.error() is None:  # else an interrupt may be under way, which would end the next scan
            self.connections.give_back(connection)
        else:
            connection.close()
        return table

    def _run(self, connection: Connection, read: CubeRead, files: Files) -> pa.Table:
        self._verify(connection, files)
        uris = [self._store.spark_uri(path) for path in files]
        try:
            return self._rows(connection, read, uris)
        except ERRORS as error:
            if isinstance(translated(error, self._url), Corrupted):
                self._forget(files)
                self._verify(connection, files)
            raise

    def _rows(self, connection: Connection, read: CubeRead, uris: Sequence[str]) -> pa.Table:
        try:
            frame = read_frame(connection.session, read, uris, wide=False)
            table = connection.fetch(frame, self._result_bytes_max)
        except ERRORS as error:
            if not isinstance(translated(error, self._url), OutOfRange):
                raise
            frame = read_frame(connection.session, read, uris, wide=True)
            table = connection.fetch(frame, self._result_bytes_max)
            return read.columns.empty_table() if table is None else narrowed(read, table)
        if table is None:
            return read.columns.empty_table()
        return table.select(read.columns.names).cast(read.columns)

    def _end(self, connection: Connection, tag: str, over: threading.Event) -> None:
        """Have Spark end the scan. It is called when the statement is over, by who must not wait."""

        def interrupt() -> None:
            while not over.is_set():  # it may come before Spark has begun
                try:
                    connection.interrupt(tag)
                except ERRORS as error:
                    log.warning("a scan on Spark could not be interrupted: %s", str(error)[:500])
                    return
                over.wait(_INTERRUPT_AGAIN_S)

        try:
            self._interrupts.submit(interrupt)
        except RuntimeError:  # the service is being closed
            log.info("a scan on Spark is left to end with its session")

    def _verify(self, connection: Connection, files: Files) -> None:
        """Compare sizes and checksums of files that no scan has read. Spark computes them, in parallel.

        Raises Corrupted for a file that is missing or damaged.
        """
        with self._lock:
            left = {path: file for path, file in files.items() if path not in self._verified}
        if not left:
            return
        frame = digest_frame(connection.session, [self._store.spark_uri(path) for path in left])
        found = connection.fetch(frame, _DIGESTS_BYTES_MAX)
        digests = {} if found is None else _by_path(found.to_pylist(), left)
        for path, file in left.items():
            if path not in digests:
                raise missing_file(path)
            check_found(path, file, *digests[path])
        with self._lock:
            self._verified.update(dict.fromkeys(left))

    def _forget(self, paths: Iterable[str]) -> None:
        with self._lock:
            for path in paths:
                self._verified.pop(path, None)


def _by_path(rows: Sequence[dict[str, Any]], files: Files) -> dict[str, tuple[int, str]]:
    """Return size and digest by path in the store. Spark names a file by the URI that Hadoop gives it."""
    depths = {path.count("/") + 1 for path in files}
    found: dict[str, tuple[int, str]] = {}
    for row in rows:
        parts = str(row[PATH]).split("/")
        for depth in depths:
            path = "/".join(parts[-depth:])
            if path in files:
                found[path] = (int(row[LENGTH]), str(row[DIGEST]))
    return found


class _Shown:
    """Shows what Spark has done of a scan to its statement."""

    def __init__(self, cancellation: Cancellation) -> None:
        self._cancellation = cancellation

    def __call__(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        if stages is None:
            return
        known = list(stages)
        tasks = sum(stage.num_tasks for stage in known)
        completed = sum(stage.num_completed_tasks for stage in known)
        self._cancellation.progress = f"history on Spark: {completed} of {tasks} tasks"

"""A session of a Spark Connect service serves one scan at a time, and then the next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame
from pyspark.sql.connect.session import SparkSession

from rtolap.base.errors import OverBudget, Unavailable
from rtolap.model.quantities import size_text
from rtolap.query.spark.service import SparkService

CLIENT_VERSION = pyspark.__version__
_CHANNEL = [("grpc.enable_http_proxy", 0)]  # it is of the cluster: see `protocols.rest.clients`
_RETRIES_MAX, _BACKOFF_MS_MAX = 4, 1_000  # some three seconds, where pyspark's own policy takes ten minutes

# What a scan means must not hang on how the service was started.
_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": str(1 << 20),  # its own job costs more
}


class Connection:
    """A session. Not thread-safe, except `interrupt`."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._client = session.client

    @classmethod
    def open(cls, service: SparkService) -> Connection:
        """Make a session. It does not call the service yet."""
        session = SparkSession(DefaultChannelBuilder(service.connection, _CHANNEL))
        session.client.set_retry_policies(
            [DefaultPolicy(max_retries=_RETRIES_MAX, max_backoff=_BACKOFF_MS_MAX)]
        )
        return cls(session)

    def fetch(self, frame: DataFrame, bytes_max: int) -> pa.Table | None:
        """Return the rows, as they come from Spark; None if there are none.

        Raises OverBudget as soon as they are larger than `bytes_max`, and errors of `errors.ERRORS`.
        """
        assert isinstance(frame, ConnectFrame), "it is of this session"
        plan, observations = frame._plan, frame._plan.observations
        tables: list[pa.Table] = []
        size_bytes = 0
        for piece in self._client.to_table_as_iterator(plan.to_proto(self._client), observations):
            if not isinstance(piece, pa.Table):
                continue  # the schema
            size_bytes += piece.nbytes
            if size_bytes > bytes_max:
                raise OverBudget(
                    "the groups of a read on Spark do not fit into the memory of statements",
                    expected=f"at most {size_text(bytes_max)}",
                    action="group by fewer columns, or filter more",
                )
            tables.append(piece)
        return pa.concat_tables(tables) if tables else None

    def begin(self, tag: str, handler: Callable[..., None]) -> None:
        self._client.clear_tags()
        self._client.add_tag(tag)
        self._client.register_progress_handler(handler)  # type: ignore[arg-type]

    def end(self) -> None:
        self._client.clear_tags()
        self._client.clear_progress_handlers()

    def interrupt(self, tag: str) -> None:
        """Have Spark end the jobs of the tag."""
        self._client.interrupt_tag(tag)

    def close(self) -> None:
        """Close the channel. Spark ends the session itself when it was idle for an hour."""
        self._client.close()


class Connections:
    """The sessions of one service. Thread-safe."""

    def __init__(self, service: SparkService, settings: Mapping[str, str]) -> None:
        """Create the set of sessions; none is opened yet.

        Args:
            settings: the settings by which Spark reaches the object store.
        """
        self._service = service
        self._settings = {**_SETTINGS, **settings}
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False

    def take(self) -> Connection:
        """Return an idle connection, or a new one.

        Raises errors of `errors.ERRORS`, and Unavailable for a service of another version of Spark.
        """
        with self._lock:
            if self._idle:
                return self._idle.pop()
        connection = Connection.open(self._service)
        try:
            check_version(connection.session.version, CLIENT_VERSION, self._service.url)
            connection.session.conf._set_all(dict(self._settings), silent=False)
        except BaseException:
            connection.close()
            raise
        return connection

    def give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        _close_all(idle)


def check_version(server: str, client: str, address: str) -> None:
    """Compare versions, `4.1.0` and the like: releases of one minor version understand each other."""
    if server.split(".")[:2] != client.split(".")[:2]:
        raise Unavailable(
            f"the Spark service of large reads at {address} has another version of Spark",
            expected=f"{'.'.join(client.split('.')[:2])}, as pyspark of this query service",
            found=server,
            action="run `rtolap spark serve` of the same release; SET rtolap_engine = local reads without it",
        )


def _close_all(connections: Iterable[Connection]) -> None:
    for connection in connections:
        connection.close()

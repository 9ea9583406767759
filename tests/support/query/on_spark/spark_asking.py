"""Services that read history on Spark, and statements that are asked beside a test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from rtolap.base.errors import RtolapError
from rtolap.query.cubes.history import MemoryBounds
from rtolap.query.engine_choice import EngineRules
from rtolap.query.spark.scans import SparkScans
from rtolap.query.statement_service import QueryService

from tests.support.query.on_spark.spark_connect import SparkServer
from tests.support.query.oracles.sql_oracle import rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.waiting import patience_s, until

RESULT_BYTES_MAX = 64 << 20
TIMEOUT_MS = 600_000
NO_RESULTS = MemoryBounds(result_bytes=0)
SQL = "select carrier, count(*), sum(distance), avg(weight) from flights group by carrier"


def scans_of(world: QueryWorld, spark: SparkServer) -> SparkScans:
    return SparkScans(world.store, spark.service, RESULT_BYTES_MAX)


@contextmanager
def scanning(world: QueryWorld, scans: SparkScans) -> Iterator[QueryService]:
    """Yield a service that reads all history on Spark, and keeps no results."""
    rules = EngineRules(has_spark=True, spark_bytes_min=1)
    with closing(world.service(bounds=NO_RESULTS, scans=scans, rules=rules)) as made:
        yield made


class Asked(threading.Thread):
    """A statement that is asked beside the test."""

    def __init__(self, service: QueryService, sql: str, timeout_ms: int = TIMEOUT_MS) -> None:
        super().__init__(daemon=True)
        self._service = service
        self._sql = sql
        self.ending = service.cancellation(timeout_ms, "", "spark")
        self.rows: object = None
        self.error: RtolapError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.rows = rows_of(self._service.execute(self._sql, (), self.ending).table())
        except RtolapError as error:
            self.error = error

    def waits_for_spark(self) -> None:
        """Return when its tasks wait in Spark."""
        until(lambda: self.ending.progress or not self.is_alive(), "progress of Spark", timeout_s=60)
        assert self.is_alive(), (self.rows, self.error)

    def result(self) -> object:
        self.join(patience_s(200))
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.rows

"""Large reads of history on a real Spark Connect service: the answers of the other engine, or named errors."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.base.clock import SystemClock
from rtolap.metadata.records import SegmentRecord
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.cubes.history import EmbeddedHistory, MemoryBounds
from rtolap.query.engine_choice import EngineRules
from rtolap.query.plan import CubeRead, ReadStats
from rtolap.query.spark.scans import SparkScans
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import flights_world
from tests.support.query.drawn_reads import difference, drawn_history, drawn_read
from tests.support.query.query_world import QueryWorld
from tests.support.query.spark_connect import SparkServer, spark_server
from tests.support.seeds import so_many

RESULT_BYTES_MAX = 64 << 20
TIMEOUT_MS = 600_000
READS = 10  # of one drawn history
NO_RESULTS = MemoryBounds(result_bytes=0)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    with spark_server(tmp_path_factory.mktemp("spark")) as server:
        yield server


@pytest.fixture(scope="module")
def world() -> Iterator[QueryWorld]:
    with closing(flights_world(7, 800)) as made:
        yield made


@pytest.fixture(scope="module")
def service(world: QueryWorld, spark: SparkServer) -> Iterator[QueryService]:
    scans = SparkScans(world.store, spark.service, RESULT_BYTES_MAX)
    rules = EngineRules(has_spark=True, spark_bytes_min=1)
    with closing(world.service(bounds=NO_RESULTS, scans=scans, rules=rules)) as made:
        yield made


class Both:
    """One history, read by both engines."""

    def __init__(self, store: ObjectStore, spark: SparkServer, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self.scans = SparkScans(store, spark.service, RESULT_BYTES_MAX)
        self._local = EmbeddedHistory(store, None, NO_RESULTS)
        self._spark = EmbeddedHistory(store, None, NO_RESULTS, self.scans, EngineRules(has_spark=True))

    def local(self, read: CubeRead, segments: Sequence[SegmentRecord]) -> pa.Table:
        return self._local.read(
            read, segments, ReadStats(read.cube), Cancellation(self._timeouts, TIMEOUT_MS)
        )

    def spark(self, read: CubeRead, segments: Sequence[SegmentRecord]) -> pa.Table:
        stats = ReadStats(read.cube)
        ending = Cancellation(self._timeouts, TIMEOUT_MS, "", "spark")
        table = self._spark.read(read, segments, stats, ending)
        assert stats.engine == "spark"
        return table

    def close(self) -> None:
        self._local.close()
        self._spark.close()


@pytest.fixture(scope="module")
def timeouts() -> Iterator[Timeouts]:
    with closing(Timeouts(SystemClock())) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    made = open_store((tmp_path / "store").as_uri())
    made.claim()
    return made


@pytest.fixture
def both(store: ObjectStore, spark: SparkServer, timeouts: Timeouts) -> Iterator[Both]:
    with closing(Both(store, spark, timeouts)) as made:
        yield made


@pytest.mark.seeded
def test_drawn_filters_groups_and_aggregates_give_the_same_partials_on_both_engines(
    store: ObjectStore, both: Both
) -> None:
    for seed in range(so_many(2, 10)):
        rng = random.Random(seed)
        segments = drawn_history(rng, store, f"s{seed}")
        for number in range(READS):
            read = drawn_read(rng)
            found = difference(read, both.spark(read, segments), both.local(read, segments))
            assert not found, f"seed {seed}, read {number}: {found}: {read.filter}"


def explained(service: QueryService, sql: str) -> dict[str, str]:
    return {row["item"]: row["value"] for row in service.execute(sql).table().to_pylist()}


def test_a_group_by_over_history_and_live_events_is_answered_by_spark(
    world: QueryWorld, service: QueryService
) -> None:
    sql = "select carrier, count(*), avg(price), count(distinct passenger) from flights group by carrier"
    with closing(world.service()) as local:
        expected = sorted(map(repr, local.execute(sql).table().to_pylist()))
    outcome = service.execute(sql)
    assert sorted(map(repr, outcome.table().to_pylist())) == expected
    assert [done.engine for done in outcome.stats] == ["spark"]
    done = explained(service, f"explain analyze {sql}")
    assert done["history read by"].startswith("spark: ")
    assert "RTOLAP_HISTORY_SPARK_BYTES_MIN" in done["history read by"]

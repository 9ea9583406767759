"""Large reads of history on a real Spark Connect service: answers of the embedded engine, or errors by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from rtolap.query.cubes.history import MemoryBounds
from rtolap.query.engine_choice import EngineRules
from rtolap.query.spark.scans import SparkScans
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import flights_world
from tests.support.query.query_world import QueryWorld
from tests.support.query.spark_connect import SparkServer, spark_server

RESULT_BYTES_MAX = 64 << 20
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


def explained(service: QueryService, sql: str) -> dict[str, str]:
    return {row["item"]: row["value"] for row in service.execute(sql).table().to_pylist()}


def test_a_group_by_over_history_and_live_events_is_answered_by_spark(
    world: QueryWorld, service: QueryService
) -> None:
    sql = "select carrier, count(*) n, avg(price) p, count(distinct passenger) d from flights group by carrier"
    with closing(world.service()) as local:
        expected = sorted(map(repr, local.execute(sql).table().to_pylist()))
    outcome = service.execute(sql)
    assert sorted(map(repr, outcome.table().to_pylist())) == expected
    assert [done.engine for done in outcome.stats] == ["spark"]
    done = explained(service, f"explain analyze {sql}")
    assert done["history read by"].startswith("spark: ")
    assert "RTOLAP_HISTORY_SPARK_BYTES_MIN" in done["history read by"]

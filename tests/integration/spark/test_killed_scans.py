"""Executors and the driver of a Spark cluster are killed in mid-scan: the exact answer, or a named error.

Versions are scanned; then merged sets and versions beside live events, whose groups Spark merges as a recount
of the raw rows has them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import duckdb
import psutil
import pytest
from rtolap.base.errors import Unavailable
from rtolap.model.merging.intervals import interval_of
from rtolap.model.segment import SegmentRange
from rtolap.query.statement_service import QueryService

from tests.query.test_oracle import random_query
from tests.support.cubes.flights import flights_world
from tests.support.query.on_spark.spark_asking import SQL, Asked, scanning, scans_of
from tests.support.query.on_spark.spark_connect import SparkServer, occupied, spark_server
from tests.support.query.oracles.sql_oracle import asked_of, open_oracle, rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many
from tests.support.waiting import until

pytestmark = pytest.mark.integration
MASTER = "local-cluster[2,1,512]"
QUERIES = so_many(2, 8)
COUNTED = "select carrier, count(*), sum(distance), count(distinct origin) from flights group by carrier"


@pytest.fixture(scope="module")
def world() -> Iterator[QueryWorld]:
    with closing(flights_world(13, 400)) as made:
        yield made


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    with spark_server(tmp_path_factory.mktemp("spark"), MASTER) as server:
        yield server


@pytest.fixture(scope="module")
def service(world: QueryWorld, spark: SparkServer) -> Iterator[QueryService]:
    with scanning(world, scans_of(world, spark)) as made:
        yield made


@pytest.fixture(scope="module")
def wanted(world: QueryWorld) -> object:
    with closing(world.service()) as local:
        return rows_of(local.execute(SQL).table())


def asked_rows(service: QueryService) -> object:
    """Ask with the patience that processes need that have only begun."""
    return Asked(service, SQL).result()


def test_an_executor_killed_in_mid_scan_leaves_the_answer_exact(
    spark: SparkServer, service: QueryService, wanted: object
) -> None:
    assert asked_rows(service) == wanted
    with occupied(spark):
        asked = Asked(service, SQL)
        asked.waits_for_spark()
        killed = spark.executors()[0]
        killed.kill()  # its sleeper is tried again, and tasks of the scan with it
        psutil.wait_procs([killed], 30)
    assert asked.result() == wanted
    until(lambda: len(spark.executors()) == 2, "another executor", timeout_s=60)
    assert asked_rows(service) == wanted


def test_a_driver_killed_in_mid_scan_is_named_and_the_next_one_answers(
    spark: SparkServer, service: QueryService, wanted: object
) -> None:
    assert asked_rows(service) == wanted, "its session is known to the service"
    with occupied(spark):
        asked = Asked(service, SQL)
        asked.waits_for_spark()
        spark.kill()
    with pytest.raises(Unavailable, match=r"Spark service .* does not answer.*rtolap_engine = local"):
        asked.result()
    with pytest.raises(Unavailable, match="does not answer"):
        asked_rows(service)
    spark.start()
    assert asked_rows(service) == wanted


@pytest.fixture
def merging() -> Iterator[QueryWorld]:
    """All but the newest segment in history; that one is with the receivers."""
    with closing(flights_world(11, 600)) as made:
        rng = random.Random(3)
        for segment in made.segments()[:-1]:
            if segment.name not in made.built["flights"]:
                made.build(segment, rng)
        yield made


@pytest.fixture
def merging_service(merging: QueryWorld, spark: SparkServer) -> Iterator[QueryService]:
    with scanning(merging, scans_of(merging, spark)) as made:
        yield made


@pytest.fixture
def oracle(merging: QueryWorld) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_oracle(merging) as opened:
        yield opened


def days(world: QueryWorld) -> list[list[SegmentRange]]:
    """Return the segments in history of each day that has several."""
    by_day: dict[SegmentRange, list[SegmentRange]] = {}
    for segment in world.segments():
        if segment.name in world.built["flights"]:
            by_day.setdefault(interval_of("day", segment.start_ms), []).append(segment)
    return [segments for segments in by_day.values() if len(segments) > 1]


def equal_to_the_raw_rows(
    service: QueryService, oracle: duckdb.DuckDBPyConnection, seed: int, what: str
) -> None:
    rng = random.Random(seed)
    for number in range(QUERIES):
        sql = random_query(rng)
        got, expected = Asked(service, sql).result(), rows_of(asked_of(oracle, sql))
        assert got == expected, f"{what}, seed {seed}, query {number}: {sql}"


@pytest.mark.seeded
def test_groups_of_sets_versions_and_live_events_are_merged_as_their_raw_rows_say(
    merging: QueryWorld, merging_service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    rng = random.Random(5)
    equal_to_the_raw_rows(merging_service, oracle, 1, "before")
    first, *others = days(merging)
    merging.merge("day", first, rng)
    equal_to_the_raw_rows(merging_service, oracle, 2, "a day merged")
    for segments in others:
        merging.merge("day", segments, rng)
    merging.merge("month", [each for day in days(merging) for each in day], rng)
    equal_to_the_raw_rows(merging_service, oracle, 3, "a month merged")
    merging.build(first[1], rng, version=2)
    equal_to_the_raw_rows(merging_service, oracle, 4, "a member replaced")


def test_who_dies_while_groups_are_merged_leaves_the_answer_exact_or_is_named(
    merging: QueryWorld, merging_service: QueryService, oracle: duckdb.DuckDBPyConnection, spark: SparkServer
) -> None:
    """A set is committed in mid-read each time: the statement goes on with what it reads, or reads anew."""
    rng = random.Random(6)
    wanted = rows_of(asked_of(oracle, COUNTED))
    first, second, *_ = days(merging)
    with occupied(spark):
        asked = Asked(merging_service, COUNTED)
        asked.waits_for_spark()
        merging.merge("day", first, rng)
        killed = spark.executors()[0]
        killed.kill()
        psutil.wait_procs([killed], 30)
    assert asked.result() == wanted
    until(lambda: len(spark.executors()) == 2, "another executor", timeout_s=60)
    with occupied(spark):
        asked = Asked(merging_service, COUNTED)
        asked.waits_for_spark()
        merging.merge("day", second, rng)
        spark.kill()
    with pytest.raises(Unavailable, match="does not answer"):
        asked.result()
    spark.start()
    assert Asked(merging_service, COUNTED).result() == wanted
    equal_to_the_raw_rows(merging_service, oracle, 7, "after the service was killed")

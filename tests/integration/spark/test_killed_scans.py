"""Executors and the driver of a Spark cluster are killed in mid-scan: the exact answer, or a named error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest
from rtolap.base.errors import Unavailable
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import flights_world
from tests.support.query.on_spark.spark_asking import SQL, Asked, scanning, scans_of
from tests.support.query.on_spark.spark_connect import SparkServer, occupied, spark_server
from tests.support.query.oracles.sql_oracle import rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.waiting import until

pytestmark = pytest.mark.integration
MASTER = "local-cluster[2,1,512]"


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

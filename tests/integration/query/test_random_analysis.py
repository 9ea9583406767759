"""Random statements of analysts over cubes answer as MariaDB does over the events as rows.

In this process over real history files; and over real services: two replica sets of receivers, ZooKeeper,
Kafka and a query service, with about half of the events in history that Spark has built. RTOLAP_SEEDS=10 asks
ten times as many.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec
import pyarrow as pa
import pymysql
import pytest
from confluent_kafka.cimpl import NewTopic
from rtolap.base.errors import OutOfRange
from rtolap.columnar.schema import arrow_type
from rtolap.model.cube import Measure
from rtolap.query.statement_service import QueryService
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.builders import START_MS
from tests.support.cubes.flights import AIRLINE_ROWS, flights_world
from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import Services, wait_for
from tests.support.kafka_topics import create_topic
from tests.support.query.asked_statements import LOOKUP, REGIONS
from tests.support.query.oracles.mariadb_oracle import MariaOracle, Row, open_maria
from tests.support.query.random_analysis import (
    FLIGHTS,
    ROUTES,
    Analysis,
    AnalysisWriter,
    Cube,
    Places,
    rows_differ,
)
from tests.support.seeds import so_many

pytestmark = pytest.mark.integration
JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
BLOCKS = so_many(3)
STATEMENTS_A_BLOCK = 100
STATEMENTS_OF_SERVICES = so_many(200)
EVENTS_AT_FIRST, EVENTS_LATER = 800, 200
ER_DATA_OUT_OF_RANGE = 1690
SHOWN_MAX = 20  # of statements that differ


@pytest.fixture(scope="module")
def in_process(mariadb_server: ManagedProcess) -> Iterator[tuple[QueryService, MariaOracle]]:
    socket = str(mariadb_server.spec.folder / "s.sock")
    with ExitStack() as stack:
        world = stack.enter_context(closing(flights_world(13, 120)))
        service = stack.enter_context(closing(world.service()))
        tables = {"airlines": AIRLINE_ROWS, **{name: world.visible(name) for name in world.schemas}}
        yield service, stack.enter_context(open_maria(socket, "random_analysis", tables))


def theirs_of(oracle: MariaOracle, statement: Analysis) -> list[Row] | None:
    """Return None where a value does not fit MySQL's type."""
    try:
        return oracle.rows(statement.oracle)
    except pymysql.MySQLError as error:
        if error.args[0] == ER_DATA_OUT_OF_RANGE:
            return None
        raise AssertionError(f"{error}: {statement.oracle}") from error


def differing(
    ours: Sequence[Row], theirs: Sequence[Row] | None, statement: Analysis, which: str
) -> list[str]:
    if theirs is None:
        return []
    difference = rows_differ(ours, theirs, ordered=statement.ordered)
    return [f"{which}: {statement.sql}: {difference}"] if difference else []


@pytest.mark.seeded
@pytest.mark.parametrize("block", range(BLOCKS))
def test_statements_over_cubes_answer_as_mariadb_does_over_the_events(
    block: int, in_process: tuple[QueryService, MariaOracle]
) -> None:
    service, oracle = in_process
    writer = AnalysisWriter(
        random.Random(8000 + block), (FLIGHTS, ROUTES), Places("airlines", "carrier", "text", "name")
    )
    asked: Counter[str] = Counter()
    found: list[str] = []
    first = list(writer.kinds.values())
    for number in range(STATEMENTS_A_BLOCK):
        statement = first[number]() if number < len(first) else writer.statement()
        theirs = theirs_of(oracle, statement)
        try:
            table = service.execute(statement.sql).table()
        except OutOfRange:
            assert theirs is None, statement.sql
            continue
        ours = [tuple(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
        found += differing(ours, theirs, statement, f"block {block}, number {number}")
        asked[statement.kind] += 1
    assert not found, "\n".join(found)
    assert set(asked) == set(writer.kinds), "every kind of statement is asked"


SALES = {
    "int": ("place",),
    "text": ("kind",),
    "moment": ("minute_start", "hour_start"),
}
MINUTES = tuple(
    f"'{datetime.fromtimestamp((START_MS + minute * 60_000) / 1000, UTC):%Y-%m-%d %H:%M:%S}'"
    for minute in range(-3, 6)
)
SALES_VALUES = {
    "place": ("1", "2", "3", "4", "0"),
    "kind": ("'a'", "'b'", "'c'", "'A'"),
    "minute_start": MINUTES,
}
SALES_TOTALS = (
    *("count(*)", "sum({0}amount)", "count({0}amount)", "min({0}amount)", "max({0}amount)", "sum({0}price)"),
    *("sum({0}place)", "count(distinct {0}kind)", "max({0}kind)", "sum({0}amount * {0}place)"),
)


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
    zookeeper: str,
    kafka: str,
    mariadb_server: ManagedProcess,
) -> Iterator[tuple[World, MariaOracle]]:
    """Two cubes on one topic; part of their events is in history, the rest in receivers."""
    name = f"analysis_{random.SystemRandom().randrange(1 << 40):x}"
    create_topic(kafka, NewTopic(name, num_partitions=PARTITIONS, replication_factor=1))
    services = Services(
        tmp_path_factory.mktemp("analysis"), zookeeper=zookeeper, root=f"/{name}", kafka=kafka
    )
    world = World(services, kafka, name, 5, {"left": ("l0",), "right": ("r0",)}, visitors=True)
    by_place = msgspec.structs.replace(
        world.schema.cube,
        name=f"{name}_b",
        dimensions=("place",),
        aggregation_groups=(),
        measures=(Measure("count"), Measure("sum", "amount"), Measure("max", "price")),
    )
    with closing(services), closing(world):
        services.start_coordinators()
        for replica_set in world.replica_sets:
            world.start_receivers(replica_set)
        services.start_query()
        world.declare()
        services.coordinator.create_cube(msgspec.to_builtins(by_place))
        services.coordinator.enable_cube(by_place.name)
        world.produce(EVENTS_AT_FIRST)
        wait_for("all events are visible", lambda: _caught_up(world, by_place.name), 120)
        wait_for("Spark has built some of both cubes", lambda: _built(world, by_place.name), 300)
        world.produce(EVENTS_LATER)
        wait_for("all events are visible", lambda: _caught_up(world, by_place.name), 120)
        socket = str(mariadb_server.spec.folder / "s.sock")
        rows = _rows(world)
        places = pa.table({"place": pa.array(list(REGIONS), pa.int32()), "region": list(REGIONS.values())})
        tables = {LOOKUP: places, name: rows, by_place.name: rows}
        with open_maria(socket, name, tables) as oracle:
            yield world, oracle


def _caught_up(world: World, other: str) -> bool:
    try:
        positions = world.services.sql(f"select count(*) from {other}")["positions"][other]
    except httpx.HTTPError:
        return False
    return world.caught_up() and {int(p): offset for p, offset in positions.items()} == world.ends()


def _built(world: World, other: str) -> bool:
    world.services.build_queue(JOBS)
    client = world.services.coordinator
    return all(any(each.version > 0 for each in client.segments(cube)) for cube in (world.cube, other))


def _rows(world: World) -> pa.Table:
    """Return the events as rows, with the derived columns of both cubes."""
    columns: dict[str, list[object]] = {
        name: [] for name in ("kind", "place", "amount", "price", "minute_start", "hour_start")
    }
    for event in world.prefix(world.ends()):
        at = datetime.fromtimestamp(event.event_ms / 1000, UTC).replace(tzinfo=None, second=0, microsecond=0)
        row = (event.kind, event.place, event.amount, event.price, at, at.replace(minute=0))
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    types = {column.name: arrow_type(column.column_type) for column in world.schema.table.columns}
    return pa.table(
        {
            column: pa.array(values, types.get(column, pa.timestamp("us")))
            for column, values in columns.items()
        }
    )


@pytest.mark.seeded
def test_statements_over_receivers_and_history_of_spark_answer_as_mariadb_does(
    served: tuple[World, MariaOracle],
) -> None:
    world, oracle = served
    by_place = Cube(
        f"{world.cube}_b",
        {"int": ("place",), "moment": ("minute_start", "hour_start")},
        ("count(*)", "sum({0}amount)", "max({0}price)", "count({0}place)", "max({0}place)"),
        {name: SALES_VALUES[name] for name in ("place", "minute_start")},
    )
    cubes = (Cube(world.cube, SALES, SALES_TOTALS, SALES_VALUES), by_place)
    writer = AnalysisWriter(random.Random(9000), cubes, Places(LOOKUP, "place", "int", "region"))
    history = [segment for segment in world.services.coordinator.segments(world.cube) if segment.version > 0]
    built = sum(segment.events or 0 for segment in history)
    assert 0 < built < EVENTS_AT_FIRST + EVENTS_LATER, "events are in history and in receivers"
    found: list[str] = []
    with closing(world.services.mysql()) as connection, connection.cursor() as cursor:
        for number in range(STATEMENTS_OF_SERVICES):
            statement = writer.statement()
            theirs = theirs_of(oracle, statement)
            if theirs is None:
                continue
            try:
                cursor.execute(statement.sql)
            except pymysql.MySQLError as error:
                found.append(f"number {number}: {statement.sql}: {error}")
                continue
            found += differing(list(cursor.fetchall()), theirs, statement, f"number {number}")
    assert not found, f"{len(found)} differ:\n" + "\n".join(found[:SHOWN_MAX])

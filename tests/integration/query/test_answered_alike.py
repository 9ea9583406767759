"""Random statements answer as MariaDB does over the raw rows: live, half built and built, on real servers.

Two receivers have read the events of one night from Kafka, in segments of half an hour, late ones behind the
others; Spark builds history out of what they have staged. The same statements are asked at each of the three
moments: over HTTP, by MySQL's protocol as text, and by its binary protocol, prepared, with all values bound.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

import httpx
import msgspec
import pyarrow as pa
import pymysql
import pytest
from rtolap.base.errors import RtolapError
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.model.segment import segment_of
from rtolap.protocols.coordinator.messages import SegmentInfo
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.services import Services, wait_for
from tests.support.query.binary_protocol import BinaryProtocol
from tests.support.query.oracles.mariadb_oracle import MariaOracle, Row, differences, open_maria
from tests.support.query.query_world import PARTITIONS
from tests.support.query.random_sql import RandomStatement
from tests.support.query.random_sql_times import random_half_hour_statement
from tests.support.seeds import so_many
from tests.support.watermarks.half_hours import (
    CUBE,
    HOURS,
    WINDOW_MS,
    Sent,
    half_hour_schema,
    oracle_definitions,
    random_night,
)

pytestmark = pytest.mark.integration

JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
SEED, EVENTS, STATEMENTS = 31, 500, so_many(60)
SEGMENTS = HOURS * 2
HALF = SEGMENTS // 2
ER_DATA_OUT_OF_RANGE = 1690
SHOWN_MAX = 8  # of the differences


@dataclass(frozen=True)
class Night:
    """Real servers with a cube on them, and what was sent to it."""

    services: Services
    kafka: str
    topic: str
    sent: list[Sent]
    oracle: MariaOracle

    def send(self, *, late: bool) -> None:
        producer = KafkaProducer(self.kafka, client_id="test")
        for record in self.sent:
            if record.is_late == late:
                producer.produce(self.topic, [OutRecord(record.value, partition=record.partition)])
        producer.flush(60)
        producer.close()

    def holds(self, events: int) -> bool:
        try:
            ((count,),) = self.services.sql(f"SELECT COUNT(*) FROM {CUBE}")["rows"]
        except httpx.HTTPError:
            return False
        return bool(count == events)

    def segments(self) -> list[SegmentInfo]:
        """By their start."""
        return sorted(self.services.coordinator.segments(CUBE), key=lambda segment: segment.start_ms)

    def versions(self) -> list[int]:
        """Of history, by segment; 0 where there is none yet."""
        return [segment.version for segment in self.segments()]


@pytest.fixture
def night(
    tmp_path: Path,
    zookeeper: str,
    kafka: str,
    mariadb_server: ManagedProcess,
    unique_name: str,
    create_topic: Callable[..., str],
) -> Iterator[Night]:
    create_topic(unique_name, PARTITIONS)
    sent, rows = random_night(SEED, EVENTS)
    schema = half_hour_schema(unique_name)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)
    socket = str(mariadb_server.spec.folder / "s.sock")
    try:
        services.start_coordinators()
        for name in ("left", "right"):
            services.start_receiver(name, name, "--checkpoint-interval-s", "2", "--idle-after-s", "2")
        services.start_query()
        client = services.coordinator
        client.create_table(msgspec.to_builtins(schema.table))
        client.create_cube(msgspec.to_builtins(schema.cube))
        wait_for("the receivers live", lambda: sum(r.health != "DOWN" for r in client.receivers()) == 2)
        client.enable_cube(CUBE)
        with open_maria(socket, unique_name, {"events": rows}, oracle_definitions("events")) as oracle:
            yield Night(services, kafka, unique_name, sent, oracle)
    finally:
        services.close()


@pytest.mark.seeded
def test_random_statements_are_answered_alike_live_half_built_and_built(night: Night) -> None:
    services, late = night.services, sum(record.is_late for record in night.sent)
    expected = expected_answers(night.oracle)
    night.send(late=False)
    wait_for("the events are visible", lambda: night.holds(EVENTS - late), 120)
    wait_for("all segments are known", lambda: len(night.segments()) == SEGMENTS, 120)
    wait_for("half of the segments are staged", lambda: are_staged(night.segments()[:HALF]), 120)
    night.send(late=True)
    wait_for("the late events are visible", lambda: night.holds(EVENTS), 120)
    assert night.versions() == [0] * SEGMENTS
    check_all(night, expected, "live")

    assert services.build_queue(JOBS, segments_max=HALF) == HALF
    assert night.versions() == [1] * HALF + [0] * (SEGMENTS - HALF)
    check_all(night, expected, "half built")

    wait_for("everything is in history", lambda: build_round(night), 400)
    assert all(
        night.versions()
    )  # late events are in a first version, or in a second: as their upload met the build
    check_all(night, expected, "built")
    assert services.ended() == []


def are_staged(segments: Sequence[SegmentInfo]) -> bool:
    return bool(segments) and all(segment.state in ("REMOTE_PERSISTED", "READY") for segment in segments)


def build_round(night: Night) -> bool:
    """Close what is open, and build when all is staged. Whether all events are in history then."""
    client = night.services.coordinator
    try:
        client.close_segment(CUBE, segment_of(night.segments()[-1].start_ms, WINDOW_MS).name)
        if are_staged(night.segments()):
            night.services.build_queue(JOBS)
        return sum(segment.events or 0 for segment in night.segments()) == EVENTS
    except RtolapError:
        return False


Expected = list[tuple[RandomStatement, list[Row]]]


def expected_answers(oracle: MariaOracle) -> Expected:
    """Without those where a value does not fit MySQL's type either."""
    rng = random.Random(SEED)
    found: Expected = []
    for _ in range(STATEMENTS):
        statement = random_half_hour_statement(rng)
        try:
            found.append((statement, oracle.rows(statement.oracle)))
        except pymysql.MySQLError as error:
            if error.args[0] != ER_DATA_OUT_OF_RANGE:
                raise AssertionError(f"{error}: {statement.oracle}") from error
    assert len(found) > STATEMENTS * 0.8
    return found


def check_all(night: Night, expected: Expected, moment: str) -> None:
    wrong: list[str] = []
    with night.services.mysql() as connection:
        binary = BinaryProtocol(connection)
        for statement, theirs in expected:
            for how, ask in (
                ("HTTP", lambda asked: by_http(night, asked)),
                ("MySQL", lambda asked: by_mysql(connection, asked)),
                ("prepared", lambda asked: binary.rows(asked.prepared, asked.values)),
            ):
                try:
                    found = differences(ask(statement), theirs, statement.keys)
                except (httpx.HTTPError, pymysql.MySQLError) as error:
                    found = str(error)
                if found:
                    wrong.append(f"{how}: {statement.plain} {statement.values}: {found}")
    shown = "\n".join(wrong[:SHOWN_MAX])
    assert not wrong, f"seed {SEED}, {moment}: {len(wrong)} of {3 * len(expected)} differ:\n{shown}"


def by_http(night: Night, statement: RandomStatement) -> list[Row]:
    """With its values bound, where JSON has their types."""
    is_bound = not any(isinstance(value, date | Decimal) for value in statement.values)
    if is_bound:
        table = night.services.arrow(statement.prepared, statement.values)
    else:
        table = night.services.arrow(statement.plain)
    return rows_of(table)


def by_mysql(connection: pymysql.connections.Connection, statement: RandomStatement) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(statement.plain)
        return list(cursor.fetchall())


def rows_of(table: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in table.to_pylist()]

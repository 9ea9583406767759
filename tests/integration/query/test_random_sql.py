"""Random statements answer as MariaDB does over the raw rows: in the process, and through both servers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date
from decimal import Decimal

import httpx
import pyarrow as pa
import pymysql
import pytest
from rtolap.base.errors import OutOfRange
from rtolap.protocols.query.messages import ARROW_STREAM
from rtolap.query.statement_service import QueryService
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.flights import flights_world
from tests.support.query.binary_protocol import BinaryProtocol
from tests.support.query.oracles.mariadb_oracle import MariaOracle, Row, differences, open_maria
from tests.support.query.query_endpoints import TOKEN, open_endpoints
from tests.support.query.query_world import QueryWorld
from tests.support.query.random_sql import RandomStatement, random_statement

pytestmark = pytest.mark.integration
BLOCKS, STATEMENTS_A_BLOCK = 8, 250
STATEMENTS_PER_ENDPOINT = 60
ER_DATA_OUT_OF_RANGE = 1690


@pytest.fixture(scope="module")
def raw_world() -> Iterator[QueryWorld]:
    with closing(flights_world(11, 150)) as world:
        yield world


@pytest.fixture(scope="module")
def raw_service(raw_world: QueryWorld) -> Iterator[QueryService]:
    with closing(raw_world.service()) as service:
        yield service


@pytest.fixture(scope="module")
def maria_rows(mariadb_server: ManagedProcess, raw_world: QueryWorld) -> Iterator[MariaOracle]:
    socket = str(mariadb_server.spec.folder / "s.sock")
    tables = {"flights": raw_world.visible("flights")}
    with open_maria(socket, "random_sql", tables) as oracle:
        yield oracle


def statements(seed: int, count: int) -> list[RandomStatement]:
    rng = random.Random(seed)
    return [random_statement(rng) for _ in range(count)]


def rows_of(table: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in table.to_pylist()]


def theirs_of(oracle: MariaOracle, statement: RandomStatement) -> list[Row] | None:
    """None where a value does not fit MySQL's type either."""
    try:
        return oracle.rows(statement.plain)
    except pymysql.MySQLError as error:
        if error.args[0] == ER_DATA_OUT_OF_RANGE:
            return None
        raise AssertionError(f"{error}: {statement.plain}") from error


def check(theirs: Sequence[Row] | None, ours: Sequence[Row], statement: RandomStatement, how: str) -> None:
    # where MySQL's number for one event is too small, ours for their sum need not be
    if theirs is not None:
        found = differences(ours, theirs, statement.keys)
        assert not found, f"{how}: {statement.plain} {statement.values}: {found}"


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_statements_answer_as_mariadb_does_over_the_raw_rows(
    block: int, raw_service: QueryService, maria_rows: MariaOracle
) -> None:
    """Every other one with its values bound, in their own types."""
    for number, statement in enumerate(statements(7000 + block, STATEMENTS_A_BLOCK)):
        theirs = theirs_of(maria_rows, statement)
        is_bound = number % 2 == 1
        sql = statement.prepared if is_bound else statement.plain
        try:
            outcome = raw_service.execute(sql, statement.values if is_bound else ())
            ours = rows_of(outcome.table())
        except OutOfRange:
            assert theirs is None, statement.plain
            continue
        check(theirs, ours, statement, f"seed {7000 + block}, number {number}, bound: {is_bound}")


def test_both_servers_answer_random_statements_as_mariadb_does(
    raw_world: QueryWorld, maria_rows: MariaOracle
) -> None:
    """MySQL's protocol as text, and prepared with all values bound in binary."""
    with open_endpoints(raw_world) as endpoints, endpoints.connect(charset="utf8mb4") as connection:
        binary = BinaryProtocol(connection)
        for statement in statements(9000, STATEMENTS_PER_ENDPOINT):
            theirs = theirs_of(maria_rows, statement)
            if theirs is None:
                continue
            with connection.cursor() as cursor:
                cursor.execute(statement.plain)
                check(theirs, list(cursor.fetchall()), statement, "MySQL")
            check(theirs, binary.rows(statement.prepared, statement.values), statement, "MySQL, prepared")
            is_bound = not any(isinstance(value, date | Decimal) for value in statement.values)
            body = {
                "sql": statement.prepared if is_bound else statement.plain,
                "parameters": list(statement.values) if is_bound else [],
            }
            answer = httpx.post(
                f"{endpoints.http_url}/api/v1/query",
                json=body,
                headers={"Authorization": f"Bearer {TOKEN}", "Accept": ARROW_STREAM},
                timeout=60,
                trust_env=False,
            )
            assert answer.status_code == 200, answer.text
            check(theirs, rows_of(pa.ipc.open_stream(answer.content).read_all()), statement, "HTTP")

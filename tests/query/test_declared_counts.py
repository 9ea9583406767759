"""Counts and sizes of docs/security.md that a client chooses for its own connection, each up to its limit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from rtolap.base.errors import QueryError
from rtolap.query.http import request_body, running, server
from rtolap.query.memory_budget import MemoryBudget
from rtolap.query.mysql.prepared import PreparedStatement, PreparedStatements
from rtolap.query.statement_service import QueryLimits

from tests.support import http_calls
from tests.support.query.query_endpoints import OTHER_USER, PASSWORD, USER, Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld
from tests.support.query.workers import worker_pids
from tests.support.waiting import until

DEADLINE_S = 120.0
_USE, _NAME_BYTES_MAX = 2, 64 << 10
_TOO_LARGE = 1153


@pytest.fixture(scope="module")
def endpoints(world: QueryWorld) -> Iterator[Endpoints]:
    with open_endpoints(world) as opened:
        yield opened


def test_a_session_has_a_thousand_user_variables(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection, connection.cursor() as cursor:
        for first in range(0, 1_000, 100):
            cursor.execute("set " + ", ".join(f"@v{number} = 1" for number in range(first, first + 100)))
        with pytest.raises(pymysql.err.MySQLError, match="too much in user variables"):
            cursor.execute("set @one_more = 1")
        cursor.execute("select @v999")
        assert cursor.fetchall() == ((1,),)


def test_a_session_has_a_hundred_texts_of_prepare(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection, connection.cursor() as cursor:
        for number in range(100):
            cursor.execute(f"prepare p{number} from 'select 1'")
        with pytest.raises(pymysql.err.MySQLError, match="prepared"):
            cursor.execute("prepare one_more from 'select 1'")
        cursor.execute("deallocate prepare p0")
        cursor.execute("prepare one_more from 'select 1'")


def test_a_connection_has_a_thousand_prepared_statements() -> None:
    held = PreparedStatements(MemoryBudget().account(USER))
    for _ in range(1_000):
        held.check_room()
        held.add_statement(PreparedStatement("select 1", pa.schema([]), ()))
    with pytest.raises(QueryError, match="too many prepared statements"):
        held.check_room()


def test_a_name_has_64_kib(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection:
        connection._execute_command(_USE, b"x" * _NAME_BYTES_MAX)
        with pytest.raises(pymysql.err.MySQLError) as refused:
            connection._read_packet()
        assert refused.value.args[0] == _TOO_LARGE
        connection.select_db("rtolap")


def test_no_worker_leaves_a_core_file(world: QueryWorld) -> None:
    service = world.service(QueryLimits(queries_max=1), in_workers=True)
    try:
        service.execute("select carrier from flights").close()
        (pid, *_) = worker_pids(service)
        limits = Path(f"/proc/{pid}/limits").read_text()
        (core,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
        assert core.split()[4:6] == ["0", "0"]
    finally:
        service.close()


def test_requests_of_one_user_beyond_its_share_of_threads_wait_and_anothers_do_not(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    share, asked = 2, 6
    monkeypatch.setattr(server, "THREADS_PER_USER", share)
    gate, begun = threading.Event(), list[str]()
    decoded = request_body.decoded

    def held(data: bytes, account: Any) -> Any:
        begun.append(account._user)
        if account._user == USER:
            assert gate.wait(DEADLINE_S)
        return decoded(data, account)

    monkeypatch.setattr(running, "decoded", held)
    with open_endpoints(world) as endpoints, ThreadPoolExecutor(asked) as pool:

        def ask(user: str) -> Any:
            return http_calls.post(
                f"{endpoints.http_url}/api/v1/query",
                json={"sql": "select 1 as x"},
                auth=(user, PASSWORD),
                timeout=DEADLINE_S,
            ).json()["rows"]

        heavy = [pool.submit(ask, USER) for _ in range(asked)]
        try:
            until(lambda: begun.count(USER) == share, "the user's share is at work")
            assert ask(OTHER_USER) == [[1]]
            assert begun.count(USER) == share
        finally:
            gate.set()
        assert [each.result() for each in heavy] == [[[1]]] * asked

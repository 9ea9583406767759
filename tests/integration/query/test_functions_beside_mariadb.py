"""Functions, casts and comparisons of many values answer as a MariaDB server's do, one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isclose

import pyarrow as pa
import pymysql
import pytest
from rtolap.base.users import Users
from rtolap.query.durations import durations_us, is_duration, time_text
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.classify import classify, needs_admission, plain
from rtolap.query.statements.executor import Executor, NoOpenConnections
from rtolap.query.statements.sql_session import SqlSession
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.flights import flights_world
from tests.support.query.function_calls import CALLS, COMPARED, QUERIES, random_calls
from tests.support.query.oracles.mariadb_oracle import MariaOracle, open_maria
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

pytestmark = pytest.mark.integration
CALLS_A_STATEMENT = 40
RANDOM_SEEDS, CALLS_A_SEED = 8, 40
_MODES = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,PIPES_AS_CONCAT,NO_ZERO_IN_DATE,NO_ZERO_DATE"


@pytest.fixture(scope="module")
def asked_world() -> Iterator[QueryWorld]:
    with closing(flights_world(11, 20)) as world:
        yield world


@pytest.fixture(scope="module")
def asked_service(asked_world: QueryWorld) -> Iterator[QueryService]:
    with closing(asked_world.service()) as service:
        yield service


@pytest.fixture(scope="module")
def maria(mariadb_server: ManagedProcess) -> Iterator[MariaOracle]:
    socket = str(mariadb_server.spec.folder / "s.sock")
    with open_maria(socket, "functions", {}) as oracle:
        oracle.run(f"SET sql_mode = '{_MODES}'")
        yield oracle


@pytest.mark.parametrize("name", [*CALLS, *COMPARED])
def test_calls_answer_as_mariadb_does(name: str, asked_service: QueryService, maria: MariaOracle) -> None:
    check((CALLS | COMPARED)[name], asked_service, maria)


@pytest.mark.parametrize("seed", range(so_many(RANDOM_SEEDS)))
def test_random_calls_answer_as_mariadb_does(
    seed: int, asked_service: QueryService, maria: MariaOracle
) -> None:
    check(random_calls(random.Random(seed), CALLS_A_SEED), asked_service, maria)


def check(calls: Sequence[str], asked_service: QueryService, maria: MariaOracle) -> None:
    for start in range(0, len(calls), CALLS_A_STATEMENT):
        some = calls[start : start + CALLS_A_STATEMENT]
        sql = "select " + ", ".join(f"{call} as c{number}" for number, call in enumerate(some))
        ((*theirs,),) = maria.rows(sql)
        ours = _first_row(asked_service, sql)
        unlike = [
            f"{call}: ours {one!r}, theirs {two!r}"
            for call, one, two in zip(some, ours, map(_plain, theirs), strict=True)
            if not _alike(one, two)
        ]
        assert not unlike, "\n".join(unlike)


@pytest.mark.parametrize("function", ["upper", "lower"])
def test_every_letter_has_the_case_that_mariadb_gives_it(
    function: str, asked_service: QueryService, maria: MariaOracle
) -> None:
    """Or today's Unicode: the tables of its collation are of Unicode 3."""
    letters = [chr(code) for code in range(0xA0, 0x10000) if chr(code).swapcase() != chr(code)]
    unlike: list[tuple[str, str, str]] = []
    for start in range(0, len(letters), 500):
        some = letters[start : start + 500]
        sql = f"select {function}('{' '.join(some)}')"
        ((theirs,),) = maria.rows(sql)
        (ours,) = _first_row(asked_service, sql)
        both = zip(some, ours.split(" "), theirs.split(" "), strict=True)
        unlike += [
            (letter, mine, other)
            for letter, mine, other in both
            if mine not in (other, getattr(letter, function)())
        ]
    assert not unlike


@pytest.mark.parametrize("sql", QUERIES)
def test_queries_answer_as_mariadb_does(sql: str, asked_service: QueryService, maria: MariaOracle) -> None:
    theirs = [tuple(map(_plain, row)) for row in maria.rows(sql)]
    ours = [tuple(map(_plain, row.values())) for row in asked_service.execute(sql).table().to_pylist()]
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert all(map(_alike, mine, other)), (mine, other)


@pytest.mark.parametrize(
    "sql", ["select count(*), 1+1, 'abc',  max( 3 ) , null, concat('a' ,  'b')", "select -1, now( )"]
)
def test_columns_are_named_as_mariadb_names_them(
    sql: str, asked_service: QueryService, maria: MariaOracle
) -> None:
    assert asked_service.execute(sql).schema.names == maria.names(sql)


SCRIPTS = {
    "offset": (
        "set time_zone = '+02:00'",
        "select from_unixtime(0), from_unixtime(1, '%H:%i'), unix_timestamp('2013-01-02 03:04:05')",
        "select unix_timestamp('2013-01-02 03:04:05.25'), unix_timestamp(date '2013-01-02')",
        "select from_unixtime(1.5)",
        "select timestampdiff(minute, utc_timestamp(), now()), time_to_sec(timediff(now(), utc_timestamp()))",
        "select timestampdiff(minute, utc_timestamp(), current_timestamp), curdate() = date(now())",
        "select hour(curtime()) = hour(now()), timestamp '2013-01-02 03:04:05'",
        "select unix_timestamp() - unix_timestamp(now())",
        "set time_zone = '-03:30'",
        "select from_unixtime(0), timestampdiff(minute, utc_timestamp(), now())",
        "set time_zone = '+00:00'",
        "select from_unixtime(0)",
    ),
    "user variables": (
        "set @a = 1.5, @b = 'x\\'y', @c = 1 + 2, @d = null, @e = concat('p', 'q')",
        "set @f := (select max(1)), @g = -7",
        "select @a, @b, @c, @d, @e, @f, @g, @never, @A + 1",
        "set @a = @a + 1, @b = date '2013-01-02', @c = 2e0",
        "select @a, @b, @c, @c * 2, length(@b)",
        "select 1 where 2.5 = @a",
    ),
    "prepared": (
        "prepare s from 'select ? + ? as x, ? as y'",
        "set @x = 1, @y = 2, @z = 'text'",
        "execute s using @x, @y, @z",
        "set @x = null",
        "execute s using @x, @y, @z",
        "set @q = 'select 1 as one where ? is null'",
        "prepare s from @q",
        "execute s using @x",
        "deallocate prepare s",
        "prepare `t` from \"select 'it''s' as z\"",
        "execute t",
        "drop prepare t",
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_session_answers_as_mariadbs(name: str, asked_service: QueryService, maria: MariaOracle) -> None:
    executor, session = (
        Executor(asked_service, Users({}), NoOpenConnections()),
        SqlSession(1, "ann", "localhost"),
    )
    for sql in SCRIPTS[name]:
        request = classify(plain(sql), None)
        cancellation = asked_service.cancellation() if needs_admission(request) else None
        outcome = executor.execute(request, session, (), cancellation)
        if not len(outcome.schema):
            outcome.close()
            maria.run(sql)
            continue
        ours = _values(outcome.table())
        theirs = [tuple(map(_plain, row)) for row in maria.rows(sql)]
        assert len(ours) == len(theirs), sql
        for mine, other in zip(ours, theirs, strict=True):
            assert all(map(_alike, mine, other)), f"{sql}: ours {mine}, theirs {other}"


def test_what_a_session_has_not_is_an_error_there_too(
    asked_service: QueryService, maria: MariaOracle
) -> None:
    for sql, number in (("execute nothing", 1243), ("deallocate prepare nothing", 1243)):
        with pytest.raises(pymysql.MySQLError) as theirs:
            maria.run(sql)
        assert theirs.value.args[0] == number


def _first_row(service: QueryService, sql: str) -> tuple[object, ...]:
    (row,) = _values(service.execute(sql).table())
    return row


def _values(table: pa.Table) -> list[tuple[object, ...]]:
    columns: list[Sequence[object]] = []
    for column in table.columns:
        if is_duration(column.type):
            columns.append([None if us is None else time_text(us) for us in durations_us(column)])
        else:
            columns.append([_plain(value) for value in column.to_pylist()])
    return list(zip(*columns, strict=True))


def _plain(value: object) -> object:
    match value:
        case bytes():
            return value.decode(errors="backslashreplace")
        case bool():
            return int(value)
        case datetime():
            return value.isoformat(" ")
        case date():
            return value.isoformat()
        case timedelta():
            return time_text(round(value / timedelta(microseconds=1)))
    return value


def _alike(one: object, two: object) -> bool:
    if isinstance(one, int | float | Decimal) and isinstance(two, int | float | Decimal):
        if isinstance(one, float) or isinstance(two, float):
            return isclose(float(one), float(two), rel_tol=1e-9)
        return one == two
    return one == two

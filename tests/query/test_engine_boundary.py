"""What no statement reaches: the engine's catalogue, its settings, other sessions, more than one SELECT."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from rtolap.base.errors import OutOfRange, QueryError, RtolapError, UnknownFunction
from rtolap.query.approval.engine_tree import EngineTexts
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.functions.names import FUNCTIONS
from rtolap.query.sql.dialect import engine_sql
from rtolap.query.sql.parser import parse
from rtolap.query.statement_service import QueryService

ATTACKS = (
    "SELECT EXTRACT(`day FROM NOW()); CREATE OR REPLACE MACRO main.sum(x) AS 1; "
    "SELECT EXTRACT(day` FROM NOW())",
    "SELECT EXTRACT(`day FROM NOW()); CREATE TABLE kept(a INT); SELECT EXTRACT(day` FROM NOW())",
    "SELECT TIMESTAMPDIFF(`day', NOW(), NOW()); SET memory_limit = '1TB'; SELECT ('1`, NOW(), NOW())",
    "SELECT `current_setting`('temp_directory')",
    "SELECT current_setting('temp_directory')",
    "SELECT `getenv`('HOME')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM `duckdb_settings`()",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM pg_class",
    "WITH sqlite_master AS (SELECT * FROM sqlite_master) SELECT * FROM sqlite_master",
    "WITH a AS (SELECT 1 AS x) SELECT (SELECT count(*) FROM duckdb_tables) FROM a",
    "SELECT * FROM information_schema.schemata_of_the_engine",
    "SELECT * FROM `/etc/passwd`",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT read_text('/etc/passwd')",
    "SELECT query('SELECT 1')",
    "SELECT json_execute_serialized_sql('{}')",
    "SELECT * FROM range(1000000000000)",
    "SELECT range(1000000000)",
    "SELECT generate_series(1, 1000000000)",
    "SELECT unnest(range(1000))",
    "SELECT nextval('s')",
    "SELECT sleep_ms(100000)",
    "SELECT pg_sleep(100)",
    "SELECT setseed(0.5)",
    "SELECT system.main.sum(1)",
    "SELECT main.sum(1)",
    "SELECT COLUMNS('.*') FROM flights",
    "SELECT CAST('a' AS `regclass`)",
    "SELECT write_log('x')",
    "SELECT `a b`(1)",
    "SELECT getvariable('x')",
    "SELECT version_of_everything()",
    "SELECT 1; SELECT 2",
    "SELECT 1 /*x*/; DROP TABLE a",
    "DESCRIBE SELECT 1; SELECT 1",
    "SELECT * FROM (SHOW TABLES)",
    "SELECT CASE WHEN 1 COLLATE `x; drop` THEN 1 END",
)


@pytest.fixture(scope="module")
def texts() -> Iterator[EngineTexts]:
    made = EngineTexts(duckdb.connect())
    yield made
    made.close()


@pytest.mark.parametrize("sql", ATTACKS)
def test_no_statement_reaches_the_engines_own_things(sql: str, service: QueryService) -> None:
    with pytest.raises(RtolapError) as refused:
        service.execute(sql).table()
    assert isinstance(refused.value, QueryError), refused.value
    total = service.execute("select sum(a) t from (select 3 as a union all select 4) x").table().to_pylist()
    assert [int(row["t"]) for row in total] == [7]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE OR REPLACE MACRO main.sum(x) AS 1",
        "CREATE TEMP MACRO sum(x) AS 1",
        "CREATE TABLE kept (a INT)",
        "SET memory_limit = '1TB'",
        "SET VARIABLE a = 1",
        "ATTACH ':memory:' AS other",
        "COPY (SELECT 1) TO '/tmp/rtolap-never.csv'",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "EXPLAIN SELECT 1",
        "SELECT 1; SELECT 2",
        "SELECT 1; CREATE TABLE kept (a INT)",
        "SUMMARIZE SELECT 1",
        "FROM duckdb_settings()",
        "SELECT * FROM 'a.csv'",
        "SELECT current_setting('memory_limit')",
        "SELECT repeat('x', 3)",
        "SELECT lpad('x', 3, 'y')",
        "SELECT list_transform([1], lambda x: x)",
        "SELECT [x FOR x IN [1]]",
        "SELECT CAST('x' AS main.thing)",
        "SELECT CAST(1 AS STRUCT(a INT))",
        "SELECT * FROM registered TABLESAMPLE 10 PERCENT",
        "SELECT * FROM memory.main.registered",
        "SELECT * FROM somebody_elses",
        "PIVOT registered ON a",
    ],
)
def test_a_session_runs_nothing_but_one_select_of_what_is_allowed(sql: str, engine: EmbeddedEngine) -> None:
    session = engine.session()
    try:
        session.register("registered", pa.table({"a": [1]}))
        with pytest.raises(QueryError):
            session.read(sql, {})
        rows = session.read('SELECT "a" FROM "registered"', {}).to_pylist()
        assert rows == [{"a": 1}]
    finally:
        session.close()


def test_nothing_is_shared_that_can_be_written(engine: EmbeddedEngine) -> None:
    """Also for a text that came past every check."""
    one, other = engine.session(), engine.session()
    try:
        for sql in (
            "CREATE OR REPLACE MACRO main.sum(x) AS 1",
            "CREATE OR REPLACE MACRO mysql_left(s, n) AS 'changed'",
            "CREATE TABLE kept (a INT)",
            "CREATE SCHEMA other",
            "CREATE TYPE mood AS ENUM ('a')",
            "ATTACH ':memory:' AS beside",
            "SET memory_limit = '1TB'",
            "SET enable_external_access = true",
        ):
            with pytest.raises(duckdb.Error):
                one._cursor.execute(sql)
        one._cursor.execute("CREATE TEMP MACRO sum(x) AS 1")
        one._cursor.execute("CREATE TEMP TABLE kept AS SELECT 1 AS a")
        rows = other.read("SELECT sum(3) AS s, mysql_left('abc', 2) AS t", {}).to_pylist()
        assert [(int(row["s"]), row["t"]) for row in rows] == [(3, "ab")]
        with pytest.raises(duckdb.Error, match="kept"):
            other._cursor.execute("SELECT * FROM kept")
    finally:
        one.close()
        other.close()


def test_a_text_tells_which_relations_it_reads(texts: EngineTexts) -> None:
    sql = 'WITH "c" AS (SELECT 1 AS x FROM "one") SELECT * FROM "c", (SELECT 2 AS y FROM "two") AS t'
    assert texts.approve(sql) == texts.approve(sql) == {"one", "two"}


def test_comments_do_not_go_along_to_the_engine() -> None:
    assert engine_sql(parse("select /* one */ 1 as a -- two\n /*+ three */").tree) == "SELECT 1 AS a"


@pytest.mark.parametrize(
    "sql",
    [
        "select length(repeat('x', 4000000000)) n",
        "select length(repeat(repeat('x', 1000), 4000000)) n",
        "select length(lpad('x', 2000000000, 'y')) n",
        "select length(rpad('x', 2000000000, 'y')) n",
        "select length(space(4000000000)) n",
        "select max(length(repeat(carrier, 100000))) n from flights",
        "select max(length(lpad(carrier, 100000, 'x'))) n from flights group by carrier",
        "select count(*) as n from flights where carrier = repeat('x', 4000000000)",
        "select coalesce(length(repeat('x', 4000000000)), 1) n",
    ],
)
def test_no_function_makes_a_text_beyond_all_bounds(sql: str, service: QueryService) -> None:
    with pytest.raises(QueryError, match="bytes is not made"):
        service.execute(sql).table()


def test_texts_within_the_bounds_are_made(service: QueryService) -> None:
    sql = (
        "select repeat('ab', 2) b, repeat('a', -1) c, repeat('', 4000000000) d, space(2) e, "
        "lpad('a', 3, 'b') f, rpad('a', 3) g, repeat(null, 3) h, repeat('a', null) i, lpad('ab', 1, '') j"
    )
    long = service.execute("select length(repeat('xy', 8000000)) a").table().column(0).to_pylist()
    assert long == [16_000_000]
    (row,) = service.execute(sql).table().to_pylist()
    assert tuple(row.values()) == ("abab", "", "", "  ", "bba", "a  ", None, None, "a")


def test_digits_behind_the_point_are_as_many_as_mysql_shows(service: QueryService) -> None:
    (row,) = (
        service.execute("select length(format(1.5, 1000000000)) n, format(1234.5, 2) m").table().to_pylist()
    )
    assert row == {"n": 32, "m": "1,234.50"}


def test_every_documented_function_is_allowed_before_parsing_and_behind(service: QueryService) -> None:
    for name in FUNCTIONS:
        for arguments in ("", "'2013-01-01'", "1, 2"):
            try:
                service.execute(f"select {name}({arguments}) as x").table()
            except UnknownFunction as error:
                pytest.fail(f"{name}({arguments}): {error}")
            except (QueryError, OutOfRange):
                continue

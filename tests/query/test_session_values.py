"""Sessions: user variables, texts that are prepared, time zones, and names of columns as they are written."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from rtolap.base.errors import (
    QueryError,
    QueryInterrupted,
    SqlSyntaxError,
    UnknownPrepared,
    UnknownZone,
    UnsupportedSql,
)
from rtolap.base.users import Users
from rtolap.query.mysql.codes import error_code
from rtolap.query.mysql.statement_text import statement_text
from rtolap.query.statement_outcome import StatementOutcome
from rtolap.query.statement_service import QueryService
from rtolap.query.statements import text_prepared
from rtolap.query.statements.assignments import USER_BYTES_MAX, USER_VARIABLES_MAX
from rtolap.query.statements.classify import classify, needs_admission, plain
from rtolap.query.statements.executor import Executor, NoOpenConnections
from rtolap.query.statements.sql_session import SqlSession

from tests.support.query.query_world import QueryWorld
from tests.support.query.tools_statements import STATEMENTS

Run = Callable[[str], list[tuple[object, ...]]]


@pytest.fixture
def session() -> SqlSession:
    return SqlSession(1, "ann", "localhost", database="rtolap")


@pytest.fixture
def execute(service: QueryService, session: SqlSession) -> Callable[[str], StatementOutcome]:
    executor = Executor(service, Users({}), NoOpenConnections())

    def execute(sql: str) -> StatementOutcome:
        request = classify(plain(sql), session.database)
        return executor.execute(
            request, session, (), service.cancellation() if needs_admission(request) else None
        )

    return execute


@pytest.fixture
def run(execute: Callable[[str], StatementOutcome]) -> Run:
    def run(sql: str) -> list[tuple[object, ...]]:
        outcome = execute(sql)
        table = outcome.table() if len(outcome.schema) else pa.table({})
        outcome.close()
        return [tuple(row.values()) for row in table.to_pylist()]

    return run


def test_a_user_variable_holds_what_a_statement_over_cubes_says(run: Run, world: QueryWorld) -> None:
    count = world.visible("flights").num_rows
    run("set @n = (select count(*) from flights), @half := @n / 2")
    assert run("select @n, @half, @N + 1") == [(count, count / 2, count + 1)]
    assert run("select count(*) from flights having count(*) = @n") == [(count,)]


def test_user_variables_are_bounded_and_one_that_is_too_large_changes_nothing(
    run: Run, session: SqlSession
) -> None:
    run("set @a = 1")
    for number in range(USER_BYTES_MAX // 60_000 + 2):
        try:
            run(f"set @b{number} = repeat('x', 60000), @a = {number}")
        except QueryError as error:
            assert "too much in user variables" in str(error)  # noqa: PT017 - one of them, whichever
            break
    else:
        pytest.fail("nothing was refused")
    assert f"@b{number}" not in session.users
    assert session.users["@a"] == number - 1
    many = ", ".join(f"@v{number} = 1" for number in range(USER_VARIABLES_MAX + 1))
    with pytest.raises(QueryError, match="too much in user variables"):
        run(f"set {many}")
    with pytest.raises(QueryError):
        run("set @c = (select 1 union all select 2)")


def test_a_value_that_takes_too_long_ends_with_its_statement(
    service: QueryService, session: SqlSession
) -> None:
    executor = Executor(service, Users({}), NoOpenConnections())
    cancellation = service.cancellation()
    cancellation.cancel("killed")
    with pytest.raises(QueryInterrupted, match="killed"):
        executor.execute(classify("set @a = 1 + 1", None), session, (), cancellation)
    assert session.users == {}


def test_texts_are_prepared_executed_and_forgotten(run: Run, session: SqlSession) -> None:
    run("PREPARE `Best` FROM 'select carrier, count(*) n from flights where carrier = ? group by 1'")
    run("set @c = 'AA'")
    assert run("execute best using @c") == run(
        "select carrier, count(*) n from flights where carrier = 'AA' group by 1"
    )
    run("prepare shows from 'show tables'")
    assert run("execute shows") == run("show tables")
    run("prepare sets from 'set @d = 5'")
    run("execute sets")
    assert run("select @d") == [(5,)]
    run("deallocate prepare best")
    with pytest.raises(UnknownPrepared) as unknown:
        run("execute best using @c")
    assert error_code(unknown.value) == (1243, "HY000")
    with pytest.raises(QueryError, match="wrong number of parameters"):
        run("execute shows using @c")


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("prepare s from 'selec'", SqlSyntaxError),
        ("prepare s from select 1", SqlSyntaxError),
        ("prepare s from 'select 1; select 2'", SqlSyntaxError),
        ("prepare s from 'execute t'", UnsupportedSql),
        ("execute s using 5", SqlSyntaxError),
        ("drop prepare s", UnknownPrepared),
        ("set time_zone = 'Nowhere/City'", UnknownZone),
        ("select @a := 1", UnsupportedSql),
    ],
)
def test_what_cannot_be_is_refused_by_its_type(run: Run, sql: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        run(sql)


def test_prepared_texts_are_bounded(run: Run, session: SqlSession) -> None:
    for number in range(text_prepared.PREPARED_MAX):
        run(f"prepare s{number} from 'select 1'")
    run("prepare s0 from 'select 2'")
    assert run("execute s0") == [(2,)]
    with pytest.raises(QueryError, match="too much in prepared statements"):
        run("prepare one_more from 'select 1'")
    session.reset()
    long = "x" * (text_prepared.PREPARED_BYTES_MAX // 2)
    text_prepared.keep(session.prepared, "a", long)
    with pytest.raises(QueryError, match="too much in prepared statements"):
        text_prepared.keep(session.prepared, "b", long + "x")


def test_what_a_request_alone_cannot_keep_is_refused(service: QueryService) -> None:
    executor = Executor(service, Users({}), NoOpenConnections())
    for sql in ("select @a", "prepare s from 'select 1'", "execute s", "deallocate prepare s", "set @a = 1"):
        with pytest.raises(UnsupportedSql, match="no statement follows in this session"):
            executor.execute(classify(sql, None), SqlSession(0, "ann", "", is_persistent=False))


def test_a_zone_moves_the_clock_and_no_column(run: Run) -> None:
    before = run("select min(hour_start), max(flown_on) from flights")
    run("set time_zone = '+02:00'")
    assert run("select timestampdiff(minute, utc_timestamp(), now()), now(6) > utc_timestamp()") == [
        (120, True)
    ]
    assert run("select min(hour_start), max(flown_on) from flights") == before
    run("set time_zone = 'Asia/Kolkata'")
    assert run("select timestampdiff(minute, utc_timestamp(), now()), from_unixtime(0, '%H:%i')") == [
        (330, "05:30")
    ]
    assert run("select unix_timestamp('1970-01-01 05:30:00'), unix_timestamp(now()) - unix_timestamp()") == [
        (0, 0)
    ]
    run("set time_zone = default")
    assert run("select from_unixtime(0, '%H:%i')") == [("00:00",)]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select count(*), COUNT( * ) from flights", ["count(*)", "COUNT( * )"]),
        ("select max(delay)+1, carrier from flights group by carrier", ["max(delay)+1", "carrier"]),
        ("select 'text', null, 1.50, -1, now ( )", ["text", "NULL", "1.50", "-1", "now ( )"]),
        ("select `count(*)` from (select count(*) from flights) x", ["count(*)"]),
        ("select distinct upper(carrier) from flights", ["upper(carrier)"]),
        ("select count(*) union all select 2", ["count(*)"]),
        ("with a as (select 1+1) select `1+1`, 2 /* why */ from a", ["1+1", "2"]),
        ("select @@version_comment, @a, @a+1", ["@@version_comment", "@a", "@a+1"]),
    ],
)
def test_a_column_is_called_as_it_is_written(
    sql: str, names: list[str], execute: Callable[[str], StatementOutcome]
) -> None:
    outcome = execute(sql)
    assert outcome.schema.names == names
    outcome.close()


def test_a_parameter_shows_as_its_mark(service: QueryService) -> None:
    outcome = service.execute("select ?, ? + 1, concat(?, ':p1')", (1, 2, "a"))
    assert outcome.schema.names[:2] == ["?", "? + 1"]
    outcome.close()


@pytest.mark.parametrize(
    ("sql", "messages"),
    [
        ("select 1 = '1abc' x", ["Truncated incorrect DOUBLE value: '1abc'"]),
        ("select 1 = ' 1 ' x", []),
        ("select date '2013-01-02' = 'x' x", ["Truncated incorrect DATE value: 'x'"]),
        (
            "select timestamp '2013-01-02 03:04:05' > '2013-01-02xyz' x",
            ["Truncated incorrect DATETIME value: '2013-01-02xyz'"],
        ),
        ("select count(*) x from flights where flown_on > 5", ["Truncated incorrect DATE value: '5'"]),
        ("select count(*) x from flights where flown_on = '2013/1/2'", []),
    ],
)
def test_a_constant_of_which_a_part_alone_counts_is_warned_of(
    sql: str, messages: list[str], service: QueryService
) -> None:
    outcome = service.execute(sql)
    outcome.table()
    assert [(warning.code, warning.message) for warning in outcome.warnings] == [
        ("truncated_value", message) for message in messages
    ]


@pytest.mark.parametrize(
    "moment", ["'2013/1/2'", "'20130102'", "'130102'", "20130102", "130102", "20130102000000"]
)
def test_a_date_finds_its_rows_however_it_is_written(moment: str, service: QueryService) -> None:
    sql = "select count(*) n, sum(distance) s from flights where flown_on = {0} or flown_on in ({0}, null)"
    written, asked = (service.execute(sql.format(each)).table() for each in ("'2013-01-02'", moment))
    assert asked.equals(written)
    assert written.column("n")[0].as_py() > 0


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"select _binary'\xff\\'\\0''\x80'", "select x'ff27002780'"),
        (b"select _binary'plain', '\xc3\xa9'", "select _binary'plain', 'é'"),
        (b"select '_binary''x', _BINARY '\xfe'", "select '_binary''x', x'fe'"),
        (b"/* _binary'\xc3\xa9' */ select _binary'\\n\xff'", "/* _binary'é' */ select x'0aff'"),
    ],
)
def test_bytes_within_a_statement_are_read_as_they_were_sent(data: bytes, text: str) -> None:
    assert statement_text(data) == text


@pytest.mark.parametrize("data", [b"select '\xff'", b"select \xff", b"select `\xff`, _binary'\xff'"])
def test_other_bytes_that_are_no_text_are_refused(data: bytes) -> None:
    with pytest.raises(SqlSyntaxError, match="not UTF-8"):
        statement_text(data)


@pytest.mark.parametrize("tool", STATEMENTS)
def test_what_a_tool_sends_is_answered(tool: str, run: Run) -> None:
    for sql in STATEMENTS[tool]:
        run(sql)


def test_a_tools_chart_by_weeks_equals_a_recount(run: Run) -> None:
    of_metabase = run(
        "select str_to_date(concat(yearweek(ts), ' Sunday'), '%X%V %W') as w, count(*) n "
        "from flights group by 1"
    )
    recount = run(
        "select cast(day_start - interval dayofweek(day_start) - 1 day as date) as w, count(*) n "
        "from flights group by 1"
    )
    assert sorted(of_metabase) == sorted(recount)
    assert len(recount) > 0

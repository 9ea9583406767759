"""SET sql_mode and SET time_zone are honoured or refused, never accepted and ignored."""

from __future__ import annotations

import pytest
from rtolap.base.errors import QueryError
from rtolap.query.mysql import codes
from rtolap.query.sql.dialect import quoted_for_ansi, quoted_with_backticks
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.classify import plain
from rtolap.query.statements.sql_session import VARIABLES, SqlSession

DEFAULT_MODE = VARIABLES["sql_mode"]
ANSI = "PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,ONLY_FULL_GROUP_BY,ANSI"


@pytest.fixture
def session() -> SqlSession:
    return SqlSession(1, "ann", "localhost")


@pytest.mark.parametrize(
    ("assignments", "name", "value"),
    [
        (" sql_mode = 'STRICT_TRANS_TABLES'", "sql_mode", "STRICT_TRANS_TABLES,PIPES_AS_CONCAT"),
        (" SESSION sql_mode = ''", "sql_mode", "PIPES_AS_CONCAT"),
        (" @@SESSION.sql_mode = DEFAULT", "sql_mode", DEFAULT_MODE),
        (" sql_mode=CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES'), NAMES utf8mb4", "sql_mode", DEFAULT_MODE),
        (" sql_mode=(SELECT REPLACE(@@sql_mode, 'ANSI_QUOTES', ''))", "sql_mode", DEFAULT_MODE),
        (" @old = @@sql_mode, sql_mode='ansi', SQL_MODE=@OLD", "sql_mode", DEFAULT_MODE),
        (" SQL_MODE=IFNULL(@OLD_SQL_MODE, '')", "sql_mode", "PIPES_AS_CONCAT"),
        (" sql_mode = 'ANSI_QUOTES'", "sql_mode", "ANSI_QUOTES,PIPES_AS_CONCAT"),
        (" @@session.`sql_mode` := ansi;", "sql_mode", ANSI),
        (" SESSION sql_mode=`strict_all_tables, ANSI`", "sql_mode", f"STRICT_ALL_TABLES,{ANSI}"),
        (
            " autocommit=1, sql_mode=CONCAT(@@sql_mode, ',ANSI_QUOTES'), wait_timeout=(SELECT MAX(1), 2)",
            "sql_mode",
            f"{DEFAULT_MODE},ANSI_QUOTES",
        ),
        (" time_zone = 'UTC'", "time_zone", "UTC"),
        (" time_zone = '+05:00'", "time_zone", "+05:00"),
        (" sql_mode='ANSI', time_zone = 'America/New_York'", "time_zone", "America/New_York"),
        (' autocommit=1, time_zone="SYSTEM"', "time_zone", "SYSTEM"),
        (" time_zone = '+00:00', max_execution_time = 5", "time_zone", "+00:00"),
        (" time_zone = '+00:00', max_execution_time = '5'", "max_execution_time", 5),
        (" NAMES utf8mb4", "time_zone", "+00:00"),
        (" password = 'sql_mode=ANSI_QUOTES', time_zone = system", "sql_mode", DEFAULT_MODE),
    ],
)
def test_a_variable_holds_what_it_is_set_to_and_tells_it(
    session: SqlSession, assignments: str, name: str, value: object
) -> None:
    session.set(assignments)
    assert session.variable(name) == value
    assert session.has_ansi_quotes == ("ANSI_QUOTES" in str(session.variable("sql_mode")))


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (" sql_mode = 'ANSI_QOUTES'", "unsupported sql_mode ANSI_QOUTES"),
        (" sql_mode = 'REAL_AS_FLOAT'", "REAL as a double"),
        (" sql_mode = ORACLE", "unsupported sql_mode ORACLE"),
        (" NAMES utf8mb4, sql_mode='NO_BACKSLASH_ESCAPES'", "a backslash that escapes"),
        (" sql_mode = 'ANSI', SQL_MODE=@OLD_SQL_MODE", "@old_sql_mode holds nothing"),
        (" sql_mode = LOWER('ansi')", "CONCAT and REPLACE"),
        (" GLOBAL sql_mode = 'ANSI'", "of the session"),
        (" @@global.time_zone = '+00:00'", "of the session"),
        (" sql_mode = 'ANSI", "is not closed"),
        (" sql_mode = (", "bad SQL"),
        (" STATEMENT max_statement_time=1 FOR SELECT 1", "unsupported SET STATEMENT"),
        (" max_execution_time = 86400001", "max_execution_time"),
        (" time_zone = '+15:00'", "unknown time zone '\\+15:00'"),
        (" autocommit=1, @@session.time_zone = 'Europe/Berlyn'", "a name such as 'Europe/Berlin'"),
        (" sql_mode='ANSI', time_zone = '-1:75'", "unknown time zone"),
        (" @a = 1, @b = 1 + 1", "unsupported value of SET"),
    ],
)
def test_what_is_not_kept_is_refused_and_changes_nothing(
    session: SqlSession, assignments: str, words: str
) -> None:
    with pytest.raises(QueryError, match=words):
        session.set(assignments)
    assert session.variables == VARIABLES
    assert session.users == {}


def test_a_new_user_of_a_connection_finds_what_a_new_connection_finds(session: SqlSession) -> None:
    session.set(" @old = @@sql_mode, sql_mode = 'ANSI'")
    session.reset()
    assert (session.variables, session.users, session.has_ansi_quotes) == (VARIABLES, {}, False)


@pytest.mark.parametrize(
    ("ansi", "plain"),
    [
        ('select "a""b" from "t"', 'select `a"b` from `t`'),
        ('select "a`b", `c"d`', 'select `a``b`, `c"d`'),
        ("select 'say \"x\"', 'it\\'s \"y\"', 'it''s \"z\"'",) * 2,
        ('select "back\\", \'z"\'', "select `back\\`, 'z\"'"),
        ('select 1 -- "a" it\'s\n, "b" /* "c" */ # "d"', 'select 1 -- "a" it\'s\n, `b` /* "c" */ # "d"'),
        ('show columns from "shop"."orders"', "show columns from `shop`.`orders`"),
        ("select 'no quotes of the kind'",) * 2,
    ],
)
def test_names_in_double_quotes_are_read_as_names_in_backticks(ansi: str, plain: str) -> None:
    assert quoted_with_backticks(ansi) == plain


@pytest.mark.parametrize(
    ("plain", "ansi"),
    [
        (
            "CREATE TABLE `a\"b` (`c``d` int COMMENT 'x\"y')",
            'CREATE TABLE "a""b" ("c`d" int COMMENT \'x"y\')',
        ),
        ('PROPERTIES ("it\'s" = "a\\\\b")', "PROPERTIES ('it''s' = 'a\\\\b')"),
    ],
)
def test_what_is_shown_can_be_read_in_the_same_mode(plain: str, ansi: str) -> None:
    assert quoted_for_ansi(plain) == ansi
    assert quoted_with_backticks(ansi) == plain.replace('"it\'s" = "a\\\\b"', "'it''s' = 'a\\\\b'")


@pytest.mark.parametrize("text", ['select "a', "select 'a\\' \"b\"", 'select /* "a"'])
def test_a_quote_that_is_not_closed_is_bad_sql_in_either_mode(text: str) -> None:
    with pytest.raises(QueryError, match="bad SQL"):
        quoted_with_backticks(text)


def test_one_text_means_two_things_in_two_sessions_at_a_time(service: QueryService) -> None:
    text = 'select count(*), "carrier" as c from flights group by c order by 1'
    found = []
    for ansi_quotes in (False, True, False, True):
        outcome = service.execute(plain(text, ansi_quotes=ansi_quotes))
        found.append([row["c"] for batch in outcome.batches for row in batch.to_pylist()])
    assert found[0] == found[2] == ["carrier"]
    assert found[1] == found[3]
    assert len(found[1]) > 1


def test_a_real_is_a_double_as_long_as_no_mode_says_otherwise(service: QueryService) -> None:
    outcome = service.execute("select cast('1.1' as real) as r")
    assert [batch.to_pylist() for batch in outcome.batches] == [[{"r": 1.1}]]


@pytest.mark.parametrize("text", ["selec", "carrier + 1", "carrier as c", "1"])
def test_words_that_begin_no_statement_are_a_syntax_error(service: QueryService, text: str) -> None:
    with pytest.raises(QueryError, match="bad SQL") as caught:
        service.execute(text)
    assert codes.error_code(caught.value)[0] == 1064

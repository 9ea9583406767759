"""Expressions that were answered otherwise than by MySQL: each value here is what a MariaDB server says.

Random ones are in `tests/integration/query/test_random_expressions.py`.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rtolap.base.errors import OutOfRange, QueryError, UnreadableValue, UnsupportedSql
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.mysql.codes import error_code
from rtolap.query.sql.rules.patterns import translated
from rtolap.query.statement_service import QueryService

from tests.support.query.oracles.expression_oracle import our_rows
from tests.support.query.query_world import QueryWorld


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("(1, null) = (1, 1)", None),
        ("(null, 1) = (null, 1)", None),
        ("(null, 1) = (2, 2)", 0),
        ("(1, null) <> (1, null)", None),
        ("(1, null) <> (2, null)", 1),
        ("(1, 2) <> (1, null)", None),
        ("(1, null) <=> (1, null)", 1),
        ("(1, 2) < (1, null)", None),
        ("(1, 2) < (2, null)", 1),
        ("(null, 2) >= (1, 1)", None),
        ("(1, 2, 3) <= (1, 2, 3)", 1),
        ("((1, 2), 3) = ((1, 2), 3)", 1),
        ("(1, 2) in ((1, null), (3, 4))", None),
        ("(1, 2) in ((1, null), (1, 2))", 1),
        ("(1, 2) not in ((null, 3), (3, null))", 1),
        ("(1, null) not in ((1, 2))", None),
        ("(1, '1') = (1.0, '1')", 1),
        ("(1, 2) in (select 1, null)", None),
        ("(1, 2) in (select null, 3)", 0),
        ("(1, 2) not in (select 1, 2)", 0),
        ("trim(leading 'http://' from 'http://thttp.com')", "thttp.com"),
        ("trim(leading 'ab' from 'ababbc')", "bc"),
        ("trim(trailing 'ab' from 'cbabab')", "cb"),
        ("trim(both 'xx' from 'xxxaxxx')", "xax"),
        ("trim(both 'x' from 'xxaxx')", "a"),
        ("trim(leading '' from 'abc')", "abc"),
        ("trim(leading null from 'abc')", None),
        ("trim('.' from '..a.b..')", "a.b"),
        ("ltrim('  a ')", "a "),
        ("rtrim('  a ')", "  a"),
        ("date_add(date '9999-12-31', interval 1 day)", None),
        ("date_add(date '2013-01-01', interval 8000 year)", None),
        ("date_sub(date '2013-01-01', interval 3000 year)", None),
        ("timestamp '9999-12-31 23:59:59' + interval 1 second", None),
        ("date '2013-01-01' + interval 99999999999 month", None),
        ("timestampadd(quarter, 40000, date '2013-01-01')", None),
        ("year(date_add(date '9999-12-31', interval 1 day))", None),
        ("date_add(date '2013-01-31', interval 1 month)", date(2013, 2, 28)),
        ("timestamp '2013-01-01 10:00:00' + interval '1.5' second", datetime(2013, 1, 1, 10, 0, 1, 500000)),
        ("timestamp '2013-01-01 10:00:00' - interval 0.25 second", datetime(2013, 1, 1, 9, 59, 59, 750000)),
        ("date '2013-01-01' + interval 1.4 day", date(2013, 1, 2)),
        ("date_add(date '2013-01-01', interval (3 / 2) day)", date(2013, 1, 3)),
        ("date_add(date '2013-01-01', interval '2' day)", date(2013, 1, 3)),
        ("insert('abcdef', 0, 2, 'X')", "abcdef"),
        ("insert('abcdef', 7, 2, 'X')", "abcdef"),
        ("insert('abcdef', -1, 2, 'X')", "abcdef"),
        ("insert('abcdef', 6, 2, 'X')", "abcdeX"),
        ("insert('abcdef', 3, -1, 'X')", "abX"),
        ("insert('abcdef', 3, 100, 'X')", "abX"),
        ("insert('abcdef', 3, 0, 'X')", "abXcdef"),
        ("insert(null, 3, 0, 'X')", None),
        ("insert('', 1, 0, 'X')", ""),
        ("-7 div 0.3", -23),
        ("7 div -0.3", -23),
        ("1.25 div cast(65 as decimal(20, 0))", 0),
        ("cast(coalesce(greatest(-0.004, -1.0), greatest(-1.25, 1)) as char)", "-0.004"),
        ("-7.5 div 2", -3),
        ("-1 div 0.4", -2),
        ("0.3 div 0.1", 3),
        ("3 div 0.1e0", 30),
        ("-0.5 div 0.5", -1),
        ("-7 div floor(2.5)", -3),
        ("5 div 0.0", None),
        ("-1 >> 1", 9223372036854775807),
        ("-1 << 1", 18446744073709551614),
        ("-1 >> 64", 0),
        ("1 << 63", 9223372036854775808),
        ("1 << 64", 0),
        ("255 << 60", 17293822569102704640),
        ("1 << -1", 0),
        ("-1 & 255", 255),
        ("2.6 | 0", 3),
        ("~-1", 0),
        ("5 ^ -1", 18446744073709551610),
        ("'12' | 1", 13),
        ("ord('é')", 50089),
        ("ord('日本')", 15112101),
        ("ord('😀')", 4036991104),
        ("ord('')", 0),
        ("ord('a')", 97),
        ("ascii('')", 0),
        ("ascii('é')", 195),
        ("ord(null)", None),
        ("field(1, 1.0, 2)", 1),
        ("field(2, 1, null, 2.0)", 3),
        ("field('1', '1.0', '1')", 2),
        ("'é' regexp '[[:alpha:]]'", 1),
        ("'Ä' regexp '[[:upper:]]'", 1),
        ("'ä' regexp '[[:lower:]]'", 1),
        ("'日' regexp '^\\\\w$'", 1),
        ("'é' regexp '[^[:alpha:]]'", 0),
        ("'٣' regexp '[[:digit:]]'", 1),
        ("'é' regexp '\\\\W'", 0),
        ("'a-b' regexp '[]-]'", 1),
        ("'ab]c' regexp '[[:alpha:]]+]'", 1),
        ("'a b' regexp '[[:space:]]'", 1),
        ("'a' regexp null", None),
        ("regexp_replace('äöü x', '[[:alpha:]]+', 'A')", "A A"),
        ("cast(1e-5 as char)", "0.00001"),
        ("cast(1e-7 as char)", "0.0000001"),
        ("cast(1.5e-10 as char)", "0.00000000015"),
        ("cast(1e-15 as char)", "0.000000000000001"),
        ("cast(1e-16 as char)", "1e-16"),
        ("cast(-2.5e-6 as char)", "-0.0000025"),
        ("cast(1e14 as char)", "100000000000000"),
        ("cast(1e15 as char)", "1e15"),
        ("cast(123456789012345680e0 as char)", "1.2345678901234568e17"),
        ("cast(1e16 as char)", "1e16"),
        ("cast(1e20 as char)", "1e20"),
        ("cast(1.5e300 as char)", "1.5e300"),
        ("cast(1.5e-300 as char)", "1.5e-300"),
        ("cast(0.1e0 as char)", "0.1"),
        ("cast(-0.5e0 as char)", "-0.5"),
        ("concat(1e-7, '')", "0.0000001"),
        ("cast(round(1e-5, 1) as char)", "0.0"),
        ("concat(round(2.345e0, 2), '%')", "2.35%"),
        ("cast(round(1.5e0) as char)", "2"),
        ("cast(date_format(date '2013-02-03', '%Y-%m-%d') as char(4))", "2013"),
        ("cast(time('10:20:30') as char(5))", "10:20"),
        ("cast(concat('abc', 'def') as char(4))", "abcd"),
        ("cast(hex('abc') as char(3))", "616"),
        ("cast(monthname('2013-02-03') as char(3))", "Feb"),
        ("cast(upper('äöü') as char(2))", "ÄÖ"),
        ("cast(12.345 as char(4))", "12.3"),
        ("replace('abc', 'x', null)", "abc"),
        ("replace('abc', 'b', null)", None),
        ("char(65, 66)", "AB"),
        ("char(72, null, 105)", "Hi"),
        ("maketime(10, 20, 30)", "10:20:30"),
        ("maketime(-1, 2, 3)", "-01:02:03"),
        ("maketime(1, 60, 0)", None),
        ("floor(-35) div 4", -8),
        ("least(1, null)", None),
        ("group_concat(1 = 1)", "1"),
        ("bit_or(1)", 1),
        ("bit_and(-1)", 18446744073709551615),
        ("bit_xor(3)", 3),
        ("count(distinct 1, 2)", 1),
        ("count(distinct 1, null)", 0),
        ("hex(-1)", "FFFFFFFFFFFFFFFF"),
        ("hex('é')", "C3A9"),
        ("hex(null)", None),
        ("bin(5)", "101"),
        ("bin(-1)", "1111111111111111111111111111111111111111111111111111111111111111"),
        ("lower(1.5e-7)", "0.00000015"),
        ("reverse(12.50)", "05.21"),
        ("reverse(1e-7)", "1000000.0"),
        ("length(1e-7)", 9),
        ("repeat('ab', 2.5)", "ababab"),
        ("replace(121, 1, 'x')", "x2x"),
        ("sign(-0.0)", 0),
        ("round(2.675, 2)", Decimal("2.68")),
        ("truncate(1.999e0, 2)", 1.99),
        ("if(1e-10, 1, 2)", 1),
        ("0.5 is true", 1),
        ("null is not true", 1),
        ("interval 1 day + date '2013-01-01'", date(2013, 1, 2)),
        ("1 + 2 << 1", 6),
        ("~0 >> 1", 9223372036854775807),
        ("group_concat(1.50, 'a')", "1.50a"),
        ("group_concat(1e-7)", "0.0000001"),
        ("bit_and(null)", 18446744073709551615),
        ("hex(2.5e0)", "3"),
        ("hex(1.5)", "2"),
        ("hex(1 = 1)", "1"),
        ("hex(date '2013-01-01')", "323031332D30312D3031"),
        ("bin('12')", "1100"),
        ("bin('')", None),
        ("'1e3' | 7", 1007),
        ("'12abc' | 1", 13),
        ("format(-0.004, 1)", "0.0"),
        ("format(-0.004e0, 1)", "0.0"),
        ("format(-0.05e0, 1)", "0.0"),
        ("format(-0.15e0, 1)", "-0.2"),
        ("format(1 / 8, 2)", "0.13"),
        ("format(1e20, 5)", "100,000,000,000,000,000,000.00000"),
        ("round(1e20, 5)", 1e20),
        ("date '2013-01-02' = n from (select 130102 as n) x", 1),
        ("date '2013-01-02' > n from (select 20139999 as n) x", 1),
        ("timestamp '2013-01-02 03:04:05' = n from (select 20130102030405.7 as n) x", 1),
        ("timestamp '9999-12-31 00:00:00' < n from (select 9223372036854775807 as n) x", 0),
        ("format('-0.4', 0)", "0"),
        ("format(null, 2)", None),
        ("timestamp '9999-12-31 23:59:59' + interval '0:1' hour_minute", None),
        ("date '9999-12-31' + interval '1-1' year_month", None),
        ("date '2013-01-31' + interval '1-1' year_month", date(2014, 2, 28)),
        ("floor('2.7abc')", 2.0),
    ],
)
def test_an_expression_answers_as_in_mysql(sql: str, expected: object, service: QueryService) -> None:
    ((found,),) = our_rows(service.execute(f"select {sql}").table())
    if isinstance(expected, float):
        assert found == pytest.approx(expected)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("condition", "known"),
    [
        ("(f.carrier, null) = ('AA', 1)", ()),
        ("(f.carrier, f.gate) = (f.carrier, f.gate)", ("carrier", "gate")),
        ("(f.carrier, f.gate) <> (f.carrier, f.gate)", ()),
        ("(f.carrier, f.gate) <=> (f.carrier, f.gate)", ("__offset",)),
        ("(f.carrier, f.gate) in (('AA', null), (f.carrier, null))", ()),
        ("not ((f.carrier, f.gate) in (('??', null), ('!!', 1)))", ("carrier",)),
        ("(f.carrier, f.gate) >= ('', null)", ("carrier",)),
    ],
)
def test_rows_over_a_cube_compare_member_by_member(
    condition: str, known: tuple[str, ...], world: QueryWorld, service: QueryService
) -> None:
    """`known`: the condition holds for events in which none of these is NULL; without any, for none."""
    events = world.visible("flights")
    valid = [pc.is_valid(events.column(name)).to_pylist() for name in known]
    expected = sum(all(each) for each in zip(*valid, strict=True))
    assert events.column("gate").null_count
    assert events.column("carrier").null_count
    table = service.execute(f"select count(*) as n from flights f where {condition}").table()
    assert table.column("n").to_pylist() == [expected]


def test_a_join_on_rows_does_not_pair_nulls(service: QueryService) -> None:
    rows = "(select 1 as a, null as b union all select 2, 'x') "
    sql = f"select count(*) as n from {rows} l join {rows} r on (l.a, l.b) = (r.a, r.b)"
    assert service.execute(sql).table().column("n").to_pylist() == [1]


def test_totals_of_bits_over_no_rows_are_those_of_mysql(service: QueryService) -> None:
    sql = "select bit_or(a), bit_and(a), bit_xor(a) from (select 1 as a) x where a > 1"
    assert our_rows(service.execute(sql).table()) == [(0, 2**64 - 1, 0)]


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("date_add(date '2013-01-01', interval 1.5 day)", UnsupportedSql),
        ("date_add(date '0001-01-01', interval -1 day)", OutOfRange),
        ("date '2013-01-01' & 1", UnsupportedSql),
        ("char(200)", UnsupportedSql),
        ("avg(date '2013-01-01')", UnsupportedSql),
        ("1e20 div 3", QueryError),
        ("'a' regexp '(?=a)'", UnsupportedSql),
        ("'a' regexp '['", UnreadableValue),
        ("cast('2013-01-01' as datetime(3))", UnsupportedSql),
        ("(1, 2) = (1, 2, 3)", QueryError),
        ("(1, 2) in ((1, 2), 3)", QueryError),
        ("date_format('2013-01-01', '%%Y')", UnsupportedSql),
        ("9223372036854775807 + 1", OutOfRange),
        ("field(1, date '2013-01-01')", QueryError),
    ],
)
def test_what_is_not_answered_is_refused_by_name(
    sql: str, kind: type[QueryError], service: QueryService
) -> None:
    with pytest.raises(kind) as refused:
        service.execute(f"select {sql} as x").table()
    assert error_code(refused.value)[0] != 1105
    assert not any(words in str(refused.value) for words in ("Error:", "LINE 1", "candidate", "MYSQL_"))


def test_errors_of_the_engine_are_told_by_their_kind_not_by_what_a_value_says(engine: EmbeddedEngine) -> None:
    """A text that reads like an error of another kind does not change what is raised."""
    session = engine.session()
    session.register("r", pa.table({"s": ["INTERRUPT Error: Out of Memory"]}))
    with pytest.raises(UnreadableValue):
        session.read('SELECT CAST("s" AS INTEGER) FROM "r"', {})
    session.close()


def test_classes_of_a_pattern_are_written_out() -> None:
    assert translated(r"^[[:alpha:]_]+\d") == r"^[\p{L}_]+[\p{Nd}]"
    assert translated(r"[]a]\W") == r"[\]a][^\p{L}\p{N}_]"
    assert translated(r"\[[:alpha:]\]") == r"\[[:alpha:]\]"
    with pytest.raises(UnsupportedSql, match="regular expression"):
        translated(r"(a)\1")


@pytest.mark.parametrize(
    "sql",
    [
        "select cast('10000-01-01' as date) as x",
        "select cast(concat('1', '0000-01-01 00:00:00') as datetime) as x",
        "select date('12345-01-01') as x",
    ],
)
def test_a_moment_that_no_client_can_read_is_out_of_range(sql: str, service: QueryService) -> None:
    with pytest.raises(OutOfRange, match="years from 1 to 9999"):
        service.execute(sql).table()


def test_moments_up_to_the_last_of_the_calendar_are_shown(engine: EmbeddedEngine) -> None:
    session = engine.session()
    first, last = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
    for unit in ("us", "ms", "s"):
        at = pa.array([first, None, last.replace(microsecond=0)], pa.timestamp(unit))
        session.register(
            f"r_{unit}", pa.table({"at": at, "on": at.cast(pa.timestamp("s")).cast(pa.date32())})
        )
        assert session.read(f'SELECT * FROM "r_{unit}"', {}).num_rows == 3
    session.close()


def test_div_by_a_value_that_is_bound_later_is_prepared(service: QueryService) -> None:
    statement = service.check("select 7 div ? as x")
    assert our_rows(service.execute(statement, (2.5,)).table()) == [(2,)]

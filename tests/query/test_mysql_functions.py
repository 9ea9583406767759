"""Functions that only MySQL has; each value here is what a MariaDB server says. And those that nobody has."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from rtolap.base.errors import QueryError, UnknownFunction
from rtolap.query.durations import durations_us, time_text
from rtolap.query.functions import names as function_names
from rtolap.query.mysql.codes import error_code
from rtolap.query.statement_service import QueryService

from tests.support.query.query_world import QueryWorld

DOCS = Path(__file__).resolve().parents[2] / "docs" / "sql.md"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("substring_index('www.mysql.com', '.', 2)", "www.mysql"),
        ("substring_index('www.mysql.com', '.', -2)", "mysql.com"),
        ("substring_index('www.mysql.com', '.', 0)", ""),
        ("substring_index('www.mysql.com', '.', 9)", "www.mysql.com"),
        ("substring_index('www.mysql.com', '.', -9)", "www.mysql.com"),
        ("substring_index('abc', '', 2)", ""),
        ("substring_index('a||b||c', '||', -1)", "c"),
        ("substring_index('', '.', 2)", ""),
        ("substring_index('..', '.', 2)", "."),
        ("substring_index(12.5, '.', 1)", "12"),
        ("substring_index(null, '.', 1)", None),
        ("field('b', 'a', 'b', 'c')", 2),
        ("field('q', 'a')", 0),
        ("field(null, 'a')", 0),
        ("field('a', null, 'a')", 2),
        ("field(2, 1.0, 2.0)", 2),
        ("find_in_set('b', 'a,b,c')", 2),
        ("find_in_set('', 'a,,b')", 2),
        ("find_in_set('', '')", 0),
        ("find_in_set('a,b', 'a,b')", 0),
        ("find_in_set(2, '1,2')", 2),
        ("find_in_set('a', null)", None),
        ("unix_timestamp('2015-11-13 10:20:19')", 1447410019),
        ("unix_timestamp('2015-11-13 10:20:19') + 1", 1447410020),
        ("unix_timestamp('2015-11-13 10:20:19.012')", Decimal("1447410019.012")),
        ("unix_timestamp(date '2015-11-13')", 1447372800),
        ("unix_timestamp(adddate('2008-01-02', 31))", 1201910400),
        ("unix_timestamp('1960-01-01')", None),
        ("unix_timestamp('2038-01-19 03:14:07')", 2147483647),
        ("unix_timestamp('2038-01-19 03:14:08')", None),
        ("unix_timestamp() - unix_timestamp(now()) between -5 and 0", True),
        ("from_unixtime(1447430881)", datetime(2015, 11, 13, 16, 8, 1)),
        ("from_unixtime(1447430881.1234567)", datetime(2015, 11, 13, 16, 8, 1, 123456)),
        ("from_unixtime('1447430881')", datetime(2015, 11, 13, 16, 8, 1)),
        ("from_unixtime(2147483648)", None),
        ("from_unixtime(-1)", None),
        ("from_unixtime(1447430881, '%Y %D %M %h:%i:%s')", "2015 13th November 04:08:01"),
        ("from_unixtime(1447430881, '%%D%D%%')", "%D13th%"),
        ("date_format('2009-10-11', '%D')", "11th"),
        ("date_format('2009-10-01', '%D %e')", "1st 1"),
        ("date_format('2009-10-22', '%c %D')", "10 22nd"),
        ("adddate('2008-01-02', 31)", date(2008, 2, 2)),
        ("adddate('2008-01-02 10:00:00', 1)", datetime(2008, 1, 3, 10)),
        ("adddate('2008-01-02', 1.6)", date(2008, 1, 4)),
        ("adddate('2008-01-31', interval 1 month)", date(2008, 2, 29)),
        ("adddate('2008-01-02', null)", None),
        ("adddate(date '2008-01-02', -1)", date(2008, 1, 1)),
        ("subdate('2008-01-02', interval 1 month)", date(2007, 12, 2)),
        ("subdate('2008-01-02 12:00:00', interval 1 hour)", datetime(2008, 1, 2, 11)),
        ("hour(timediff('2013-01-03 10:00:00', '2013-01-01 00:00:00'))", 58),
        ("timediff('10:00:00', '09:00:00') = time('01:00:00')", True),
        ("timediff('2013-01-02 10:00:00', '2013-01-01 00:00:00') > '10:00:00'", True),
        ("concat(timediff('2013-01-03 10:00:00', '2013-01-01 00:00:00'), 'x')", "58:00:00x"),
        ("time '10:00:00' = time('10:00:00')", True),
        ("curtime() >= time('00:00:00') and utc_time() < time '24:00:00'", True),
        ("{ts '2013-01-02 03:04:05'}", datetime(2013, 1, 2, 3, 4, 5)),
        ("{TS '2013-01-02 03:04:05.5'}", datetime(2013, 1, 2, 3, 4, 5, 500000)),
        ("{d '2013-01-02'}", date(2013, 1, 2)),
    ],
)
def test_a_function_of_mysqls_alone_answers_as_there(
    sql: str, expected: object, service: QueryService
) -> None:
    (found,) = service.execute(f"select {sql} as x").table().column("x").to_pylist()
    assert found == expected
    assert isinstance(found, datetime) == isinstance(expected, datetime)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("time('2003-12-31 01:02:03')", "01:02:03"),
        ("time(timestamp '2003-12-31 01:02:03')", "01:02:03"),
        ("time('26:00:00')", "26:00:00"),
        ("time('10:11')", "10:11:00"),
        ("time('-01:02:03')", "-01:02:03"),
        ("time('900:00:00')", "838:59:59"),
        ("time(null)", None),
        ("{t '10:11:12'}", "10:11:12"),
        ("{T '10:11:12'}", "10:11:12"),
        ("cast('26:11:12' as time)", "26:11:12"),
        ("timediff('10:00:00', '11:30:00')", "-01:30:00"),
        ("timediff('2000-01-01 00:00:00', '2000-01-01 00:00:01')", "-00:00:01"),
        ("timediff('2008-12-31 23:59:59', '2008-12-30 01:01:01')", "46:58:58"),
        ("timediff(timestamp '2020-01-01 00:00:00', '2020-01-03 00:00:00')", "-48:00:00"),
        ("timediff(timestamp '2008-12-31 10:00:00', timestamp '2008-12-30 00:00:00')", "34:00:00"),
        ("timediff(date '2008-12-31', date '2008-12-30')", "24:00:00"),
        ("timediff('2020-01-01 00:00:00', '2000-01-01 00:00:00')", "838:59:59"),
        ("timediff(timediff('10:00:00', '09:00:00'), '00:30:00')", "00:30:00"),
        ("time(timediff('10:00:00', '09:00:00'))", "01:00:00"),
        ("timediff('2000-01-01 00:00:00', '10:00:00')", None),
        ("timediff(timestamp '2008-12-31 00:00:00', date '2008-12-30')", None),
        ("timediff(null, '10:00:00')", None),
    ],
)
def test_a_time_answers_as_in_mysql_and_is_no_text(
    sql: str, expected: str | None, service: QueryService
) -> None:
    column = service.execute(f"select {sql} as x").table().column("x")
    (micros,) = durations_us(column.combine_chunks())
    assert (None if micros is None else time_text(micros)) == expected


def test_they_count_and_group_over_a_cube_as_a_recount(service: QueryService, world: QueryWorld) -> None:
    rows = world.visible("flights").to_pylist()
    picked = sorted({row["carrier"] for row in rows if row["carrier"] is not None})[:2]
    kept = sum(row["carrier"] in picked for row in rows)
    for condition in (f"find_in_set(carrier, '{','.join(picked)}') > 0", f"field(carrier, '{picked[0]}', ?)"):
        values = [picked[1]] if "?" in condition else []
        sql = f"select count(*) n from flights where {condition.replace('?)', '?) > 0')}"
        assert service.execute(sql, values).table().to_pylist() == [{"n": kept}]
    sql = "select timediff(hour_start, day_start) t, count(*) n from flights group by 1"
    found = {row["t"]: row["n"] for row in service.execute(sql).table().to_pylist()}
    hours: dict[object, int] = {}
    for row in rows:
        at = row["ts"]
        hours[at and at.hour] = hours.get(at and at.hour, 0) + 1
    assert sorted(found.values()) == sorted(hours.values())


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("field('a', 1)", "cast one of them"),
        ("field('a')", "expected 2 or more"),
        ("find_in_set('a')", "wrong number of arguments of FIND_IN_SET"),
        ("time('2003-12-31')", "not a time"),
        ("timediff('2003-12-31', '10:00:00')", "not two times"),
        ("str_to_date('2013-01-01', concat('%', 'Y'))", "not written in the statement"),
        ("str_to_date('2013 10', '%Y %U')", "a day of the week"),
        ("time_format('10:11:12', '%Y')", "TIME_FORMAT with %Y"),
        ("json_extract('{}', '$**.a')", "a JSON path"),
        ("elt(1)", "wrong number of arguments of ELT"),
        ("date_format('2013-01-01', concat('%', 'Y'))", "not written in the statement"),
    ],
)
def test_what_would_be_answered_otherwise_is_refused_in_our_words(
    sql: str, words: str, service: QueryService
) -> None:
    with pytest.raises(QueryError, match=words) as refused:
        service.execute(f"select {sql} as x").table()
    assert "Error:" not in str(refused.value)


@pytest.mark.parametrize(
    "sql",
    [
        "select substring_indx('a.b', '.', 1)",
        "select count(*) from flights where substring_indx(carrier, 'A', 1) = 'A'",
        "select substring_indx(carrier, 'A', 1) x, count(*) from flights group by 1",
    ],
)
def test_an_unknown_function_is_named_with_the_nearest_and_where_the_list_is(
    sql: str, service: QueryService
) -> None:
    with pytest.raises(UnknownFunction) as refused:
        service.execute(sql)
    text = str(refused.value)
    assert "unknown function substring_indx" in text
    assert "SUBSTRING_INDEX" in text
    assert "docs/sql.md" in text
    assert "Catalog" not in text
    assert error_code(refused.value) == (1305, "42000")


def test_a_function_unlike_all_others_is_unknown_without_a_guess(service: QueryService) -> None:
    with pytest.raises(UnknownFunction, match=r"one of the functions of docs/sql\.md"):
        service.execute("select zzzqqq(1)")


def test_the_list_in_the_docs_has_all_functions_that_are_known() -> None:
    section = DOCS.read_text().split("### Functions\n")[1].split("\n#")[0]
    listed = set(re.findall(r"`([A-Z][A-Z0-9_]*)`", section))
    assert listed >= {name.upper() for name in function_names.FUNCTIONS}  # and other spellings of theirs


def test_every_listed_function_is_one(service: QueryService) -> None:
    """Asked without arguments, which most of them refuse, but none as unknown."""
    for name in function_names.FUNCTIONS:
        try:
            service.execute(f"select {name}(1, 2, 3, 4, 5, 6, 7) as x").table()
        except UnknownFunction:
            pytest.fail(f"{name} is listed and unknown")
        except QueryError:
            pass

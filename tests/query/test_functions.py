"""Functions answer as MySQL's manual says, not as the engine's functions of the same name."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from rtolap.base.errors import QueryError
from rtolap.query.statement_service import QueryService

from tests.support.query.query_world import QueryWorld


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("dayofweek('2007-02-03')", 7),
        ("dayofweek('2007-02-04')", 1),
        ("weekday('2008-02-03 22:23:00')", 6),
        ("weekday('2007-11-06')", 1),
        ("week('2008-02-20')", 7),
        ("week('2008-02-20', 0)", 7),
        ("week('2013-01-01')", 0),
        ("week('2013-01-06')", 1),
        ("week('2012-12-31', 3)", 1),
        ("week('2013-01-06', 5)", 0),
        ("weekofyear('2008-02-20')", 8),
        ("extract(week from date '2013-01-01')", 0),
        ("dayofyear('2007-02-03')", 34),
        ("to_days('2007-10-07')", 733_321),
        ("datediff('2007-12-31 23:59:59', '2007-12-30')", 1),
        ("timestampdiff(month, '2003-02-01', '2003-05-01')", 3),
        ("timestampdiff(year, '2002-05-01', '2001-01-01')", -1),
        ("timestampdiff(minute, '2003-02-01', '2003-05-01 12:05:55')", 128_885),
        ("timestampdiff(day, '2013-01-01 12:00:00', '2013-01-02 11:00:00')", 0),
        ("timestampdiff(hour, '2013-01-02 00:30:00', '2013-01-01 23:45:00')", 0),
        ("timestampdiff(month, '2013-01-31', '2013-02-28')", 0),
        ("timestampdiff(month, '2013-02-28', '2013-01-31')", 0),
        ("timestampdiff(month, '2013-03-15 10:00:00', '2013-01-15 10:00:00')", -2),
        ("timestampdiff(quarter, '2013-01-01', '2013-12-31')", 3),
        ("timestampdiff(year, '2012-02-29', '2013-02-28')", 0),
        ("microsecond('2019-12-31 23:59:59.000010')", 10),
        ("extract(microsecond from timestamp '2003-01-02 10:30:02.000123')", 123),
        ("length('日本')", 6),
        ("octet_length('日本')", 6),
        ("char_length('日本')", 2),
        ("from_unixtime(1447430881)", datetime(2015, 11, 13, 16, 8, 1)),
        ("date_format('2013-01-06', '%U %v %j %%v')", "01 01 006 %v"),
        ("date_format('2009-10-04 22:23:00', '%W %M %Y')", "Sunday October 2009"),
        ("date_format('2007-10-04 22:23:00', '%H:%i:%s')", "22:23:00"),
        ("round(-2.5)", -3),
        ("5 / 2", Decimal("2.5")),
        ("-7 div 2", -3),
        ("-7 % 3", -1),
        ("1 / 0", None),
        ("greatest(1, null)", None),
        ("concat('a', null)", None),
    ],
)
def test_a_function_answers_as_in_mysql(sql: str, expected: object, service: QueryService) -> None:
    (found,) = service.execute(f"select {sql} as x").table().column("x").to_pylist()
    assert found == expected


def test_date_functions_of_the_event_time_group_as_a_recount(
    service: QueryService, world: QueryWorld
) -> None:
    days = Counter(at.isoweekday() % 7 + 1 for at in times(world))
    sql = "select dayofweek(ts) d, count(*) n from flights group by dayofweek(ts) having d > 0 order by d"
    assert [tuple(row.values()) for row in service.execute(sql).table().to_pylist()] == sorted(days.items())
    weekdays = Counter((at.weekday(), at.month) for at in times(world))
    sql = "select weekday(ts), month(ts), count(*) from flights group by 1, 2"
    found = [tuple(row.values()) for row in service.execute(sql).table().to_pylist()]
    assert {(day, month): count for day, month, count in found} == weekdays
    sql = "select count(*) n from flights where week(ts) = 0 and weekday(day_start) = 2"
    (row,) = service.execute(sql).table().to_pylist()
    assert row["n"] == sum(int(f"{at:%U}") == 0 and at.weekday() == 2 for at in times(world))
    sql = "select count(*) n from flights where timestampdiff(day, '2013-01-01 12:00:00', hour_start) >= 1"
    (row,) = service.execute(sql).table().to_pylist()
    assert row["n"] == sum(at >= datetime(2013, 1, 2, 12) for at in times(world))


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select weekday()", "weekday takes one argument"),
        (
            "select timestampdiff(day, ts, now()) from flights group by 1",
            "keeps the event time as hour_start",
        ),
    ],
)
def test_what_is_not_answered_exactly_is_an_error(sql: str, words: str, service: QueryService) -> None:
    with pytest.raises(QueryError, match=words):
        service.execute(sql)


def times(world: QueryWorld) -> list[datetime]:
    events: pa.Table = world.visible("flights")
    return [at for at in events.column("ts").to_pylist() if at is not None]

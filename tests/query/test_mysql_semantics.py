"""Statements that were answered otherwise than by MySQL: each value here is what a MariaDB server says."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest
from rtolap.base.errors import OutOfRange, QueryError
from rtolap.query.statement_service import QueryService

from tests.support.query.query_world import QueryWorld

DAY = "date('2013-01-02 05:00:00')"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("left('abc', -1)", ""),
        ("right('abc', -1)", ""),
        ("left('abc', 2)", "ab"),
        ("substring('abc', 0)", ""),
        ("substring('abc', 0, 2)", ""),
        ("substring('abc', -5)", ""),
        ("substring('abc', -2, 1)", "b"),
        ("substring('abc', 2, -1)", ""),
        ("substring(null, 0)", None),
        ("locate('bar', 'foobarbar', 0)", 0),
        ("locate('bar', 'foobarbar', 5)", 7),
        ("lpad('hi', -1, '?')", None),
        ("lpad('hi', 4, '??')", "??hi"),
        ("ascii('é')", 195),
        ("sqrt(-1)", None),
        ("ln(0)", None),
        ("log(1, 8)", None),
        ("log10(0)", None),
        ("log2(-1)", None),
        ("acos(2)", None),
        ("log(2, 8)", 3.0),
        ("cast(true as char)", "1"),
        ("cast(1 = 2 as char)", "0"),
        ("concat(true, 'x', 1 = 1)", "1x1"),
        ("length(true)", 1),
        ("cast(1.0e0 as char)", "1"),
        ("cast(12345 as char(3))", "123"),
        ("cast('1.7' as signed)", 1),
        ("cast('12abc' as signed)", 12),
        (r"'%' like '\%'", True),
        (r"'ab' like 'a\%'", False),
        (r"'axb' like 'a\_b'", False),
        (r"'a_b' not like 'a\_b'", False),
        ("'a%' like 'a|%' escape '|'", True),
        ("12 like '1%'", True),
        ("100000 * 100000", 10_000_000_000),
        ("2147483647 + 1", 2_147_483_648),
        ("-2147483648 - 1", -2_147_483_649),
        ("abs(-2147483648)", 2_147_483_648),
        ("5 % 0", None),
        ("mod(5, 0)", None),
        ("5 div 0", None),
        ("7.5 div 2", 3),
        ("-7 div 2", -3),
        ("mod(-7, 3)", -1),
        ("round(2.5e0)", 2.0),
        ("round(2.5)", 3),
        ("round(1 / 8, 2)", 0.13),
        ("round(1 / 8e0, 2)", 0.12),
        ("replace('aXb', 'X', 1)", "a1b"),
        ("round(15, -1)", 20),
        ("truncate(-1.999, 1)", Decimal("-1.9")),
        ("'1.5' * 2", 3.0),
        ("2 = '1.5'", False),
        ("1 = '1.0'", True),
        ("'10' > 9", True),
        ("2 in ('1.5', '2.0')", True),
        ("(1 = 1) + 1", 2),
        ("(1 = 1) = 2", False),
        ("~0", 18_446_744_073_709_551_615),
        ("-1 | 0", 18_446_744_073_709_551_615),
        ("if(0, 1, 'a')", "a"),
        ("case when 1 then 'a' else 1 end", "a"),
        ("case 2 when '1.5' then 1 else 0 end", 0),
        ("nullif(2, '1.5')", 2),
        ("coalesce(null, 1.5, 2)", Decimal("1.5")),
        (f"{DAY} = '2013-01-02 05:00:00'", False),
        (f"{DAY} = '2013-01-02 00:00:00'", True),
        (f"{DAY} <> '2013-01-02 05:00:00'", True),
        (f"{DAY} < '2013-01-02 05:00:00'", True),
        (f"{DAY} >= '2013-01-02 05:00:00'", False),
        (f"'2013-01-02 05:00:00' > {DAY}", True),
        (f"{DAY} in ('2013-01-02 05:00:00')", False),
        (f"{DAY} in ('2013-01-02 05:00:00', '2013-1-2')", True),
        (f"{DAY} between '2013-01-02 00:00:01' and '2013-01-03'", False),
        (f"{DAY} = timestamp '2013-01-02 05:00:00'", False),
        (f"case {DAY} when '2013-01-02 05:00:00' then 1 else 0 end", 0),
        (f"({DAY}, 1) = ('2013-01-02 05:00:00', 1)", False),
        (f"({DAY}, 1) in (('2013-01-02 05:00:00', 1), ('2013-01-02', 1))", True),
        ("date '2013-01-31' + interval 1 month", date(2013, 2, 28)),
        ("date_add('2013-01-31', interval 1 month)", date(2013, 2, 28)),
        ("date_add('2013-01-31', interval 1 hour)", datetime(2013, 1, 31, 1)),
        ("hour('2013-01-01 10:11:12')", 10),
        ("'abc' = 0", True),
        ("greatest('10', 9)", 10.0),
    ],
)
def test_an_expression_answers_as_in_mysql(sql: str, expected: object, service: QueryService) -> None:
    (found,) = service.execute(f"select {sql} as x").table().column("x").to_pylist()
    assert found == expected
    assert isinstance(found, datetime) == isinstance(expected, datetime)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("date '2013-01-02' + 1", "an INTERVAL"),
        ("date '2013-02-01' - date '2013-01-31'", "DATEDIFF"),
        ("greatest('10', date '2013-01-02')", "cast one of them"),
        ("concat(1 / 3, '')", "DECIMAL"),
    ],
)
def test_what_mysql_answers_strangely_is_refused(sql: str, words: str, service: QueryService) -> None:
    with pytest.raises(QueryError, match=words):
        service.execute(f"select {sql} as x")


@pytest.mark.parametrize(
    "sql",
    ["9223372036854775807 + 1", "99999999999 * 99999999999", "exp(1000)", "pow(-1, 0.5)", "pow(0, -1)"],
)
def test_what_no_type_of_mysqls_holds_is_out_of_range(sql: str, service: QueryService) -> None:
    with pytest.raises(OutOfRange, match="out of range"):
        service.execute(f"select {sql} as x").table()


@pytest.mark.parametrize(
    "condition", ["= {}", "<> {}", "< {}", ">= {}", "in ({})", "between {} and '2013-01-03'"]
)
@pytest.mark.parametrize("moment", ["2013-01-02 05:00:00", "2013-01-02", "2013-01-02 00:00:00"])
@pytest.mark.parametrize("column", ["flown_on", "date(hour_start)", "date(ts)"])
def test_a_date_beside_a_moment_counts_as_its_midnight_however_that_came(
    column: str, moment: str, condition: str, service: QueryService, world: QueryWorld
) -> None:
    midnight = datetime.fromisoformat(moment)
    source = "flown_on" if column == "flown_on" else "ts"
    values = world.visible("flights").column(source).to_pylist()
    days = [datetime(day.year, day.month, day.day) for day in values if day is not None]
    holds = {
        "= {}": lambda day: day == midnight,
        "<> {}": lambda day: day != midnight,
        "< {}": lambda day: day < midnight,
        ">= {}": lambda day: day >= midnight,
        "in ({})": lambda day: day == midnight,
        "between {} and '2013-01-03'": lambda day: midnight <= day <= datetime(2013, 1, 3),
    }[condition]
    sql = f"select count(*) n from flights where {column} {condition}"
    written = service.execute(sql.format(f"'{moment}'")).table().column("n").to_pylist()
    bound = [
        service.execute(sql.format("?"), [value]).table().column("n").to_pylist()
        for value in (moment, midnight)
    ]
    assert [written, *bound] == [[sum(map(holds, days))]] * 3


def test_a_sum_of_a_measure_or_else_a_dimension_keeps_rows_that_have_only_one(
    service: QueryService, world: QueryWorld
) -> None:
    rows = world.visible("flights").to_pylist()
    for call in ("coalesce", "ifnull"):
        sql = f"select carrier, origin, sum({call}(delay, gate)) s from flights group by carrier, origin"
        expected: dict[tuple[object, object], int | None] = {}
        for row in rows:
            key = (row["carrier"], row["origin"])
            value = row["delay"] if row["delay"] is not None else row["gate"]
            expected.setdefault(key, None)
            if value is not None:
                expected[key] = (expected[key] or 0) + value
        found = {
            (row["carrier"], row["origin"]): row["s"] for row in service.execute(sql).table().to_pylist()
        }
        assert found == expected


def test_a_choice_between_decimals_keeps_the_digits_of_the_finer(
    service: QueryService, world: QueryWorld
) -> None:
    rows = world.visible("flights").to_pylist()
    prices = [row["price"] for row in rows if row["gate"] == 1 and row["price"] is not None]
    others = sum(row["gate"] != 1 for row in rows)
    sql = "select sum(case when gate = 1 then price else 0.0004 end) s from flights"
    (found,) = service.execute(sql).table().column("s").to_pylist()
    assert found == sum(prices) + others * Decimal("0.0004")


def test_integers_of_columns_are_counted_in_64_bits_and_sums_in_more(
    service: QueryService, world: QueryWorld
) -> None:
    rows = world.visible("flights").to_pylist()
    sql = "select max(gate * 2147483647 + 2147483647) a, max(delay) * 2147483647 - min(delay) b from flights"
    (row,) = service.execute(sql).table().to_pylist()
    gates = [row["gate"] for row in rows if row["gate"] is not None]
    delays = [row["delay"] for row in rows if row["delay"] is not None]
    assert row == {
        "a": max(gates) * 2147483647 + 2147483647,
        "b": max(delays) * 2147483647 - min(delays),
    }
    sql = "select sum(delay * 9000000000000000000) s, sum(delay) * 9000000000000000000 t from flights"
    (row,) = service.execute(sql).table().to_pylist()
    assert row == dict.fromkeys("st", sum(delays) * 9_000_000_000_000_000_000)


def test_a_flag_is_a_number_and_shows_as_one(service: QueryService) -> None:
    sql = "select cast(on_time as char) c, count(*) n from flights group by on_time"
    found = {row["c"]: row["n"] for row in service.execute(sql).table().to_pylist()}
    assert set(found) == {"0", "1", None}
    for condition in ("on_time = 1", "on_time = '1'", "on_time in (1, 2)", "on_time + 0 = 1"):
        (row,) = service.execute(f"select count(*) n from flights where {condition}").table().to_pylist()
        assert row["n"] == found["1"], condition


def test_an_average_of_exact_numbers_is_rounded_half_away_from_zero(
    service: QueryService, world: QueryWorld
) -> None:
    rows = [row for row in world.visible("flights").to_pylist() if row["gate"] is not None]
    sql = (
        "select round(sum(1) / 8, 2) a, round(avg(gate * 0 + 0.125), 2) b from flights where gate is not null"
    )
    (row,) = service.execute(sql).table().to_pylist()
    assert row["b"] == 0.13
    assert row["a"] == float((Decimal(len(rows)) / 8 + Decimal("0.0000001")).quantize(Decimal("0.01")))


@pytest.mark.parametrize("source", ["flights", "airlines", "(select carrier, name from airlines) a"])
def test_a_roll_up_of_no_rows_has_none(source: str, service: QueryService) -> None:
    """The engine's ROLLUP, as the standard's, has a total of nothing."""
    rolled = f"select carrier, count(*) from {source} where carrier = 'none'"
    assert service.execute(f"{rolled} group by carrier with rollup").table().num_rows == 0
    assert service.execute(f"{rolled} group by rollup (carrier)").table().num_rows == 1
    every = f"select carrier, count(*) n from {source} group by carrier with rollup"
    some = f"{every} having n > 1 or carrier = 'AA'"
    assert None in service.execute(some).table()["carrier"].to_pylist()

"""Calls of MySQL's functions with many arguments: ordinary ones, edges, NULL, text, and what is out of range.

Every call is one expression that a MariaDB server answers too. Where MySQL and MariaDB differ, or an answer
depends on a warning that only one of them turns into an error, there is no call here.
"""

# ruff: noqa: E501 - a statement is one line
from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import product

_DATES = (
    *("'2008-02-20'", "'2013-01-01'", "'2012-12-30'", "'2012-12-31'", "'2000-01-01'", "'1999-12-31'"),
    *("'2024-02-29'", "date '2009-01-04'", "timestamp '2010-01-03 23:59:59.5'", "'1970-01-01 00:00:00'"),
    *("'9999-12-31'", "'1001-01-01'", "'2026-11-25 10:11:12'", "null"),
)
_MOMENTS = (
    *("'2013-01-02 03:04:05.678901'", "'2013-12-31 23:59:59'", "timestamp '2000-02-29 00:00:00'"),
    *("'2026-11-25 10:11:12.5'", "null"),
)
_TIMES = (
    *("'10:11:12'", "'00:00:00'", "'-01:02:03'", "'838:59:59'", "'23:59:59.5'", "'100:00:01'", "'12:00:00'"),
    *("'1:2:3'", "'10:11'", "null"),
)
_TEXTS = ("''", "'a'", "'MySQL'", "'é€😀'", "'a b  c'", "123", "-1.50", "null", "repeat('xy', 100)", "' '")
_READ = (
    ("'2013-01-02 03:04:05'", "'%Y-%m-%d %H:%i:%s'"),
    ("'2013-01-02 03:04:05.25'", "'%Y-%m-%d %H:%i:%s.%f'"),
    ("'2013-01-02 03:04'", "'%Y-%m-%d %H:%i:%s'"),
    ("'2013-01-02'", "'%Y-%m-%d %H:%i:%s'"),
    ("'2013-01-02 tail'", "'%Y-%m-%d'"),
    ("'2013-01-02T03:04:05Z'", "'%Y-%m-%dT%H:%i:%sZ'"),
    ("'1/2/13'", "'%c/%e/%y'"),
    ("'1/2/70'", "'%c/%e/%y'"),
    ("'1/2/69'", "'%m/%d/%Y'"),
    ("'29/02/2012'", "'%d/%m/%Y'"),
    ("'13 January 2013'", "'%d %M %Y'"),
    ("'13 jan 2013'", "'%d %b %Y'"),
    ("'13 Foo 2013'", "'%d %b %Y'"),
    ("'Sunday 13 January 2013'", "'%W %d %M %Y'"),
    ("'Sun 13 Jan 2013'", "'%a %d %b %Y'"),
    ("'13th January 2013'", "'%D %M %Y'"),
    ("'2013 032'", "'%Y %j'"),
    ("'2012 366'", "'%Y %j'"),
    ("'03:04:05 PM'", "'%r'"),
    ("'12:04:05 am'", "'%h:%i:%s %p'"),
    ("'13:04:05 PM'", "'%h:%i:%s %p'"),
    ("'23:04:05'", "'%T'"),
    ("'24:00:00'", "'%T'"),
    ("'10:61:00'", "'%H:%i:%s'"),
    ("'20130102'", "'%Y%m%d'"),
    ("'20130102030405'", "'%Y%m%d%H%i%s'"),
    ("'  2013 - 01 - 02'", "'%Y-%m-%d'"),
    ("'2013,01,02'", "'%Y,%m,%d'"),
    ("'100%2013'", "'100%%%Y'"),
    ("'garbage'", "'%Y-%m-%d'"),
    ("'2013-13-02'", "'%Y-%m-%d'"),
    ("'2013-00-02 x'", "'%Y-%m-%d'"),
    ("''", "'%Y-%m-%d'"),
    ("null", "'%Y-%m-%d'"),
    ("20130102", "'%Y%m%d'"),
    ("'2013-01-02 25:00:00'", "'%Y-%m-%d %H:%i:%s'"),
    ("'a.b*2013'", "'a.b*%Y'"),
)
_COMPOUND = (
    *("YEAR_MONTH", "DAY_HOUR", "DAY_MINUTE", "DAY_SECOND", "DAY_MICROSECOND", "HOUR_MINUTE"),
    *("HOUR_SECOND", "HOUR_MICROSECOND", "MINUTE_SECOND", "MINUTE_MICROSECOND", "SECOND_MICROSECOND"),
)
_INTERVALS = (
    *("'1:30' HOUR_MINUTE", "'-1:30' HOUR_MINUTE", "'1 1:1:1' DAY_SECOND", "'1-2' YEAR_MONTH"),
    *("'-1-2' YEAR_MONTH", "'5' HOUR_MINUTE", "'1:2:3.4' HOUR_MICROSECOND", "'1.5' SECOND_MICROSECOND"),
    *("'1 2' DAY_HOUR", "'90:00' MINUTE_SECOND", "'1 02:03' DAY_MINUTE", "'1.000005' SECOND_MICROSECOND"),
    *("'1/30' HOUR_MINUTE", "'100 100' DAY_HOUR", "'2:3:4.000005' HOUR_MICROSECOND"),
)
_NUMBERS_TO_CONVERT = (
    *("'a'", "'FF'", "'-17'", "-17", "255", "'0'", "'zz'", "'12x'", "'18446744073709551615'", "null"),
    *(
        "'18446744073709551616'",
        "'ffffffffffffffff'",
        "'+7'",
        "' 7'",
        "'9223372036854775808'",
        "'-9223372036854775809'",
    ),
)
_BASES = (
    ("16", "2"),
    ("10", "-18"),
    ("36", "10"),
    ("10", "16"),
    ("-10", "16"),
    ("2", "10"),
    ("1", "10"),
    ("10", "37"),
)
_JSON = (
    *("""'{"a": [1, 2, "x"], "b": {"c": null, "d e": true}}'""", """'[1.5, "é", {"k": "v"}]'""", "'7'"),
    *("""'"text"'""", "'{bad'", "null", "'{}'"),
)
_PATHS = ("'$.a[2]'", "'$.a[0]'", "'$.b.c'", """'$.b."d e"'""", "'$[1]'", "'$[2].k'", "'$.none'")
_FORMATTED = (
    *(
        "0",
        "7",
        "-7",
        "999",
        "1000",
        "1234567",
        "-1234567",
        "9223372036854775807",
        "1234.567",
        "-0.5",
        "0.005",
    ),
    *("-0.004", "99999.995", "cast(12345.678 as decimal(20, 3))", "null", "1e3", "1234567.891e0"),
)
_TOO_LARGE = (
    *(
        "12345.67",
        "-12345.67",
        "'99999'",
        "'-99999'",
        "999.94",
        "999.96",
        "1e10",
        "-1e10",
        "123",
        "null",
        "'12.34x'",
    ),
    *("9223372036854775807", "'abc'", "0.05", "true"),
)

CALLS: dict[str, Sequence[str]] = {
    "week": [f"week({day}, {mode})" for day, mode in product(_DATES, range(8))],
    "yearweek": [f"yearweek({day}, {mode})" for day, mode in product(_DATES, range(8))],
    "week_without_a_mode": [f"{name}({day})" for name, day in product(("week", "yearweek"), _DATES)],
    "weeks_in_a_format": [
        f"date_format({day}, '{letter}')"
        for day, letter in product(_DATES, ("%U", "%u", "%V", "%v", "%X", "%x %v", "%X-%V/%u"))
    ],
    "makedate": [
        f"makedate({year}, {day})"
        for year, day in product(
            ("2013", "0", "69", "70", "99", "100", "9999", "10000", "-1", "null"),
            ("1", "60", "366", "0", "-1", "null", "1000"),
        )
    ],
    "period_add": [
        f"period_add({period}, {months})"
        for period, months in product(
            ("200801", "0801", "7012", "199912", "6912"), ("0", "2", "-13", "100", "null")
        )
    ],
    "period_diff": [
        f"period_diff({one}, {two})"
        for one, two in product(("200802", "0703", "7001", "null"), ("200703", "9912", "200001"))
    ],
    "sec_to_time": [
        f"sec_to_time({seconds})"
        for seconds in ("0", "2378", "-2378", "86400", "3020399", "1.5", "-0.25", "null")
    ],
    "time_to_sec": [
        f"time_to_sec({time})"
        for time in (*_TIMES, "'2013-01-02 03:04:05'", "timestamp '2013-01-02 03:04:05'")
        if ".5" not in time
    ],
    "time_format": [
        f"time_format({time}, '{pattern}')"
        for time, pattern in product(
            _TIMES, ("%H:%i:%s", "%k %h %I %l", "%r", "%T", "%p %f", "x%%y %S", "%H")
        )
    ],
    "str_to_date": [f"str_to_date({text}, {pattern})" for text, pattern in _READ],
    "extract": [f"extract({unit} from {moment})" for unit, moment in product(_COMPOUND, _MOMENTS)],
    "interval": [
        f"timestamp '2013-01-31 10:00:00' {sign} interval {interval}"
        for sign, interval in product("+-", _INTERVALS)
    ],
    "interval_of_a_date": [f"date_add(date '2013-01-31', interval {interval})" for interval in _INTERVALS],
    "timestamp": [
        f"timestamp({day}, {time})"
        for day, time in product(
            ("'2013-01-02'", "'2013-01-02 10:00:00'", "date '2012-02-29'", "null"),
            ("'03:04:05'", "'-01:00:00.5'", "'100:00:00'", "null"),
        )
    ],
    "convert_tz": [
        f"convert_tz({moment}, '{source}', '{target}')"
        for moment, (source, target) in product(
            ("'2013-01-02 03:04:05'", "timestamp '2013-06-02 23:00:00'", "date '2013-01-02'", "null"),
            (
                ("+00:00", "+05:30"),
                ("-03:00", "+05:30"),
                ("+13:00", "-12:59"),
                ("+0:00", "-9:30"),
                ("SYSTEM", "+01:00"),
                ("+15:00", "+00:00"),
                ("nowhere", "+00:00"),
            ),
        )
    ],
    "conv": [
        f"conv({number}, {source}, {target})"
        for number, (source, target) in product(_NUMBERS_TO_CONVERT, _BASES)
    ],
    "crc32": [f"crc32({text})" for text in _TEXTS],
    "elt": [f"elt({number}, 'a', 12, null)" for number in ("1", "2", "3", "4", "0", "-1", "null", "1.4")],
    "mid": [
        f"mid({text}, {start}, {length})"
        for text, start, length in product(_TEXTS, ("1", "2", "-1", "0"), ("1", "5", "0", "null"))
    ],
    "strcmp": [
        f"strcmp({one}, {two})" for one, two in product(_TEXTS[:-1], ("'a'", "'b'", "''", "123", "null"))
    ],
    "to_base64": [f"to_base64({text})" for text in _TEXTS],
    "regexp_substr": [
        f"regexp_substr({text}, {pattern})"
        for text, pattern in product(("'abc def 12'", "'éa1'"), ("'[a-z]+'", "'[0-9]+'", "'^a'", "'.$'"))
        if "^a" not in pattern or "abc" in text
    ],
    "json_extract": [f"json_extract({text}, {path})" for text, path in product(_JSON, _PATHS)],
    "json_unquote": [f"json_unquote(json_extract({text}, {path}))" for text, path in product(_JSON, _PATHS)],
    "json_valid": [f"json_valid({text})" for text in _JSON],
    "format": [f"format({number}, {digits})" for number, digits in product(_FORMATTED, ("0", "2", "4"))],
    "cast_as_decimal": [
        f"cast({number} as decimal({kind}))"
        for number, kind in product(_TOO_LARGE, ("4, 1", "3, 0", "10, 2"))
    ],
}

COMPARED: dict[str, Sequence[str]] = {
    "dates": (
        "date '2013-01-02' = 'garbage'",
        "date '2013-01-02' > 'garbage'",
        "date '2013-01-02' < 'garbage'",
        "date '2013-01-02' <> 'garbage'",
        "date '2013-01-02' = ''",
        "date '2013-01-02' = '2013-1-2'",
        "date '2013-01-02' = '20130102'",
        "date '2013-01-02' = '130102'",
        "date '2013-01-02' = '2013/01/02'",
        "date '2013-01-02' = '2013.1.2'",
        "date '2013-01-02' = '2013-01-02xyz'",
        "date '2013-01-02' = '2013-02-30'",
        "date '2013-01-02' = '2013-01-02T00:00:00'",
        "date '2013-01-02' = '2013-01-02 00:00'",
        "date '2013-01-02' = '13-1-2'",
        "date '2013-01-02' = ' 2013-01-02'",
        "date '2013-01-02' = '20130102000000'",
        "date '2013-01-02' = 20130102",
        "date '2013-01-02' = 130102",
        "date '2013-01-02' > 20130101",
        "date '2013-01-02' > 5",
        "date '2013-01-02' > 2013",
        "date '2013-01-02' = 20130102000000",
        "date '2013-01-02' = 20130102.5",
        "date '2013-01-02' = 20130230",
        "timestamp '2013-01-02 03:04:05' = 20130102030405",
        "timestamp '2013-01-02 03:04:05' = '20130102030405'",
        "timestamp '2013-01-02 03:04:05' > 20130102",
        "timestamp '2013-01-02 03:04:05' = '2013-01-02 3:4:5'",
        "timestamp '2013-01-02 03:04:05' = '2013-01-02T03:04:05'",
        "timestamp '2013-01-02 03:04:05' = '2013-01-02 03:04:05.000'",
        "timestamp '2013-01-02 03:04:05' > '2013-01-02'",
        "timestamp '2013-01-02 03:04:05' = 'x'",
        "timestamp '2013-01-02 03:04:05' between 'a' and '2014-01-01'",
        "date '2013-01-02' in ('2013-01-02','x')",
        "date '2013-01-02' in (20130102, 5)",
        "date '2013-01-02' is null",
    ),
    "numbers": (
        "1 = '1abc'",
        "1 = ' 1 '",
        "1 = '1e0'",
        "100 = '1e2x'",
        "0 = 'abc'",
        "0 = ''",
        "1.5 = '1.5abc'",
        "1 in ('1x','2')",
        "'abc' = 0",
        "'5 apples' + 1",
        "'x' * 2",
        "'1e400' + 0",
        "-'3x'",
        "abs('-3x')",
        "true = '1x'",
        "true = 'x'",
        "1 between '0x' and '2y'",
        "case 1 when '1z' then 'a' else 'b' end",
        "nullif(1,'1z')",
        "9007199254740993 = '9007199254740993'",
        "9007199254740993 = '9007199254740992'",
        "18446744073709551615 = '18446744073709551615'",
        "1 <=> '1z'",
        "'10' < 9",
        "'10' < '9'",
        "'abc' < 5",
        "mod('7x',4)",
        "'7x' div 2",
        "'7x' / 2",
        "'7' & 3",
        "'7x' | 0",
        "~'7'",
        "round('1.5x')",
        "floor('1.5x')",
        "sqrt('4x')",
        "power('2x',3)",
        "if('1x',1,2)",
        "not 'x'",
        "'1x' and 1",
        "'a' or 1",
        "greatest(1,'2x')",
        "least('1x',3)",
        "case '1z' when '1z' then 'a' else 'b' end",
        "case 1 when '1z' then 'a' else 'b' end",
        "case when '1z' then 'a' else 'b' end",
        "case 'x' when 'y' then 1 when 'x' then 2 end",
        "if('abc' = 'abc', 'x', 'y')",
    ),
    "bytes_beside_texts": (
        "ifnull(unhex(hex('Äöü ß')), concat('a', 'b'))",
        "coalesce('x', unhex('41'))",
        "if(1 = 1, unhex(hex('ä')), 'b')",
        "case when 1 = 2 then 'b' else unhex(hex('ü')) end",
        "concat(unhex(hex('ä')), 'b')",
        "concat_ws('-', unhex('41'), 'b')",
        "group_concat(unhex('C3A4'))",
        "cast(unhex(hex('ä')) as char)",
        "length(unhex(hex('ä')))",
        "unhex('41') = 'A'",
    ),
    "remainders_of_decimals": (
        "2.50 % greatest(0.1, 1)",
        "abs(truncate(2.50, 3)) % greatest(0.1, 2)",
        "mod(-2.5, greatest(0.3, 0))",
        "7 % greatest(0.3, 0)",
        "1.25 % coalesce(null, 0.1)",
        "-0.75 % if(1 = 1, 0.2, 3)",
    ),
    "letters_without_a_capital": ("upper('Straße ß')", "upper('ßß')", "upper('ÄÖÜ')"),
    "quantified": (
        "3 > all (select 1 union all select 2)",
        "3 > any (select 1 union all select 7)",
        "3 > all (select 1)",
        "3 <> all (select null)",
        "3 = some (select 3)",
        "3 >= any (select 1 where false)",
    ),
    "bytes": (
        "_binary'abc'",
        "hex(_binary'abc')",
        "_binary'abc' = 'abc'",
        "'abc' = x'616263'",
        "x'616263' = concat('a','bc')",
        "x'ff' = 'abc'",
        "'abc' in (_binary'abc', 'd')",
        "_utf8mb4'é' = 'é'",
        "length(_binary'é')",
    ),
    "weeks_of_a_text": (
        "str_to_date(concat(yearweek('2013-01-02'), ' Sunday'), '%X%V %W')",
        "str_to_date(concat(yearweek('2012-12-31',1), ' Monday'), '%x%v %W')",
        "str_to_date(concat(yearweek('2012-12-31',3), '1'), '%x%v%w')",
        "str_to_date('201200 Monday', '%x%v %W')",
        "str_to_date('201253 Saturday', '%X%V %W')",
        "str_to_date('2013 10 Sun', '%Y %U %a')",
        "str_to_date('2013 10 Sun', '%Y %u %a')",
        "str_to_date('2013 01 0', '%X %V %w')",
        "str_to_date('2016-01-01 x','%Y-%m-%d %W')",
    ),
}
QUERIES = (
    "select count(*) from (select 'x' as t union all select '1' union all select '2b') d where t > 0",
    "select count(*) from (select '2013-01-02' as t union all select 'x' union all select '20130102') d where t = date '2013-01-02'",
    "select count(*) from (select '1' as t union all select 'x') d join (select 1 as n union all select 0) e on e.n = d.t",
    "select 1 as x order by null",
    "select 1 as x order by null, 1",
    "select group_concat(distinct a order by b) from (select 1 a, 2 b union all select 2, 1) t",
    "select group_concat(distinct a order by b desc separator ';') from (select 1 a, 2 b union all select 2, 1 union all select null,3 union all select 2,1 union all select 4,null) t",
    "select group_concat(distinct a order by b, a) from (select 'x' a, 2 b union all select 'y', 2 union all select 'z',1) t",
    "select group_concat(distinct a order by b) from (select 1 a, 2 b union all select 2, 1) t where a > 5",
    "select group_concat(distinct a order by a) from (select 1 a, 2 b union all select 2, 1) t",
    "select count(*) from (select 'abc' as t union all select 'd') d where t = x'616263'",
    "select count(*) from (select 'abc' as t union all select 'd') d where t <> x'fffe'",
    "select count(*) from (select 'abc' as t union all select 'd') d where t in (x'616263', 'd')",
)


def random_calls(rng: random.Random, count: int) -> list[str]:
    """Return calls that nobody wrote, of arguments within what both servers answer alike."""
    return [rng.choice(_MADE)(rng) for _ in range(count)]


def _moment(rng: random.Random) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=rng.randrange(60 * 366 * 86_400))


def _date_text(rng: random.Random) -> str:
    at, mark = _moment(rng), rng.choice("-/.,:")
    year = rng.choice((f"{at.year}", f"{at.year % 100:02}"))
    day = mark.join((year, str(at.month), f"{at.day:02}"))
    return rng.choice((day, at.strftime("%Y%m%d"), at.strftime("%y%m%d"), f"{day} {at:%H:%M:%S}", f" {day}x"))


def _written_week(rng: random.Random) -> str:
    return f"{rng.choice(('week', 'yearweek'))}('{_moment(rng):%Y-%m-%d}', {rng.randrange(8)})"


def _read_back(rng: random.Random) -> str:
    """Return a moment that is written by a format and read by it, sometimes of a text that is cut."""
    letters = ["%Y", rng.choice(("%m", "%c", "%b", "%M")), rng.choice(("%d", "%e"))]
    letters += rng.choice(([], ["%H", "%i", "%s"], ["%T"], ["%H"], ["%k", "%i", "%s", "%f"]))
    pattern = rng.choice("-/ ,").join(letters)
    text = f"date_format('{_moment(rng):%Y-%m-%d %H:%M:%S}', '{pattern}')"
    if rng.random() < 0.3 and len(letters) > 3:
        text = f"left({text}, char_length({text}) - {rng.randrange(4)})"
    return f"str_to_date({text}, '{pattern}')"


def _compared(rng: random.Random) -> str:
    operator = rng.choice(("=", "<", ">=", "<>", "<=>"))
    kind = rng.choice(("number", "date", "moment"))
    if kind == "number":
        number = rng.choice((rng.randrange(-50, 50), rng.randrange(-500, 500) / 10))
        tail = rng.choice(("", "x", " ", " apples", "e1", ".", "-"))
        return f"{number} {operator} '{rng.choice((number, rng.randrange(-50, 50)))}{tail}'"
    if kind == "date":
        return f"date '{_moment(rng):%Y-%m-%d}' {operator} '{_date_text(rng)}'"
    return f"timestamp '{_moment(rng):%Y-%m-%d %H:%M:%S}' {operator} '{_date_text(rng)}'"


def _extracted(rng: random.Random) -> str:
    return f"extract({rng.choice(_COMPOUND)} from '{_moment(rng):%Y-%m-%d %H:%M:%S}')"


def _converted(rng: random.Random) -> str:
    digits = "".join(rng.choices("0123456789abcdefz", k=rng.randrange(1, 14)))
    bases = [rng.choice((-1, 1)) * rng.randrange(2, 37) for _ in range(2)]
    return f"conv('{rng.choice(('', '-'))}{digits}', {bases[0]}, {bases[1]})"


def _decimal(rng: random.Random) -> str:
    digits = rng.randrange(1, 12)
    number = f"{rng.choice(('', '-'))}{rng.randrange(10**digits)}.{rng.randrange(1000):03}"
    return rng.choice(
        (
            f"cast({number} as decimal({rng.randrange(3, 10)}, {rng.randrange(3)}))",
            f"cast('{number}' as decimal({rng.randrange(3, 10)}, {rng.randrange(3)}))",
            f"format({number}, {rng.randrange(5)})",
            f"sec_to_time({rng.randrange(-3_000_000, 3_000_000)})",
            f"period_add({rng.randrange(1990, 2040)}{rng.randrange(1, 13):02}, {rng.randrange(-99, 99)})",
            f"makedate({rng.randrange(2200)}, {rng.randrange(-2, 800)})",
        )
    )


def _moved(rng: random.Random) -> str:
    units = rng.choice(sorted(_PARTS_OF))
    parts = [str(rng.randrange(100)) for _ in range(rng.randrange(1, _PARTS_OF[units] + 1))]
    interval = f"'{rng.choice(('', '-'))}{':'.join(parts)}' {units}"
    return f"timestamp '{_moment(rng):%Y-%m-%d %H:%M:%S}' + interval {interval}"


_PARTS_OF = {
    **dict.fromkeys(("YEAR_MONTH", "DAY_HOUR", "HOUR_MINUTE", "MINUTE_SECOND"), 2),
    **dict.fromkeys(("DAY_MINUTE", "HOUR_SECOND"), 3),
    "DAY_SECOND": 4,
}
_MADE = (_written_week, _read_back, _compared, _extracted, _converted, _decimal, _moved)

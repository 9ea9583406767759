"""Functions of MySQL's calendar as macros over the engine's own: weeks, periods, parts, times as seconds."""

from __future__ import annotations

_SECONDS_MAX = 3_020_400  # beyond every TIME, whatever a double's text is
_YEAR_DIGITS = "CASE WHEN length({0}) < 3 AND CAST({0} AS INTEGER) < 70 THEN '20' || lpad({0}, 2, '0') "
_PERIOD_YEAR = (
    "CASE WHEN {0} // 100 < 70 THEN {0} // 100 + 2000 WHEN {0} // 100 < 100 THEN {0} // 100 + 1900 "
    "ELSE {0} // 100 END"
)
_MONTHS_OF = f"(({_PERIOD_YEAR}) * 12 + {{0}} % 100 - 1)"
# Days are counted from the first day of the week that the mode names: an odd mode begins on Monday.
_FIRST_DAY = (
    "(CAST(d AS DATE) - CAST(CASE WHEN mode & 1 = 1 THEN isodow(d) - 1 ELSE dayofweek(d) END AS INTEGER))"
)
# The day of a week that decides to which year it belongs: its first, or its fourth.
_DECIDING_DAY = f"({_FIRST_DAY} + CASE WHEN (mode & 1 = 1) = (mode & 4 = 4) THEN 0 ELSE 3 END)"

_MARK = r"[^\w\s]+"
_DELIMITED = (
    rf"^\s*(\d{{1,4}}){_MARK}(\d{{1,2}}){_MARK}(\d{{1,2}})"
    rf"(?:(?:T|\s+)(\d{{1,2}})(?:{_MARK}(\d{{1,2}})(?:{_MARK}(\d{{1,2}})(?:\.(\d{{1,6}}))?)?)?)?"
)
_UNDELIMITED = r"^\s*(\d{4}|\d\d)(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d)(?:\.(\d{1,6})\d*)?)?(?:\D|$)"


def _moment(pattern: str) -> str:
    group = [f"regexp_extract(s, '{pattern}', {number})" for number in range(8)]
    clock = ":".join(f"' || coalesce(nullif({group[n]}, ''), '0') || '" for n in (4, 5, 6))
    return (
        f"TRY_CAST(mysql_year_digits({group[1]}) || '-' || {group[2]} || '-' || {group[3]} || ' {clock}.' "
        f"|| rpad({group[7]}, 6, '0') AS TIMESTAMP)"
    )


CALENDAR_MACROS: dict[str, str] = {
    "mysql_week_of_year(d, mode, y)": (
        f"CAST(floor(({_DECIDING_DAY} - make_date(CAST(y AS INTEGER), 1, 1)) / 7) + 1 AS BIGINT)"
    ),
    "mysql_week(d, mode)": (
        "mysql_week_of_year(d, mode, "
        f"CASE WHEN mode & 2 = 2 THEN year({_DECIDING_DAY}) ELSE year(CAST(d AS DATE)) END)"
    ),
    "mysql_week_year(d, mode)": f"year({_DECIDING_DAY})",
    "mysql_yearweek(d, mode)": (
        f"year({_DECIDING_DAY}) * 100 + mysql_week_of_year(d, mode, year({_DECIDING_DAY}))"
    ),
    "mysql_day_of(y, n)": (
        "make_date(CAST(CASE WHEN y < 70 THEN y + 2000 WHEN y < 100 THEN y + 1900 ELSE y END AS INTEGER), "
        "1, 1) + CAST(n - 1 AS INTEGER)"
    ),
    "mysql_makedate(y, n)": (
        "CASE WHEN y BETWEEN 0 AND 9999 AND n BETWEEN 1 AND 3652424 THEN CASE "
        "WHEN year(mysql_day_of(y, n)) <= 9999 THEN mysql_day_of(y, n) END END"
    ),
    "mysql_period_diff(p, q)": f"{_MONTHS_OF.format('p')} - {_MONTHS_OF.format('q')}",
    "mysql_period(m)": "(m // 12) * 100 + m % 12 + 1",
    "mysql_period_add(p, n)": f"mysql_period({_MONTHS_OF.format('p')} + n)",
    "mysql_sec_to_time(n)": (
        "CASE WHEN n IS NOT NULL THEN "
        f"mysql_within_time(CAST(trunc(CAST(greatest(least(n, {_SECONDS_MAX}), -{_SECONDS_MAX}) "
        "AS DECIMAL(20, 7)) * 1000000) AS BIGINT)) END"
    ),
    "mysql_time_to_sec(t)": "CAST(trunc(epoch_us(t) / 1000000) AS BIGINT)",
    # an interval of microseconds alone: how much of the larger unit, and of the smaller ones within it
    "mysql_time_part(t, unit_us, within)": (
        "CASE WHEN within IS NULL THEN abs(epoch_us(t)) // unit_us "
        "ELSE abs(epoch_us(t)) // unit_us % within END"
    ),
    "mysql_group(s, pattern, n, other)": (
        "CASE WHEN regexp_matches(s, pattern) THEN CASE WHEN regexp_extract(s, pattern, n) = '' THEN other "
        "ELSE regexp_extract(s, pattern, n) END END"
    ),
    "mysql_time_sign(t)": "CASE WHEN epoch_us(t) < 0 THEN '-' ELSE '' END",
    "mysql_digits(n, width)": (
        "lpad(CAST(n AS VARCHAR), CAST(greatest(width, length(CAST(n AS VARCHAR))) AS INTEGER), '0')"
    ),
    "mysql_half_hour(t, width)": ("mysql_digits((abs(epoch_us(t)) // 3600000000 % 24 + 11) % 12 + 1, width)"),
    # a year of two digits is of 1970 to 2069
    "mysql_year_digits(y)": (
        f"{_YEAR_DIGITS.format('y')}WHEN length(y) < 3 THEN '19' || lpad(y, 2, '0') ELSE lpad(y, 4, '0') END"
    ),
    "mysql_month_number(name)": (
        "CAST((strpos('janfebmaraprmayjunjulaugsepoctnovdec', lower(left(name, 3))) + 2) // 3 AS VARCHAR)"
    ),
    "mysql_hour_of_half(h, half)": (
        "CASE WHEN CAST(h AS INTEGER) BETWEEN 1 AND 12 "
        "THEN CAST(CAST(h AS INTEGER) % 12 + CASE WHEN lower(half) = 'pm' THEN 12 ELSE 0 END AS VARCHAR) END"
    ),
    "mysql_read_date(y, m, d)": "CASE WHEN y <> '0000' THEN TRY_CAST(y || '-' || m || '-' || d AS DATE) END",
    "mysql_read_day(y, n)": (
        "CASE WHEN y <> '0000' AND CAST(n AS INTEGER) BETWEEN 1 AND 366 "
        "THEN make_date(CAST(y AS INTEGER), 1, 1) + CAST(n AS INTEGER) - 1 END"
    ),
    "mysql_weekday_number(name)": (
        "CASE WHEN name = '0' THEN 7 WHEN regexp_matches(name, '^[1-6]$') THEN CAST(name AS INTEGER) "
        "ELSE (strpos('montuewedthufrisatsun', lower(left(name, 3))) + 2) // 3 END"
    ),
    # `w`: the day of the week of the first of January, from 0
    "mysql_day_in_week(first, w, week, day, is_sunday_first)": (
        "first + CAST(CASE WHEN is_sunday_first THEN CASE WHEN w = 0 THEN 0 ELSE 7 END - w + day % 7 "
        "ELSE CASE WHEN w <= 3 THEN 0 ELSE 7 END - w + day - 1 END + (week - 1) * 7 AS INTEGER)"
    ),
    "mysql_read_week(y, week, name, is_sunday_first)": (
        "CASE WHEN y <> '0000' AND CAST(week AS INTEGER) <= 53 THEN mysql_day_in_week("
        "make_date(CAST(y AS INTEGER), 1, 1), CASE WHEN is_sunday_first "
        "THEN dayofweek(make_date(CAST(y AS INTEGER), 1, 1)) "
        "ELSE isodow(make_date(CAST(y AS INTEGER), 1, 1)) - 1 END, "
        "CAST(week AS INTEGER), mysql_weekday_number(name), is_sunday_first) END"
    ),
    "mysql_read_time(h, i, s, f)": (
        "CASE WHEN CAST(h AS INTEGER) < 24 AND CAST(i AS INTEGER) < 60 AND CAST(s AS INTEGER) < 60 "
        "THEN ((CAST(h AS BIGINT) * 60 + CAST(i AS BIGINT)) * 60 + CAST(s AS BIGINT)) * 1000000 "
        "+ CAST(rpad(f, 6, '0') AS BIGINT) END"
    ),
    # a text as a moment, however its parts are divided; what is none is before all others
    "mysql_text_moment(s)": (
        f"CASE WHEN s IS NULL THEN NULL WHEN regexp_matches(s, '{_DELIMITED}') "
        f"THEN coalesce({_moment(_DELIMITED)}, TIMESTAMP '0001-01-01') "
        f"WHEN regexp_matches(s, '{_UNDELIMITED}') "
        f"THEN coalesce({_moment(_UNDELIMITED)}, TIMESTAMP '0001-01-01') ELSE TIMESTAMP '0001-01-01' END"
    ),
    # the digits of a number as a moment, of a year of two digits too
    "mysql_number_moment(n)": (
        "CASE WHEN n IS NULL THEN NULL WHEN n < 1 OR n >= 100000000000000 THEN TIMESTAMP '0001-01-01' "
        "ELSE mysql_digits_moment(CAST(trunc(n) AS BIGINT)) END"
    ),
    "mysql_digits_moment(n)": (
        "CASE WHEN length(CAST(n AS VARCHAR)) IN (7, 13) THEN TIMESTAMP '0001-01-01' "
        "ELSE mysql_text_moment(mysql_digits(n, CASE WHEN n < 1000000 THEN 6 WHEN n < 100000000 THEN 8 "
        "WHEN n < 1000000000000 THEN 12 ELSE 14 END)) END"
    ),
    "mysql_moment_at(day, us)": "CAST(day AS TIMESTAMP) + to_microseconds(us)",
}

"""Functions of MySQL's that the engine has not, or has with other answers: macros over its own.

Those that make long texts out of short ones take how long one may be as their last argument, because the
engine makes them outside of its own limit on memory. The bound stands within the argument, not around the
call: the engine computes constants wherever they stand.

They are called by the names here; `rules.functions` and `rules.operators` put them in the place of what was
written. A macro is expanded by the engine like a view, so it costs what its body costs.
"""

from __future__ import annotations

from rtolap.query.engine_errors import out_of_range, refused
from rtolap.query.macros.calendar import CALENDAR_MACROS
from rtolap.query.macros.texts import TEXT_MACROS
from rtolap.query.macros.values import VALUE_MACROS

_UNIX_END = 2**31  # MySQL's instants are of 1970 to 2038
_TIME_US_MAX = ((838 * 60 + 59) * 60 + 59) * 1_000_000
_IS_TIME = r"regexp_matches({0}, '^\s*-?\d+:\d+(:\d+)?(\.\d*)?\s*$')"
_IS_MOMENT = r"regexp_matches({0}, '^\s*\d+-\d+-\d+[ T]+\d+:')"
_FINITE = (
    f"CASE WHEN isfinite({{0}}) THEN {{0}} ELSE {out_of_range('a DOUBLE value is out of range in {1}')} END"
)

_TOO_LONG = refused("'a text of more than ' || most || ' bytes is not made'")
_PADDED = f"CASE WHEN n < 0 THEN NULL WHEN n > most THEN {_TOO_LONG} ELSE CAST(n AS INTEGER) END"

MACROS: dict[str, str] = {
    **VALUE_MACROS,
    "mysql_left(s, n)": "left(s, greatest(n, 0))",
    "mysql_right(s, n)": "right(s, greatest(n, 0))",
    # position 0 is nowhere; a negative one counts from the end, and before the beginning is nowhere too
    "mysql_from(s, p)": "CASE WHEN p = 0 OR p < -length(s) THEN left(s, 0) ELSE substring(s, p) END",
    "mysql_substring(s, p, n)": (
        "CASE WHEN p = 0 OR p < -length(s) OR n <= 0 THEN left(s, p * n * 0) ELSE substring(s, p, n) END"
    ),
    "mysql_locate(part, s, p)": (
        "CASE WHEN p < 1 OR p > length(s) + 1 THEN CASE WHEN part || s IS NOT NULL THEN 0 END "
        "WHEN strpos(substring(s, p), part) = 0 THEN 0 ELSE strpos(substring(s, p), part) + p - 1 END"
    ),
    "mysql_lpad(s, n, fill, most)": f"lpad(s, {_PADDED}, fill)",
    "mysql_rpad(s, n, fill, most)": f"rpad(s, {_PADDED}, fill)",
    "mysql_repeat(s, n, most)": (
        f"repeat(s, CASE WHEN n <= 0 OR s = '' THEN 0 WHEN n > most // strlen(s) THEN {_TOO_LONG} "
        "ELSE CAST(n AS BIGINT) END)"
    ),
    # a text as often as it has events
    "mysql_repeated(s, separator, n, most)": "mysql_repeat(s || separator, n - 1, most) || s",
    # outside of a function's domain the answer is NULL
    "mysql_sqrt(x)": "CASE WHEN x >= 0 THEN sqrt(x) END",
    "mysql_ln(x)": "CASE WHEN x > 0 THEN ln(x) END",
    "mysql_log(base, x)": "CASE WHEN base > 0 AND base <> 1 AND x > 0 THEN log(base, x) END",
    "mysql_acos(x)": "CASE WHEN x BETWEEN -1 AND 1 THEN acos(x) END",
    "mysql_asin(x)": "CASE WHEN x BETWEEN -1 AND 1 THEN asin(x) END",
    # beyond the doubles it is an error
    "mysql_exp(x)": f"CASE WHEN x IS NOT NULL THEN {_FINITE.format('exp(x)', 'exp')} END",
    "mysql_pow(x, y)": (
        f"CASE WHEN x IS NOT NULL AND y IS NOT NULL THEN {_FINITE.format('pow(x, y)', 'pow')} END"
    ),
    "mysql_cot(x)": f"CASE WHEN x IS NOT NULL THEN {_FINITE.format('cot(x)', 'cot')} END",
    "mysql_divided(x, y)": "CASE WHEN y <> 0 THEN x // y END",
    "mysql_modulo(x, y)": "CASE WHEN y <> 0 THEN x % y END",
    "mysql_substring_index(s, d, n)": (
        "CASE WHEN s IS NULL OR d IS NULL OR n IS NULL THEN NULL WHEN n = 0 OR d = '' THEN '' "
        "WHEN n > 0 THEN array_to_string(list_slice(str_split(s, d), 1, CAST(n AS BIGINT)), d) "
        "ELSE array_to_string(list_slice(str_split(s, d), CAST(n AS BIGINT), -1), d) END"
    ),
    "mysql_find_in_set(s, texts)": (
        "CASE WHEN s IS NULL OR texts IS NULL THEN NULL WHEN texts = '' THEN 0 "
        "ELSE coalesce(list_position(str_split(texts, ','), s), 0) END"
    ),
    "mysql_shifted(t, us)": "CAST(t AS TIMESTAMP) + to_microseconds(us)",
    "mysql_plus_time(t, time)": "CAST(t AS TIMESTAMP) + time",
    "mysql_text(s)": "CAST(s AS VARCHAR)",
    "mysql_unix_now()": "floor(epoch(now()))",
    "mysql_unix_us(t)": (
        f"CASE WHEN t >= make_timestamp(0) AND t < make_timestamp({_UNIX_END}000000) THEN epoch_us(t) END"
    ),
    "mysql_from_unixtime(n)": (
        f"CASE WHEN CAST(n AS DOUBLE) >= 0 AND CAST(n AS DOUBLE) < {_UNIX_END} "
        "THEN make_timestamp(CAST(trunc(CAST(n AS DECIMAL(27, 7)) * 1000000) AS BIGINT)) END"
    ),
    # times are intervals of microseconds alone: those read as MySQL's
    "mysql_within_time(us)": (
        f"CASE WHEN us IS NOT NULL THEN "
        f"to_microseconds(greatest(least(us, {_TIME_US_MAX}), -{_TIME_US_MAX})) END"
    ),
    "mysql_time_of(t)": "to_microseconds(epoch_us(t) - epoch_us(date_trunc('day', t)))",
    "mysql_clock(t)": "mysql_time_of(date_trunc('second', CAST(t AS TIMESTAMP)))",
    "mysql_time_now()": "mysql_time_of(date_trunc('second', CAST(now() AS TIMESTAMP)))",
    "mysql_between(t, earlier)": (
        "CASE WHEN t IS NOT NULL AND earlier IS NOT NULL "
        "THEN mysql_within_time(epoch_us(t) - epoch_us(earlier)) END"
    ),
    "mysql_time(s)": (
        f"CASE WHEN s IS NULL THEN NULL "
        f"WHEN {_IS_TIME.format('s')} THEN mysql_within_time(epoch_us(TRY_CAST(s AS INTERVAL))) "
        f"WHEN {_IS_MOMENT.format('s')} THEN mysql_time_of(TRY_CAST(s AS TIMESTAMP)) "
        "ELSE " + refused("'not a time, nor a date with a time: ' || s") + " END"
    ),
    "mysql_timediff(s, earlier)": (
        "CASE WHEN s IS NULL OR earlier IS NULL THEN NULL "
        f"WHEN {_IS_TIME.format('s')} AND {_IS_TIME.format('earlier')} THEN "
        "mysql_within_time(epoch_us(TRY_CAST(s AS INTERVAL)) - epoch_us(TRY_CAST(earlier AS INTERVAL))) "
        f"WHEN {_IS_MOMENT.format('s')} AND {_IS_MOMENT.format('earlier')} THEN "
        "mysql_between(TRY_CAST(s AS TIMESTAMP), TRY_CAST(earlier AS TIMESTAMP)) "
        f"WHEN ({_IS_TIME.format('s')} OR {_IS_MOMENT.format('s')}) "
        f"AND ({_IS_TIME.format('earlier')} OR {_IS_MOMENT.format('earlier')}) THEN NULL "
        "ELSE " + refused("'not two times, nor two dates with times: ' || s || ', ' || earlier") + " END"
    ),
    "mysql_ordinal(n)": (
        "n || CASE WHEN n BETWEEN 11 AND 13 THEN 'th' WHEN n % 10 = 1 THEN 'st' WHEN n % 10 = 2 THEN 'nd' "
        "WHEN n % 10 = 3 THEN 'rd' ELSE 'th' END"
    ),
    "mysql_text_integer(s)": (
        "CASE WHEN s IS NULL THEN NULL WHEN regexp_extract(s, '^\\s*([-+]?[0-9]+)', 1) = '' THEN 0 "
        "ELSE CAST(regexp_extract(s, '^\\s*([-+]?[0-9]+)', 1) AS BIGINT) END"
    ),
    **TEXT_MACROS,
    **CALENDAR_MACROS,
}

NAMES = frozenset(head.partition("(")[0] for head in MACROS)


def statements() -> list[str]:
    return [f"CREATE MACRO {head} AS {body}" for head, body in MACROS.items()]

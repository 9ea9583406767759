"""Macros that limit values to what MySQL has: moments, bits, texts of numbers, places in a text.

They give NULL where MySQL does, and an error where MySQL would show a value that the engine cannot represent.
"""

from __future__ import annotations

from rtolap.query.engine_errors import out_of_range, refused

_BITS = "18446744073709551615"
_SIGNED_MAX = 2**63 - 1
_MONTHS_MAX, _DAYS_MAX = 10_000 * 12, 10_000 * 366
_MICROSECONDS_MAX = _DAYS_MAX * 86_400_000_000
_DIGITS = r"regexp_extract(CAST(x AS VARCHAR), '^-?([0-9]*)\.?([0-9]*)', {0})"
_EXPONENT = r"TRY_CAST(regexp_extract(CAST(x AS VARCHAR), 'e([-+]?[0-9]+)$', 1) AS INTEGER)"
_SIGN = "CASE WHEN x < 0 THEN '-' ELSE '' END"
_PLAIN = r"regexp_replace(CAST(x AS VARCHAR), '\.0(e|$)', '\1')"
_HOUR_US, _MINUTE_US, _SECOND_US, _HOURS_MAX = 3_600_000_000, 60_000_000, 1_000_000, 838
_TIME_US_MAX = _HOURS_MAX * _HOUR_US + 59 * _MINUTE_US + 59 * _SECOND_US

VALUE_MACROS: dict[str, str] = {
    # moments: NULL beyond the years of MySQL; its year 0 has no place in what clients read
    "mysql_within(t)": (
        "CASE WHEN t >= TIMESTAMP '0001-01-01' AND t < TIMESTAMP '10000-01-01' THEN t "
        f"WHEN t >= TIMESTAMP '0001-01-01' - INTERVAL 366 DAY AND t < TIMESTAMP '0001-01-01' THEN "
        f"{out_of_range('a date of the year 0')} END"
    ),
    "mysql_moved_months(t, n, factor)": (
        f"CASE WHEN abs(CAST(n AS HUGEINT)) <= {_MONTHS_MAX} "
        "THEN mysql_within(t + to_months(TRY_CAST(n * factor AS INTEGER))) END"
    ),
    "mysql_moved_days(t, n, factor)": (
        f"CASE WHEN abs(CAST(n AS HUGEINT)) <= {_DAYS_MAX} "
        "THEN mysql_within(t + to_days(TRY_CAST(n * factor AS INTEGER))) END"
    ),
    "mysql_moved_us(t, n, factor)": (
        f"CASE WHEN abs(CAST(n AS HUGEINT)) <= {_MICROSECONDS_MAX} // abs(factor) "
        "THEN mysql_within(t + to_microseconds(TRY_CAST(n * CAST(factor AS HUGEINT) AS BIGINT))) END"
    ),
    "mysql_maketime(h, m, s)": (
        "CASE WHEN m NOT BETWEEN 0 AND 59 OR s < 0 OR s >= 60 OR h IS NULL OR m IS NULL OR s IS NULL "
        "THEN NULL "
        f"WHEN abs(h) > {_HOURS_MAX} THEN to_microseconds(CAST(sign(h) AS BIGINT) * {_TIME_US_MAX}) "
        f"ELSE to_microseconds(CAST((CASE WHEN h < 0 THEN -1 ELSE 1 END) * "
        f"(abs(CAST(h AS BIGINT)) * {_HOUR_US} + CAST(m AS BIGINT) * {_MINUTE_US} "
        f"+ CAST(trunc(s * {_SECOND_US}) AS BIGINT)) AS BIGINT)) END"
    ),
    # bits are those of an unsigned number of 64
    "mysql_bits(x)": (
        "CAST(CASE WHEN x < 0 THEN CAST(x AS HUGEINT) + 18446744073709551616 ELSE x END AS UBIGINT)"
    ),
    "mysql_whole(x)": (
        f"CASE WHEN abs(x) < {2**52} AND abs(x) - floor(abs(x)) = 0.5 AND typeof(x) = 'DOUBLE' THEN "
        + refused("'the bits of a double between two whole numbers: ' || x")
        + f" WHEN abs(x) <= {_SIGNED_MAX} OR x IS NULL THEN CAST(x AS HUGEINT) "
        f"ELSE {out_of_range('a number of more than 63 bits as bits')} END"
    ),
    "mysql_left_shift(x, n)": (
        f"CASE WHEN x IS NULL OR n IS NULL THEN NULL WHEN n > 63 THEN CAST(0 AS UBIGINT) "
        f"ELSE CAST((CAST(x AS UHUGEINT) << CAST(n AS UHUGEINT)) & CAST({_BITS} AS UHUGEINT) AS UBIGINT) END"
    ),
    "mysql_right_shift(x, n)": (
        "CASE WHEN x IS NULL OR n IS NULL THEN NULL WHEN n > 63 THEN CAST(0 AS UBIGINT) ELSE x >> n END"
    ),
    # a double as text: without an exponent from 1e-15 up to below 1e15
    "mysql_number_text(x)": (
        "CASE WHEN x IS NULL THEN NULL WHEN x = 0 THEN '0' "
        f"WHEN abs(x) < 1e-4 AND abs(x) >= 1e-15 AND contains(CAST(x AS VARCHAR), 'e') "
        f"THEN {_SIGN} || '0.' || repeat('0', -{_EXPONENT} - 1) || "
        f"rtrim({_DIGITS.format(1)} || {_DIGITS.format(2)}, '0') "
        f"WHEN abs(x) >= 1e15 AND abs(x) < 1e16 THEN {_SIGN} || "
        f"regexp_replace(left({_DIGITS.format(1)}, 1) || '.' || "
        f"rtrim(substring({_DIGITS.format(1)}, 2) || {_DIGITS.format(2)}, '0'), '\\.$', '') || 'e15' "
        f"ELSE regexp_replace({_PLAIN}, 'e([-+]?)0*([0-9]+)$', "
        "'e' || CASE WHEN abs(x) < 1 THEN '-' ELSE '' END || '\\2') END"
    ),
    "mysql_fixed_text(x, digits)": (
        "CASE WHEN abs(x) < 1e15 OR x IS NULL THEN printf('%.' || digits || 'f', x + 0.0) ELSE "
        + refused("'the text of a rounded double from 1e15 on: ' || x")
        + " END"
    ),
    "mysql_exact(x)": (
        "CASE WHEN x IS NULL THEN NULL WHEN abs(x) < 1e15 "
        "AND CAST(CAST(CAST(x AS VARCHAR) AS DECIMAL(38, 15)) AS DOUBLE) = x "
        "THEN CAST(CAST(x AS VARCHAR) AS DECIMAL(38, 15)) ELSE "
        + refused("'DIV takes doubles below 1e15 of at most 15 digits behind the point, not ' || x")
        + " END"
    ),
    # of two decimals with the same digits behind the point
    "mysql_whole_part(x, y)": (
        "CASE WHEN y <> 0 THEN CAST(CAST(replace(CAST(x AS VARCHAR), '.', '') AS HUGEINT) "
        "// CAST(replace(CAST(y AS VARCHAR), '.', '') AS HUGEINT) AS BIGINT) END"
    ),
    # the text of a moment, with a time
    "mysql_clock_text(s)": (
        "CASE WHEN s IS NULL OR regexp_matches(s, '^\\s*\\d+-\\d+-\\d+[ T]+\\d+:') THEN s ELSE "
        + refused("'the hour, minute or second of a text that is no date with a time: ' || s")
        + " END"
    ),
    # texts
    "mysql_ord(s)": (
        "CASE WHEN s IS NULL THEN NULL WHEN s = '' THEN 0 ELSE CAST('0x' || hex(left(s, 1)) AS BIGINT) END"
    ),
    "mysql_ascii(s)": (
        "CASE WHEN s IS NULL THEN NULL WHEN s = '' THEN 0 "
        "ELSE CAST('0x' || left(hex(left(s, 1)), 2) AS BIGINT) END"
    ),
    "mysql_char(n)": (
        "CASE WHEN n IS NULL THEN '' WHEN n BETWEEN 0 AND 127 THEN chr(CAST(n AS INTEGER)) ELSE "
        + refused("'CHAR makes characters of 0 to 127, not of ' || n")
        + " END"
    ),
    "mysql_insert(s, p, n, other)": (
        "CASE WHEN s IS NULL OR p IS NULL OR n IS NULL OR other IS NULL THEN NULL "
        "WHEN p < 1 OR p > length(s) THEN s "
        "WHEN n < 0 OR n > length(s) - p THEN left(s, CAST(p - 1 AS BIGINT)) || other "
        "ELSE left(s, CAST(p - 1 AS BIGINT)) || other || substring(s, CAST(p + n AS BIGINT)) END"
    ),
    # the new text is not looked at where the old one is not found
    "mysql_replace(s, old, new)": (
        "CASE WHEN old = '' OR NOT contains(s, old) THEN s ELSE replace(s, old, new) END"
    ),
    "mysql_ltrim(s, part)": (
        "CASE WHEN part = '' THEN s ELSE regexp_replace(s, '^(?:' || regexp_escape(part) || ')+', '') END"
    ),
    "mysql_rtrim(s, part)": (
        "CASE WHEN part = '' THEN s ELSE regexp_replace(s, '(?:' || regexp_escape(part) || ')+$', '') END"
    ),
}

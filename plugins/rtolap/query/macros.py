"""Functions of MySQL's that the engine has not, or has with other answers: macros over its own.

They are called by the names here; `rules.functions` and `rules.operators` put them in the place of what was
written. A macro is expanded by the engine like a view, so it costs what its body costs.
"""

from __future__ import annotations

_FINITE = "CASE WHEN isfinite({0}) THEN {0} ELSE error('DOUBLE value is out of range in {1}') END"

MACROS: dict[str, str] = {
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
    "mysql_lpad(s, n, fill)": "CASE WHEN n >= 0 THEN lpad(s, CAST(n AS INTEGER), fill) END",
    "mysql_rpad(s, n, fill)": "CASE WHEN n >= 0 THEN rpad(s, CAST(n AS INTEGER), fill) END",
    "mysql_ascii(s)": (
        "CASE WHEN s = '' THEN 0 WHEN ascii(s) < 128 THEN ascii(s) "
        "ELSE CAST('0x' || left(hex(s), 2) AS INTEGER) END"
    ),
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
    "mysql_whole_part(x, y)": "CASE WHEN y <> 0 THEN CAST(round((x - x % y) / y) AS BIGINT) END",
    "mysql_modulo(x, y)": "CASE WHEN y <> 0 THEN x % y END",
    # bits are those of an unsigned number
    "mysql_unsigned(x)": (
        "CAST(CASE WHEN x < 0 THEN CAST(x AS HUGEINT) + 18446744073709551616 ELSE x END AS UBIGINT)"
    ),
    "mysql_number_text(x)": ("replace(regexp_replace(CAST(x AS VARCHAR), '\\.0(e|$)', '\\1'), 'e+', 'e')"),
    "mysql_text_integer(s)": (
        "CASE WHEN s IS NULL THEN NULL WHEN regexp_extract(s, '^\\s*([-+]?[0-9]+)', 1) = '' THEN 0 "
        "ELSE CAST(regexp_extract(s, '^\\s*([-+]?[0-9]+)', 1) AS BIGINT) END"
    ),
}


def statements() -> list[str]:
    return [f"CREATE MACRO {head} AS {body}" for head, body in MACROS.items()]

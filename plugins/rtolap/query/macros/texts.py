"""Texts as numbers and numbers as texts, as MySQL reads and shows them, and values within JSON: macros."""

from __future__ import annotations

import sys

from rtolap.query.engine_errors import refused

_UNSIGNED_MAX = 2**64 - 1
_DOUBLE_MAX = sys.float_info.max
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NUMBER = r"^\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_SIX = (
    f"({' * '.join(['CAST(base AS BIGINT)'] * 6)})"  # of the digits of n, which has a bit more than a BIGINT
)
_SIGNED = r"regexp_extract(trim(lower(s)), '^([-+]?)0*(\w*)', {0})"
_TO_BASE = (
    "upper(CASE WHEN n < 9223372036854775808 THEN to_base(CAST(n AS BIGINT), CAST(base AS INTEGER)) "
    f"ELSE to_base(CAST(n // {_SIX} AS BIGINT), CAST(base AS INTEGER)) "
    f"|| lpad(to_base(CAST(n % {_SIX} AS BIGINT), CAST(base AS INTEGER)), 6, '0') END)"
)

TEXT_MACROS: dict[str, str] = {
    # the number that a text begins with, 0 if with none
    "mysql_text_number(s)": (
        "CASE WHEN s IS NOT NULL THEN "
        f"greatest(least(coalesce(TRY_CAST(regexp_extract(s, '{_NUMBER}', 1) AS DOUBLE), 0), "
        f"{_DOUBLE_MAX!r}), -{_DOUBLE_MAX!r}) END"
    ),
    "mysql_number_prefix(s)": f"regexp_extract(s, '{_NUMBER}', 1)",
    "mysql_bytes(s)": "encode(s)",
    # the engine would show them with escapes
    "mysql_bytes_text(b)": (
        "CASE WHEN b IS NOT NULL THEN coalesce(try(decode(b)), "
        + refused("'bytes that are no text in UTF-8: ' || hex(b)")
        + ") END"
    ),
    # the engine has the case of Unicode's single letters too, but for this one, which has no capital there
    "mysql_upper(s)": (
        "CASE WHEN contains(s, 'ß') "
        "THEN array_to_string(list_transform(string_split(s, 'ß'), lambda part: upper(part)), 'ß') "
        "ELSE upper(s) END"
    ),
    "mysql_bytes_base64(b)": (
        "regexp_replace(regexp_replace(to_base64(b), '(.{76})', '\\1\n', 'g'), '\n$', '')"
    ),
    "mysql_to_base64(s)": "mysql_bytes_base64(encode(s))",
    "mysql_strcmp(s, t)": "CASE WHEN s < t THEN -1 WHEN s > t THEN 1 WHEN s = t THEN 0 END",
    "mysql_regexp_substr(s, pattern, p, n)": (
        "CASE WHEN p BETWEEN 1 AND length(s) + 1 AND n >= 1 "
        "THEN regexp_extract_all(substring(s, p), pattern)[n] END"
    ),
    # digits up to the first that the base has not, at most what 64 bits hold
    "mysql_of_base(s, base)": (
        f"list_reduce(list_prepend(CAST(0 AS HUGEINT), list_transform("
        f"string_split(regexp_extract(s, '^[' || left('{_DIGITS}', CAST(base AS BIGINT)) || ']*'), ''), "
        f"lambda c: CAST(strpos('{_DIGITS}', c) - 1 AS HUGEINT))), "
        f"lambda n, c: CASE WHEN c < 0 THEN n "
        f"ELSE least(n * CAST(base AS HUGEINT) + c, {_UNSIGNED_MAX + 1}) END)"
    ),
    # as 64 bits without a sign
    "mysql_of_digits(is_negative, n, source)": (
        "CASE WHEN source < 0 AND is_negative THEN (18446744073709551616 - least(n, 9223372036854775808)) "
        "% 18446744073709551616 WHEN source < 0 THEN least(n, 9223372036854775807) "
        f"WHEN n > {_UNSIGNED_MAX} THEN {_UNSIGNED_MAX} "
        "WHEN is_negative THEN (18446744073709551616 - n) % 18446744073709551616 ELSE n END"
    ),
    "mysql_to_base(n, base)": _TO_BASE,
    "mysql_in_base(n, target)": (
        "CASE WHEN target < 0 AND n >= 9223372036854775808 "
        "THEN '-' || mysql_to_base(18446744073709551616 - n, abs(target)) "
        "ELSE mysql_to_base(n, abs(target)) END"
    ),
    "mysql_conv(s, source, target)": (
        "CASE WHEN abs(source) BETWEEN 2 AND 36 AND abs(target) BETWEEN 2 AND 36 AND s <> '' THEN "
        f"mysql_in_base(mysql_of_digits({_SIGNED.format(1)} = '-', "
        f"mysql_of_base({_SIGNED.format(2)}, abs(source)), source), target) END"
    ),
    # exact numbers with a comma before each three digits; `n`: rounded, as text
    "mysql_grouped(n)": (
        "CASE WHEN starts_with(n, '-') AND regexp_matches(n, '[1-9]') THEN '-' ELSE '' END "
        "|| format('{:,}', CAST(string_split(ltrim(n, '-'), '.')[1] AS HUGEINT)) "
        "|| CASE WHEN strpos(n, '.') > 0 THEN '.' || string_split(n, '.')[2] ELSE '' END"
    ),
    # half to even; from 2^52 on a double has no fraction, and the engine's scaling would change it
    "mysql_round_even(x, n)": (
        f"CASE WHEN n >= 0 AND abs(x) >= {2**52} THEN x ELSE round_even(x, CAST(n AS INTEGER)) END"
    ),
    # a number as text, where a zero has no sign
    "mysql_unsigned_zero(n)": "CASE WHEN regexp_matches(n, '[1-9]') THEN n ELSE ltrim(n, '-') END",
    # a decimal that its type does not hold is the largest that it holds
    "mysql_clamped(n, tried, most)": (
        "CASE WHEN n IS NOT NULL "
        "THEN coalesce(tried, CASE WHEN n < 0 THEN -most WHEN n > 0 THEN most ELSE 0 END) END"
    ),
    # pairs of a key and a text: each text once, in the order of its least key
    "mysql_by_text(pairs)": (
        "list_sort(list_transform(list_filter(pairs, lambda p: p[2] IS NOT NULL), lambda p: row(p[2], p[1])))"
    ),
    "mysql_each_once(pairs)": "list_filter(pairs, lambda p, i: i = 1 OR pairs[i - 1][1] <> p[1])",
    "mysql_joined(pairs, separator, direction)": (
        "CASE WHEN len(mysql_by_text(pairs)) > 0 "
        "THEN array_to_string(list_transform(list_sort(list_transform("
        "mysql_each_once(mysql_by_text(pairs)), lambda p: row(p[2], p[1])), direction), lambda p: p[2]), "
        "separator) END"
    ),
    "mysql_json(s, path)": "CASE WHEN json_valid(s) THEN CAST(json_extract(s, path) AS VARCHAR) END",
    "mysql_json_unquote(s)": (
        "CASE WHEN starts_with(s, '\"') AND json_valid(s) THEN json_extract_string(s, '$') ELSE s END"
    ),
    "mysql_json_valid(s)": "CAST(json_valid(s) AS INTEGER)",
    "mysql_json_list(texts)": (
        "CASE WHEN len(list_filter(texts, lambda t: t IS NOT NULL)) > 0 "
        "THEN '[' || array_to_string(list_filter(texts, lambda t: t IS NOT NULL), ', ') || ']' END"
    ),
}

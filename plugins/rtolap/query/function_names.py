"""The functions that are answered, as docs/sql.md lists them: what an unknown one may have been meant as."""

from __future__ import annotations

import difflib

from rtolap.base.errors import UnknownFunction

TEXT_FUNCTIONS = (
    *("ascii", "bin", "bit_length", "char", "char_length", "concat", "concat_ws", "conv", "convert"),
    *("elt", "field", "find_in_set", "format", "from_base64", "hex", "insert", "instr", "lcase", "left"),
    *("json_extract", "json_unquote", "json_valid"),
    *("length", "locate", "lower", "lpad", "ltrim", "md5", "mid", "octet_length", "ord", "position"),
    *(
        "regexp_like",
        "regexp_replace",
        "regexp_substr",
        "repeat",
        "replace",
        "reverse",
        "right",
        "rpad",
        "rtrim",
    ),
    *("sha1", "sha2", "space", "strcmp", "substr", "substring", "substring_index", "to_base64", "trim"),
    *("ucase", "unhex", "upper"),
)
NUMBER_FUNCTIONS = (
    *("abs", "acos", "asin", "atan", "atan2", "ceil", "ceiling", "cos", "cot", "crc32", "degrees", "exp"),
    *("floor", "greatest", "least", "ln", "log", "log10", "log2", "mod", "pi", "pow", "power"),
    *("radians", "rand", "round", "sign", "sin", "sqrt", "tan", "truncate"),
)
TIME_FUNCTIONS = (
    *("adddate", "convert_tz", "curdate", "current_date", "current_time", "current_timestamp"),
    *("curtime", "date", "date_add", "date_format", "date_sub", "date_trunc", "datediff", "day"),
    *("dayname", "dayofmonth", "dayofweek", "dayofyear", "extract", "from_unixtime", "hour"),
    *("last_day", "localtime", "localtimestamp", "makedate", "maketime", "microsecond", "minute", "month"),
    *(
        "monthname",
        "now",
        "period_add",
        "period_diff",
        "quarter",
        "sec_to_time",
        "second",
        "str_to_date",
        "subdate",
        "sysdate",
        "time",
    ),
    *(
        "time_format",
        "time_to_sec",
        "timediff",
        "timestamp",
        "timestampadd",
        "timestampdiff",
        "to_days",
        "unix_timestamp",
    ),
    *("utc_date", "utc_time", "utc_timestamp", "week", "weekday", "weekofyear", "year", "yearweek"),
)
CHOICES = ("cast", "coalesce", "if", "ifnull", "isnull", "nullif")
AGGREGATES = (
    *("any_value", "approx_count_distinct", "avg", "bit_and", "bit_or", "bit_xor", "count"),
    *("group_concat", "max", "min", "std", "stddev", "stddev_pop", "stddev_samp", "sum", "var_pop"),
    *("var_samp", "variance"),
)
WINDOW_FUNCTIONS = (
    *("cume_dist", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "ntile"),
    *("percent_rank", "rank", "row_number"),
)
SESSION_FUNCTIONS = (  # constants of a session, which the MySQL server puts in their place
    *("connection_id", "current_user", "database", "found_rows", "last_insert_id", "row_count", "schema"),
    *("session_user", "system_user", "user", "version"),
)
SKETCH_FUNCTIONS = (
    *("bitmap_count", "bitmap_union", "bitmap_union_count", "hll_cardinality", "hll_raw_agg", "hll_union"),
    *("hll_union_agg", "ndv"),
)
FUNCTIONS = (
    *TEXT_FUNCTIONS,
    *NUMBER_FUNCTIONS,
    *TIME_FUNCTIONS,
    *CHOICES,
    *AGGREGATES,
    *WINDOW_FUNCTIONS,
)


def unknown_function(name: str) -> UnknownFunction:
    near = difflib.get_close_matches(name.lower(), FUNCTIONS, n=1)
    return UnknownFunction(
        f"unknown function {name}",
        expected=f"perhaps {near[0].upper()}" if near else "one of the functions of docs/sql.md",
        action="see the list of functions in docs/sql.md",
    )

"""The names that the engine may be given: functions, types.

The names are those that stand in the engine's own tree after every documented function was rewritten. None of
them reads a file, a setting or a catalogue, changes anything, waits, or makes rows. REPEAT and its like,
which make long texts out of short ones, are called through macros that bound them, never by their own names.
"""

from __future__ import annotations

from rtolap.query.macros import NAMES as MACROS
from rtolap.query.sketches import BITMAP_SIZE, HLL_ESTIMATE
from rtolap.query.sql.function_names import WINDOW_FUNCTIONS

_OPERATORS = (
    *("+", "-", "*", "/", "//", "%", "&", "|", "~", "<<", ">>", "||", "xor", "row", "~~", "!~~"),
    *("like_escape", "not_like_escape", "regexp_matches"),
)
_TEXTS = (
    *("bin", "bit_length", "chr", "concat", "concat_ws", "format", "from_base64", "hex", "instr"),
    *("left", "length", "lower", "ltrim", "md5", "ord", "regexp_replace", "replace", "reverse"),
    *("right", "rtrim", "sha1", "sha256", "strlen", "strpos", "substring", "to_base64", "trim"),
    *("unhex", "upper"),
)
_NUMBERS = (
    *("abs", "atan", "atan2", "ceil", "ceiling", "cos", "degrees", "floor", "greatest", "least"),
    *("log10", "log2", "mod", "pi", "pow", "power", "radians", "random", "round", "round_even"),
    *("sign", "sin", "tan", "trunc"),
)
_TIMES = (
    *("current_date", "current_timestamp", "now", "date_diff", "date_part", "date_trunc"),
    *("datesub", "day", "dayname", "dayofmonth", "dayofweek", "dayofyear", "hour", "last_day"),
    *("make_time", "microsecond", "minute", "month", "monthname", "quarter", "second", "strftime"),
    *("strptime", "time_bucket", "timezone", "to_days", "to_hours", "to_microseconds"),
    *("to_minutes", "to_months", "to_quarters", "to_seconds", "to_weeks", "to_years", "week"),
    *("weekofyear", "year"),
)
_CHOICES = ("list_value", "coalesce", "if", "ifnull", "nullif")
_AGGREGATES = (
    *("any_value", "approx_count_distinct", "avg", "bit_and", "bit_or", "bit_xor", "count"),
    *("count_star", "list", "listagg", "max", "min", "stddev", "stddev_pop", "stddev_samp"),
    *("string_agg", "sum", "var_pop", "var_samp", "variance"),
)
ENGINE_FUNCTIONS = frozenset(
    (
        *(*_OPERATORS, *_TEXTS, *_NUMBERS, *_TIMES, *_CHOICES, *_AGGREGATES, *WINDOW_FUNCTIONS),
        *(HLL_ESTIMATE, BITMAP_SIZE, *MACROS),
    )
)
ENGINE_TYPES = frozenset(
    (
        *("BIGINT", "BLOB", "BOOLEAN", "DATE", "DECIMAL", "DOUBLE", "FLOAT", "HUGEINT", "INT128"),
        *("INTEGER", "INTERVAL", "JSON", "REAL", "SMALLINT", "TEXT", "TIME", "TIMESTAMP"),
        *("TINYINT", "UBIGINT", "UINTEGER", "USMALLINT", "UTINYINT", "VARCHAR"),
    )
)

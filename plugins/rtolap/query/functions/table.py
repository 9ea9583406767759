"""The functions of SQL, one row a function: its name, the parser's nodes, the engine's functions.

A new function is a row here. An aggregate of `rtolap.aggregates` has its row already: `aggregate_rows` makes
it from the registry. `names`, `approval.nodes` and `approval.engine_tree` derive their lists from
the rows. Macros of `query.macros` and operators have lists of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rtolap.aggregates.function import Aggregate
from rtolap.aggregates.registry import AGGREGATES as DECLARED
from rtolap.aggregates.sketch_bytes import SKETCH_BYTES
from rtolap.query.engine_functions.checksums import CRC32
from rtolap.query.engine_functions.sketches import BITMAP_SIZE, HLL_ESTIMATE


class SqlFunction(NamedTuple):
    """One function that SQL may call.

    Attributes:
        name: as SQL calls it, in lower case.
        nodes: keys of the parser's nodes that a call of it is read as; empty: a call without a node of its
            own, or an operator.
        engine: the embedded engine's functions that a call may become, macros and operators left out. None of
            them reads a file, a setting or a catalogue, changes anything, waits, or makes rows.
    """

    name: str
    nodes: tuple[str, ...] = ()
    engine: tuple[str, ...] = ()


_INTERVALS = (  # what the engine makes an INTERVAL of
    *("to_microseconds", "to_seconds", "to_minutes", "to_hours", "to_days", "to_weeks", "to_months"),
    *("to_quarters", "to_years"),
)
TEXTS = (
    SqlFunction("ascii", ("ascii",), ("ord",)),
    SqlFunction("bin", engine=("bin",)),
    SqlFunction("bit_length", ("bitlength",), ("bit_length",)),
    SqlFunction("char", ("chr",), ("chr",)),
    SqlFunction("char_length", ("length",), ("length", "strlen")),
    SqlFunction("concat", ("concat",), ("concat",)),
    SqlFunction("concat_ws", ("concatws",), ("concat_ws",)),
    SqlFunction("conv"),
    SqlFunction("convert"),
    SqlFunction("elt"),
    SqlFunction("field"),
    SqlFunction("find_in_set"),
    SqlFunction("format", ("numbertostr",), ("format",)),
    SqlFunction("from_base64", ("frombase64",), ("from_base64",)),
    SqlFunction("hex", ("hex",), ("hex",)),
    SqlFunction("insert", ("stuff",)),
    SqlFunction("instr", ("strposition",), ("strpos", "instr")),
    SqlFunction("lcase", ("lower",), ("lower",)),
    SqlFunction("left", ("left",), ("left",)),
    SqlFunction("json_extract"),
    SqlFunction("json_unquote"),
    SqlFunction("json_valid"),
    SqlFunction("length", ("length",), ("length", "strlen")),
    SqlFunction("locate", ("strposition",), ("strpos",)),
    SqlFunction("lower", ("lower",), ("lower",)),
    SqlFunction("lpad", ("pad",)),
    SqlFunction("ltrim", ("trim",), ("ltrim",)),
    SqlFunction("md5", ("md5",), ("md5",)),
    SqlFunction("mid"),
    SqlFunction("octet_length", engine=("strlen", "octet_length")),
    SqlFunction("ord", engine=("ord",)),
    SqlFunction("position", ("strposition",), ("strpos",)),
    SqlFunction("regexp_like", engine=("regexp_matches",)),
    SqlFunction("regexp_replace", ("regexpreplace",), ("regexp_replace",)),
    SqlFunction("regexp_substr"),
    SqlFunction("repeat", ("repeat",)),
    SqlFunction("replace", ("replace",), ("replace",)),
    SqlFunction("reverse", ("reverse",), ("reverse",)),
    SqlFunction("right", ("right",), ("right",)),
    SqlFunction("rpad", ("pad",)),
    SqlFunction("rtrim", ("trim",), ("rtrim",)),
    SqlFunction("sha1", ("sha",), ("sha1",)),
    SqlFunction("sha2", ("sha2",), ("sha256",)),
    SqlFunction("space", ("space",)),
    SqlFunction("strcmp"),
    SqlFunction("substr", ("substring",)),
    SqlFunction("substring", ("substring",), ("substring",)),
    SqlFunction("substring_index", ("substringindex",)),
    SqlFunction("to_base64", ("tobase64",), ("to_base64",)),
    SqlFunction("trim", ("trim",), ("trim",)),
    SqlFunction("ucase", ("upper",), ("upper",)),
    SqlFunction("unhex", ("unhex",), ("unhex",)),
    SqlFunction("upper", ("upper",), ("upper",)),
)
NUMBERS = (
    SqlFunction("abs", ("abs",), ("abs",)),
    SqlFunction("acos", ("acos",)),
    SqlFunction("asin", ("asin",)),
    SqlFunction("atan", ("atan",), ("atan",)),
    SqlFunction("atan2", ("atan2",), ("atan2",)),
    SqlFunction("ceil", ("ceil",), ("ceil",)),
    SqlFunction("ceiling", ("ceil",), ("ceil", "ceiling")),
    SqlFunction("cos", ("cos",), ("cos",)),
    SqlFunction("cot", ("cot",)),
    SqlFunction("crc32", engine=(CRC32,)),
    SqlFunction("degrees", ("degrees",), ("degrees",)),
    SqlFunction("exp", ("exp",)),
    SqlFunction("floor", ("floor",), ("floor",)),
    SqlFunction("greatest", ("greatest",), ("greatest",)),
    SqlFunction("least", ("least",), ("least",)),
    SqlFunction("ln", ("ln",)),
    SqlFunction("log", ("log", "ln")),
    SqlFunction("log10", ("log",), ("log10",)),
    SqlFunction("log2", ("log",), ("log2",)),
    SqlFunction("mod", engine=("mod",)),
    SqlFunction("pi", ("pi",), ("pi",)),
    SqlFunction("pow", ("pow",), ("pow",)),
    SqlFunction("power", ("pow",), ("pow", "power")),
    SqlFunction("radians", ("radians",), ("radians",)),
    SqlFunction("rand", ("rand",), ("random",)),
    SqlFunction("round", ("round",), ("round", "round_even")),
    SqlFunction("sign", ("sign",), ("sign",)),
    SqlFunction("sin", ("sin",), ("sin",)),
    SqlFunction("sqrt", ("sqrt",)),
    SqlFunction("tan", ("tan",), ("tan",)),
    SqlFunction("truncate", ("trunc",), ("trunc",)),
)
TIMES = (
    SqlFunction("adddate"),
    SqlFunction("convert_tz", ("converttimezone",), ("timezone",)),
    SqlFunction("curdate", ("currentdate",), ("current_date",)),
    SqlFunction("current_date", ("currentdate",), ("current_date",)),
    SqlFunction("current_time", ("currenttime",)),
    SqlFunction("current_timestamp", ("currenttimestamp",), ("current_timestamp",)),
    SqlFunction("curtime", ("currenttime",)),
    SqlFunction("date", ("tsordstodate", "date")),
    SqlFunction("date_add", ("dateadd",), (*_INTERVALS,)),
    SqlFunction("date_format", ("timetostr", "tsordstotimestamp"), ("strftime",)),
    SqlFunction("date_sub", ("datesub",)),
    SqlFunction("date_trunc", ("datetrunc", "timestamptrunc"), ("date_trunc", "time_bucket")),
    SqlFunction("datediff", ("datediff",), ("date_diff",)),
    SqlFunction("day", ("day",), ("day",)),
    SqlFunction("dayname", ("dayname",), ("dayname", "strftime")),
    SqlFunction("dayofmonth", ("dayofmonth",), ("dayofmonth",)),
    SqlFunction("dayofweek", ("dayofweek",), ("dayofweek",)),
    SqlFunction("dayofyear", ("dayofyear",), ("dayofyear",)),
    SqlFunction("extract", ("extract",), ("date_part",)),
    SqlFunction("from_unixtime", ("unixtotime",), ("strftime",)),
    SqlFunction("hour", ("hour",), ("hour",)),
    SqlFunction("last_day", ("lastday",), ("last_day",)),
    SqlFunction("localtime", ("localtime",)),
    SqlFunction("localtimestamp", ("localtimestamp",)),
    SqlFunction("makedate"),
    SqlFunction("maketime", ("timefromparts",), ("make_time",)),
    SqlFunction("microsecond", engine=("microsecond", "date_part")),
    SqlFunction("minute", ("minute",), ("minute",)),
    SqlFunction("month", ("month",), ("month",)),
    SqlFunction("monthname", engine=("monthname", "strftime")),
    SqlFunction("now", engine=("now",)),
    SqlFunction("period_add"),
    SqlFunction("period_diff"),
    SqlFunction("quarter", ("quarter",), ("quarter",)),
    SqlFunction("sec_to_time"),
    SqlFunction("second", ("second",), ("second",)),
    SqlFunction("str_to_date", ("strtodate",), ("strptime",)),
    SqlFunction("subdate"),
    SqlFunction("sysdate", engine=("now",)),
    SqlFunction("time", ("time",)),
    SqlFunction("time_format"),
    SqlFunction("time_to_sec"),
    SqlFunction("timediff"),
    SqlFunction("timestamp", ("timestamp",)),
    SqlFunction("timestampadd", ("timestampadd",)),
    SqlFunction("timestampdiff", ("timestampdiff",), ("datesub", "date_diff")),
    SqlFunction("to_days", ("datediff",), ("date_diff",)),
    SqlFunction("unix_timestamp"),
    SqlFunction("utc_date", ("utcdate",)),
    SqlFunction("utc_time", ("utctime",)),
    SqlFunction("utc_timestamp", ("utctimestamp",)),
    SqlFunction("week", ("week",), ("week",)),
    SqlFunction("weekday", engine=("date_part",)),
    SqlFunction("weekofyear", ("weekofyear",), ("weekofyear",)),
    SqlFunction("year", ("year",), ("year",)),
    SqlFunction("yearweek"),
)
CHOICES = (
    SqlFunction("cast"),
    SqlFunction("coalesce", ("coalesce",), ("coalesce",)),
    SqlFunction("if", engine=("if",)),
    SqlFunction("ifnull", ("coalesce",), ("ifnull",)),
    SqlFunction("isnull"),
    SqlFunction("nullif", ("nullif",), ("nullif",)),
)
_OTHER_AGGREGATES = (
    SqlFunction("any_value", ("anyvalue",), ("any_value",)),
    SqlFunction("grouping", ("grouping",), ("grouping",)),
    SqlFunction("std", ("stddevpop",), ("stddev_pop",)),
    SqlFunction("stddev", ("stddevpop", "stddev"), ("stddev", "stddev_pop")),
    SqlFunction("variance", ("variancepop",), ("variance", "var_pop")),
)


def aggregate_rows(declared: Iterable[Aggregate]) -> tuple[SqlFunction, ...]:
    """Return the rows of functions that cubes declare. COUNT(DISTINCT …) is in the row of COUNT."""
    rows: dict[str, SqlFunction] = {}
    in_count: list[str] = []
    for each in declared:
        if each.in_count:
            in_count += each.engine_functions
        else:
            rows[each.sql_key] = SqlFunction(each.title.lower(), (each.sql_key,), each.engine_functions)
    if in_count:
        count = rows["count"]
        rows["count"] = count._replace(engine=tuple(dict.fromkeys((*count.engine, *in_count))))
    return tuple(rows.values())


AGGREGATES = tuple(
    sorted((*_OTHER_AGGREGATES, *aggregate_rows(DECLARED.values()), *aggregate_rows(SKETCH_BYTES)))
)
WINDOWS = (
    SqlFunction("cume_dist", ("cumedist",), ("cume_dist",)),
    SqlFunction("dense_rank", ("denserank",), ("dense_rank",)),
    SqlFunction("first_value", ("firstvalue",), ("first_value",)),
    SqlFunction("lag", ("lag",), ("lag",)),
    SqlFunction("last_value", ("lastvalue",), ("last_value",)),
    SqlFunction("lead", ("lead",), ("lead",)),
    SqlFunction("nth_value", ("nthvalue",), ("nth_value",)),
    SqlFunction("ntile", ("ntile",), ("ntile",)),
    SqlFunction("percent_rank", ("percentrank",), ("percent_rank",)),
    SqlFunction("rank", ("rank",), ("rank",)),
    SqlFunction("row_number", ("rownumber",), ("row_number",)),
)
SESSION = (
    SqlFunction("connection_id"),
    SqlFunction("current_user", ("currentuser",)),
    SqlFunction("database", ("currentschema", "currentdatabase")),
    SqlFunction("found_rows"),
    SqlFunction("last_insert_id"),
    SqlFunction("row_count"),
    SqlFunction("schema", ("currentschema",)),
    SqlFunction("session_user", ("sessionuser",)),
    SqlFunction("system_user"),
    SqlFunction("user"),
    SqlFunction("version", ("currentversion",)),
)
SKETCHES = (
    SqlFunction("bitmap_count", ("bitmapcount",), (BITMAP_SIZE,)),
    SqlFunction("bitmap_union"),
    SqlFunction("bitmap_union_count", engine=(BITMAP_SIZE,)),
    SqlFunction("hll_cardinality", engine=(HLL_ESTIMATE, "list_value")),
    SqlFunction("hll_raw_agg"),
    SqlFunction("hll_union"),
    SqlFunction("hll_union_agg", engine=(HLL_ESTIMATE, "list")),
    SqlFunction("ndv", engine=(HLL_ESTIMATE, "list")),
)
ROWS = (*TEXTS, *NUMBERS, *TIMES, *CHOICES, *AGGREGATES, *WINDOWS, *SESSION, *SKETCHES)
NODE_KEYS = frozenset(key for row in ROWS for key in row.nodes)
ENGINE_NAMES = frozenset(name for row in ROWS for name in row.engine)

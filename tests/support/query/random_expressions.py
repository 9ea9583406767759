"""Random expressions over literals and over typed columns that hold NULLs and extremes, as MySQL writes them.

A seed gives the same statements for ever. Each statement shows one or a few expressions of `samples`, selects
rows of it by a condition, aggregates one, or joins the table with itself on row values.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
from rtolap.model.table import Column, Lookup

SAMPLES = Lookup(
    name="samples",
    file="samples.parquet",
    columns=(
        Column("id", "int"),
        Column("i", "int"),
        Column("b", "bigint"),
        Column("d", "decimal(12,3)"),
        Column("f", "double"),
        Column("s", "string"),
        Column("n", "string"),
        Column("dt", "date"),
        Column("ts", "timestamp"),
        Column("o", "boolean"),
    ),
)
_DECIMALS = ("0", "1.5", "-2.25", "7", None, "999999999.999", "-0.004", "12.5")
SAMPLE_ROWS = pa.table(
    {
        "id": pa.array(range(1, 9), pa.int32()),
        "i": pa.array([0, 1, -1, 7, None, 2_147_483_647, -2_147_483_648, 12], pa.int32()),
        "b": pa.array([5, 0, None, -3, 1, 2**63 - 1, 1 - 2**63, 64], pa.int64()),
        "d": pa.array(
            [Decimal(x) if x else None for x in _DECIMALS],
            pa.decimal128(12, 3),
        ),
        "f": pa.array([0.0, 1.5, -2.5, None, 1e-7, 1e20, 0.1, 123456.789], pa.float64()),
        "s": pa.array(["", "abc", "Äöü ß", None, "  x y  ", "日本 😀", "a,b,,c", "xxAbcxx"]),
        "n": pa.array(["0", "12", "-1.50", "1e3", None, " 7 ", "abc", "007"]),
        "dt": pa.array(
            [date(2024, 2, 29), date(1999, 12, 31), None, date(2013, 1, 1), date(1970, 1, 1),
             date(9999, 12, 31), date(1000, 1, 1), date(2026, 11, 25)],
            pa.date32(),
        ),
        "ts": pa.array(
            [datetime(2024, 2, 29, 23, 59, 59), datetime(1999, 12, 31), datetime(2013, 1, 1, 5, 6, 7), None,
             datetime(1970, 1, 1, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59), datetime(1000, 1, 1, 12),
             datetime(2026, 11, 25, 13, 14, 15)],
            pa.timestamp("us"),
        ),
        "o": pa.array([True, False, None, True, False, None, True, False]),
    }
)  # fmt: skip
_TEXTS = (
    "",
    "a",
    "abc",
    "ABC",
    "Äöü",
    "日本 😀",
    "  x ",
    "xx",
    "a,b,,c",
    "http://x.y/http://",
    "%",
    r"a_b",
    "0abc",
    "hhttp",
)
_NUMERIC = ("0", "1", "-1", "12.50", "1e2", " 3 ", "007", "2.5")
_DATES = ("2024-02-29", "1999-12-31", "2013-01-01", "9999-12-31", "1000-01-01", "1970-01-01", "2026-03-31")
_TIMES = ("00:00:00", "23:59:59", "05:06:07", "12:30:00")
_PATTERNS = ("a%", "%b%", "_", "%", "", r"a\_b", "%ö%", "x_%")
_REGEXES = (
    "^a",
    "[[:alpha:]]+",
    "[a-c]",
    "b$",
    "x|y",
    "^$",
    ".",
    "[^a-z]",
    r"\\d",
    r"\\w+",
    "[[:upper:]]",
    "(x)+",
)
_UNITS = ("day", "week", "month", "quarter", "year", "hour", "minute", "second")
_TEXT_LENGTHS = ("char_length", "length", "octet_length", "bit_length", "ascii", "ord")
_OF_TEXTS = ("trim", "ltrim", "rtrim", "reverse", "upper", "lower", "hex", "md5", "sha1", "to_base64")
_OF_DOUBLES = (
    *("sqrt", "ln", "exp", "sin", "cos", "tan", "atan", "degrees", "radians", "log2", "log10", "cot"),
    *("acos", "asin"),
)
_FORMATS = (
    *("%Y-%m-%d", "%H:%i:%s", "%W %M %e", "%j %y", "%a %b %D", "%T %p %r", "%f", "%k %l %I", "%c", "%%x"),
    *("%U", "%x %v"),
)
_STEPS = ("40", "1000", "-13", "8000", "-99999999", "-0.4", "2.0", "'3'", "'-2'", "2147483647", "(i div 2)")
COMPARED = ("=", "<>", "<", "<=", ">", ">=", "<=>")


def random_expression_statement(rng: random.Random) -> str:
    return _Writer(rng).statement()


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._is_constant = False

    def statement(self) -> str:
        r = self._rng
        depth = r.choice((1, 1, 2, 2, 3))
        match r.randrange(10):
            case 0 | 1:
                self._is_constant = True
                return f"select {self._any(depth)} as a0"
            case 2:
                return f"select id from samples where {self._condition(depth)}"
            case 3:
                return f"select {self._aggregate()} as a0 from samples where {self._condition(1)}"
            case 4:
                return f"select x.id, y.id as other from samples x join samples y on {self._row_join()}"
            case 5:
                return f"select id, {self._condition(2)} as a0 from samples"
            case 6 if r.random() < 0.2:
                step = r.choice(("'1.25'", "0.5", "-0.125", "(d % 2)", "(f / 8)", "1.000001", "'-3.5'"))
                quotient = f"{self._exact(0)} / {self._exact(0)}"
                return f"select id, (ts + interval {step} second) as a0, {quotient} as a1 from samples"
            case _:
                return f"select id, {self._any(depth)} as a0 from samples"

    def _pick(self, depth: int, *makers: Callable[[int], str]) -> str:
        return self._rng.choice(makers)(depth)

    def _any(self, depth: int) -> str:
        return self._pick(
            depth, self._integer, self._integer, self._decimal, self._double, self._text, self._text,
            self._day, self._moment, self._boolean, self._boolean, self._bits, self._time,
        )  # fmt: skip

    def _number(self, depth: int) -> str:
        return self._pick(depth, self._integer, self._decimal, self._double)

    def _column_or(self, column: str, *literals: str) -> str:
        if self._is_constant or self._rng.random() < 0.4:
            return "null" if self._rng.random() < 0.08 else self._rng.choice(literals)
        return column

    # integers

    def _whole(self) -> str:
        return self._column_or(
            self._rng.choice("iiib"),
            *map(str, (0, 1, -1, 2, 3, 7, -7, 10, 64, 100, 255, 65, 2147483647, -2147483648)),
        )

    def _small(self) -> str:
        return str(self._rng.choice((-3, -2, -1, 0, 1, 1, 2, 2, 3, 4, 5, 9)))

    def _integer(self, depth: int) -> str:
        r = self._rng
        if depth <= 0 or r.random() < 0.15:
            return self._whole()
        down = depth - 1
        match r.randrange(27):
            case 0 | 1:
                return f"({self._integer(down)} {r.choice('+-*')} {self._integer(down)})"
            case 2:
                return f"({self._number(down)} div {self._number(down)})"
            case 3:
                return f"({self._integer(down)} % {self._integer(down)})"
            case 4:
                return f"{r.choice(('abs', '-', 'sign'))}({self._integer(down)})"
            case 5:
                return f"cast({self._castable(down)} as {r.choice(('signed', 'unsigned'))})"
            case 6:
                return f"{r.choice(_TEXT_LENGTHS)}({self._text(down)})"
            case 7:
                return f"{r.choice(('locate', 'instr'))}({self._text(down)}, {self._text(down)})"
            case 8:
                return f"locate(concat({self._text(down)}, 'b'), {self._text(down)}, {self._small()})"
            case 9:
                kind = r.choice((self._text, self._integer, self._decimal, self._double))
                return f"field({', '.join(kind(0) for _ in range(r.randint(2, 4)))})"
            case 10:
                return f"field({', '.join(self._any(0) for _ in range(r.randint(2, 4)))})"
            case 11:
                return f"find_in_set({self._text(0)}, {self._text(0)})"
            case 12 | 13:
                part = r.choice(
                    ("year", "month", "day", "dayofweek", "dayofyear", "quarter", "weekday", "weekofyear",
                     "week", "to_days", "dayofmonth", "hour", "minute", "second", "microsecond")
                )  # fmt: skip
                return f"{part}({self._temporal(down)})"
            case 14:
                return f"extract({r.choice((*_UNITS, 'microsecond'))} from {self._temporal(down)})"
            case 15:
                return f"datediff({self._temporal(down)}, {self._temporal(down)})"
            case 16:
                moments = f"{self._temporal(down)}, {self._temporal(down)}"
                return f"timestampdiff({r.choice((*_UNITS, 'microsecond'))}, {moments})"
            case 17:
                return f"{r.choice(('floor', 'ceil', 'round'))}({self._number(down)})"
            case 18 | 19:
                return self._choice(self._integer, down)
            case 20:
                return f"({self._boolean(down)} + {self._integer(down)})"
            case 21:
                return f"{r.choice(('greatest', 'least'))}({self._integer(down)}, {self._integer(down)})"
            case 22:
                return f"mod({self._integer(down)}, {self._small()})"
            case 23:
                return f"round({self._integer(down)}, {self._small()})"
            case 24:
                return f"truncate({self._integer(down)}, {self._small()})"
            case 25:
                return f"unix_timestamp({self._column_or('dt', *(_quoted(day) for day in _DATES))})"
            case _:
                return self._bits(down)

    def _bits(self, depth: int) -> str:
        r = self._rng
        down = depth - 1
        operand = self._integer if r.random() < 0.75 else self._number
        match r.randrange(6):
            case 0:
                return f"(~{operand(down)})"
            case 1:
                count = r.choice((self._small(), str(r.choice((31, 32, 63, 64, 65))), "(abs(i) % 70)"))
                return f"({operand(down)} {r.choice(('<<', '>>'))} {count})"
            case _:
                return f"({operand(down)} {r.choice('&|^')} {operand(down)})"

    # decimals and doubles

    def _decimal(self, depth: int) -> str:
        r = self._rng
        if depth <= 0 or r.random() < 0.2:
            return self._column_or("d", "0.5", "-1.25", "2.50", "3.0", "0.004", "100.1", "-7.5", "0.1")
        down = depth - 1
        match r.randrange(9):
            case 0 | 1:
                return f"({self._decimal(down)} {r.choice('+-*')} {self._exact(down)})"
            case 2:
                return f"(abs({self._exact(down)}) % {self._decimal(down)})"
            case 3:
                return f"{r.choice(('round', 'truncate'))}({self._decimal(down)}, {self._small()})"
            case 4:
                size = r.choice(("10, 2", "12, 4", "20, 0", "6, 3", "5"))
                return f"cast({self._castable(down)} as decimal({size}))"
            case 5:
                return self._choice(self._decimal, down)
            case 6:
                return f"{r.choice(('greatest', 'least'))}({self._decimal(down)}, {self._exact(down)})"
            case 7:
                return f"({self._integer(down)} + {self._decimal(down)})"
            case _:
                return f"{r.choice(('abs', '-'))}({self._decimal(down)})"

    def _exact(self, depth: int) -> str:
        return self._pick(depth, self._integer, self._decimal)

    def _double(self, depth: int) -> str:
        r = self._rng
        if depth <= 0 or r.random() < 0.2:
            return self._column_or(
                "f", "0e0", "1.5e0", "-2.5e0", "1e-7", "1e20", "0.1e0", "1e16", "1e15", "123456.789e0", "1e-5"
            )
        down = depth - 1
        match r.randrange(9):
            case 0 | 1:
                if r.random() < 0.3:
                    return f"({self._number(down)} / {self._column_or('f', '2.5e0', '-1e-5')})"
                return f"({self._double(down)} {r.choice('+-*')} {self._number(down)})"
            case 2:
                return f"{r.choice(_OF_DOUBLES)}({self._number(down)})"
            case 3:
                return f"{r.choice(('pow', 'log', 'atan2'))}({self._number(0)}, {self._number(0)})"
            case 4:
                return f"round({self._double(down)}, {self._small()})"
            case 5:
                return self._choice(self._double, down)
            case 6:
                return f"cast({self._castable(down)} as double)"
            case 7:
                return f"({self._numeric_text(down)} {r.choice('+-*/')} {self._number(down)})"
            case _:
                return f"truncate({self._double(down)}, {self._small()})"

    # texts

    def _numeric_text(self, depth: int) -> str:
        return self._column_or("n", *map(_quoted, _NUMERIC))

    def _castable(self, depth: int) -> str:
        return self._pick(
            depth, self._integer, self._decimal, self._double, self._numeric_text, self._boolean
        )

    def _text(self, depth: int) -> str:
        r = self._rng
        if depth <= 0 or r.random() < 0.15:
            return self._column_or(r.choice("ssn"), *map(_quoted, _TEXTS))
        down = depth - 1
        match r.randrange(35):
            case 0:
                return f"{r.choice(('left', 'right'))}({self._text(down)}, {self._small()})"
            case 1:
                return f"substring({self._text(down)}, {self._small()})"
            case 2:
                return f"substring({self._text(down)}, {self._small()}, {self._small()})"
            case 3 | 4:
                return f"concat({self._any(down)}, '-', {self._text(down)})"
            case 5:
                return f"concat_ws({self._text(0)}, {self._any(down)}, {self._text(down)}, null)"
            case 6 | 7:
                return f"cast({self._any(down)} as char)"
            case 8:
                return f"cast({self._any(down)} as char({r.choice((1, 3, 5, 10))}))"
            case 9:
                return f"{r.choice(('lpad', 'rpad'))}({self._text(down)}, {self._small()}, {self._text(0)})"
            case 10:
                return f"replace({self._text(down)}, {self._text(0)}, {self._text(0)})"
            case 11 | 12:
                side = r.choice(("leading", "trailing", "both"))
                part = _quoted(r.choice(("x", "xx", "http://", "a", " ", "ab", "Ä", "")))
                return f"trim({side} {part} from {self._text(down)})"
            case 13:
                return f"{r.choice(_OF_TEXTS)}({self._text(down)})"
            case 14:
                return f"insert({self._text(down)}, {self._small()}, {self._small()}, {self._text(0)})"
            case 15:
                return f"repeat({self._text(down)}, {self._small()})"
            case 16:
                return f"substring_index({self._text(down)}, {self._text(0)}, {self._small()})"
            case 17 | 18:
                return self._choice(self._text, down)
            case 19:
                return f"date_format({self._temporal(down)}, {_quoted(r.choice(_FORMATS))})"
            case 20:
                return f"{r.choice(('dayname', 'monthname'))}({self._temporal(down)})"
            case 21:
                if r.random() < 0.5:
                    return f"hex({self._pick(down, self._number, self._boolean, self._day)})"
                return f"bin({self._pick(down, self._integer, self._numeric_text)})"
            case 22:
                return f"concat(round({self._double(down)}, {r.choice((0, 1, 2, 4))}), 'x')"
            case 23:
                return f"if({self._condition(down)}, {self._any(down)}, {self._text(down)})"
            case 24:
                return f"coalesce({self._any(down)}, {self._any(down)})"
            case 25:
                return f"char({self._whole()}, 65)"
            case 26:
                return f"regexp_replace({self._text(0)}, {_quoted(r.choice(_REGEXES))}, {self._text(0)})"
            case 27:
                first = f"cast({self._any(down)} as char({r.choice((2, 4, 8))}))"
                return f"cast({first} as {r.choice(('signed', 'char(3)', 'decimal(8, 2)'))})"
            case 28:
                return f"({self._text(down)} || {self._any(down)})"
            case 29:
                return f"{r.choice(('greatest', 'least'))}({self._text(down)}, {self._text(down)})"
            case 30:
                return f"concat('<', space({self._small()}), '>')"
            case 34:
                path = r.choice(("$.a", "$.b[1]", "$.c"))  # a list or an object has other spaces
                document = _quoted(r.choice(('{"a": 1, "b": [2, "x"]}', '{"a": null}', '["é"]')))
                # MariaDB compares what comes out of JSON otherwise than a text, and refuses both together
                return f"cast(json_unquote(json_extract({document}, '{path}')) as char)"
            case 31:
                return f"from_base64(to_base64({self._text(0)}))"
            case 32:
                return f"unhex(hex({self._text(0)}))"
            case _:
                return f"nullif({self._text(down)}, {self._text(0)})"

    # moments

    def _day(self, depth: int) -> str:
        r = self._rng
        if depth <= 0 or r.random() < 0.2:
            return self._column_or("dt", *(f"date '{day}'" for day in _DATES))
        down = depth - 1
        match r.randrange(7):
            case 0 | 1:
                return self._moved(self._day(down), _UNITS[:5], down)
            case 2:
                return f"last_day({self._temporal(down)})"
            case 3:
                return f"date({self._temporal(down)})"
            case 4:
                return self._choice(self._day, down)
            case 5:
                return f"cast({self._temporal(down)} as date)"
            case _:
                return f"{r.choice(('adddate', 'subdate'))}({self._day(down)}, {self._small()})"

    def _moment(self, depth: int) -> str:
        r = self._rng
        if depth <= 0 or r.random() < 0.2:
            return self._column_or(
                "ts", *(f"timestamp '{day} {time}'" for day in _DATES[:4] for time in _TIMES)
            )
        down = depth - 1
        match r.randrange(5):
            case 0 | 1 | 2:
                return self._moved(self._moment(down), _UNITS, down)
            case 3:
                return self._choice(self._moment, down)
            case _:
                return f"cast({self._temporal(down)} as {r.choice(('datetime', 'datetime'))})"

    def _time(self, depth: int) -> str:
        r = self._rng
        down = depth - 1
        match r.randrange(4):
            case 0:
                return f"time({self._moment(down)})"
            case 1:
                return f"timediff({self._moment(down)}, {self._moment(down)})"
            case 2:
                return f"time '{r.choice(('10:00:00', '-01:02:03', '100:00:01'))}'"
            case _:
                return f"maketime({r.choice((0, 5, 23))}, {r.choice((0, 30, 59))}, {r.choice((0, 1, 59))})"

    def _temporal(self, depth: int) -> str:
        r = self._rng
        if r.random() < 0.15:
            return _quoted(r.choice((r.choice(_DATES), f"{r.choice(_DATES)} {r.choice(_TIMES)}")))
        return self._pick(depth, self._day, self._moment)

    def _moved(self, moment: str, units: tuple[str, ...], depth: int) -> str:
        r = self._rng
        unit = r.choice(units)
        step = r.choice((self._small(), self._small(), r.choice(_STEPS), f"({self._whole()} % 50)"))
        if unit == "second":  # a text makes fractions of it, which MariaDB shows of 838:59:59 too
            step = step.replace("'", "").replace("-0.4", "4").replace("2.0", "2").replace("(d % 9)", "9")
        match r.randrange(4):
            case 0:
                return f"date_add({moment}, interval {step} {unit})"
            case 1:
                return f"date_sub({moment}, interval {step} {unit})"
            case 2:
                return f"({moment} {r.choice('+-')} interval {step} {unit})"
            case _:
                return f"timestampadd({unit}, {step}, {moment})"

    # conditions

    def _boolean(self, depth: int) -> str:
        r = self._rng
        if depth <= 0:
            return self._column_or("o", "true", "false")
        down = depth - 1
        match r.choice((0, 1, 2, 3, 4, *range(10, 25))):
            case 0 | 1:
                kind = r.choice(
                    (
                        self._integer,
                        self._decimal,
                        self._double,
                        self._text,
                        self._day,
                        self._moment,
                        self._boolean,
                        self._time,
                    )
                )
                return f"({kind(down)} {r.choice(COMPARED)} {kind(down)})"
            case 2:
                return f"({self._number(down)} {r.choice(COMPARED)} {self._number(down)})"
            case 3:
                return f"({self._number(down)} {r.choice(COMPARED)} {self._numeric_text(down)})"
            case 4:
                return f"({self._temporal(down)} {r.choice(COMPARED)} {self._temporal(down)})"
            case 10:
                kind = r.choice(
                    (self._integer, self._decimal, self._double, self._text, self._day, self._moment)
                )
                found = ", ".join(kind(0) for _ in range(r.randint(1, 3)))
                return f"({kind(down)} {r.choice(('in', 'not in'))} ({found}))"
            case 11:
                kind = r.choice((self._number, self._text, self._temporal))
                return f"({kind(down)} {r.choice(('between', 'not between'))} {kind(down)} and {kind(down)})"
            case 12:
                return f"({self._any(down)} is {r.choice(('null', 'not null'))})"
            case 13:
                return f"({self._text(down)} {r.choice(('like', 'not like'))} {_quoted(r.choice(_PATTERNS))})"
            case 14:
                return (
                    f"({self._text(down)} {r.choice(('regexp', 'not regexp'))} {_quoted(r.choice(_REGEXES))})"
                )
            case 15 | 16:
                return f"({self._boolean(down)} {r.choice(('and', 'or', 'xor'))} {self._boolean(down)})"
            case 17:
                return f"(not {self._boolean(down)})"
            case 18:
                truth = r.choice(("true", "false", "null"))
                return f"({self._boolean(down)} is {r.choice(('', 'not '))}{truth})"
            case 19:
                return f"isnull({self._any(down)})"
            case 20:
                return self._choice(self._boolean, down)
            case 22:
                return f"({self._any(0)} {r.choice(COMPARED)} {self._any(0)})"
            case 23:
                found = ", ".join(self._any(0) for _ in range(r.randint(1, 3)))
                return f"({self._any(0)} {r.choice(('in', 'not in'))} ({found}))"
            case 24:
                written = self._column_or("s", *(_quoted(day) for day in _DATES), "'2013-01-01 05:06:07'")
                return f"({self._temporal(down)} {r.choice(COMPARED)} {written})"
            case _:
                return f"({self._boolean(down)} {r.choice(COMPARED)} {self._number(down)})"

    def _condition(self, depth: int) -> str:
        """Return a condition in which only rows stand: MariaDB takes a comparison of rows for one that is
        never NULL, so that `IS NULL` and COALESCE of it are wrong there."""
        r = self._rng
        match r.randrange(8):
            case 0 | 1 | 2:
                return self._row_comparison()
            case 3:
                return self._row_in()
            case 4 if depth > 0:
                return (
                    f"({self._condition(depth - 1)} {r.choice(('and', 'or'))} {self._condition(depth - 1)})"
                )
            case 5 if depth > 0:
                return f"(not {self._condition(depth - 1)})"
            case _:
                return self._boolean(depth)

    def _row(self, kinds: list[Callable[[int], str]]) -> str:
        return "(" + ", ".join("null" if self._rng.random() < 0.2 else kind(0) for kind in kinds) + ")"

    def _kinds(self) -> list[Callable[[int], str]]:
        kinds = (
            self._integer,
            self._integer,
            self._number,
            self._text,
            self._day,
            self._moment,
            self._boolean,
        )
        return [self._rng.choice(kinds) for _ in range(self._rng.choice((2, 2, 3)))]

    def _row_comparison(self) -> str:
        kinds = self._kinds()
        return f"({self._row(kinds)} {self._rng.choice(COMPARED)} {self._row(kinds)})"

    def _row_in(self) -> str:
        kinds = self._kinds()
        rows = ", ".join(self._row(kinds) for _ in range(self._rng.randint(1, 3)))
        if self._rng.random() < 0.2:
            return f"((1, 'a') {self._rng.choice(('in', 'not in'))} (select i, s from samples))"
        if self._rng.random() < 0.2:
            pairs = ", ".join(f"({self._small()}, {_quoted(self._rng.choice(_TEXTS))})" for _ in range(12))
            return f"(({self._whole()}, {self._text(0)}) {self._rng.choice(('in', 'not in'))} ({pairs}))"
        return f"({self._row(kinds)} {self._rng.choice(('in', 'not in'))} ({rows}))"

    def _row_join(self) -> str:
        columns = self._rng.sample(("i", "d", "s", "dt", "ts", "o", "b", "n"), 2)
        sides = [", ".join(f"{alias}.{column}" for column in columns) for alias in "xy"]
        return f"({sides[0]}) {self._rng.choice(COMPARED)} ({sides[1]})"

    def _choice(self, kind: Callable[[int], str], depth: int) -> str:
        r = self._rng
        match r.randrange(5):
            case 0:
                return f"if({self._condition(depth)}, {kind(depth)}, {kind(depth)})"
            case 1:
                return f"coalesce({kind(depth)}, {kind(depth)})"
            case 2:
                return f"case when {self._condition(depth)} then {kind(depth)} else {kind(depth)} end"
            case 3:
                branches = " ".join(f"when {self._any(0)} then {kind(depth)}" for _ in range(2))
                return f"case {self._any(0)} {branches} end"
            case _:
                return f"{r.choice(('ifnull', 'nullif'))}({kind(depth)}, {kind(depth)})"

    # totals

    def _aggregate(self) -> str:
        r = self._rng
        match r.randrange(10):
            case 0 | 1:
                return f"{r.choice(('bit_or', 'bit_and', 'bit_xor'))}({self._integer(1)})"
            case 2:
                return f"count({r.choice(('', 'distinct '))}{self._any(1)})"
            case 3:
                return f"sum({self._number(1)})"
            case 4:
                return f"avg({self._number(1)})"
            case 5 | 6:
                return f"{r.choice(('min', 'max'))}({self._any(2)})"
            case 7:
                return f"group_concat({self._any(1)} order by id)"
            case 8:
                return f"count(distinct {self._integer(1)}, {self._text(1)})"
            case _:
                return f"{r.choice(('std', 'variance', 'stddev_samp', 'var_samp'))}(f)"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

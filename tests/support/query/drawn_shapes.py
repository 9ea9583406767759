"""Statements drawn as shapes, each filled several times with other literals of every kind that SQL has.

A shape is a text with holes: `{text}`, `{number}`, `{day}` and the others of `_KINDS` each take a literal,
written in the text or bound to a question mark, and `{texts}` and `{numbers}` a list of any length.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple

_HOLE = re.compile(r"\{(\w+)\}")
_TEXTS = (
    *("AA", "UA", "DL", "aa", "é'\"%_", "日本 😀", "JFK", "LGA", "EWR", "x y", "AA ", "null", "true", "a%_b"),
    *(
        "it's",
        "back\\slash",
        "100%",
        "_",
        "%",
        "É",
        "e\u0301",
        "1e3",
        "a;b",
        "-- no",
        "/*",
        "?",
        ":p",
        "Zq0x",
    ),
)
_ODD_TEXTS = (
    "",
    " ",
    "5",
    "-5",
    "5.0",
    "1.00",
    "2013-01-02",
    "2013-01-02 06:00:00",
    "20130102",
    "06:00",
    "0x1",
)
_NUMBERS = ("0", "1", "-1", "2", "-2", "1.0", "1.00", "1e0", "0.5", "-0.0", "0.0", "1.5", "+1", "00", "10")
_ALIKE = (("1", "1.0", "1.00", "1e0", "TRUE"), ("0", "0.0", "-0.0", "00", "FALSE"), ("10", "1e1", "10.0"))
_LARGE = (
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e300",
    "99999999999999999999.5",
)
_DAYS = ("2013-01-01", "2013-01-02", "2013-01-03", "2012-12-31", "2013-02-28", "1970-01-01", "9999-12-31")
_CLOCKS = ("00:00:00", "05:30:00", "06:00:00", "23:59:59", "12:00:00.5")
_PATTERNS = ("A%", "%A", "%", "_A", "a%", "é%", "%!%%", "!_%", "%!!%", "__", "J_K", "")
_OF_TEXT = ("=", "<>", "<", ">=", "<=>", "LIKE", "NOT LIKE", "!=")
_OF_NUMBER = ("=", "<>", "<", ">", ">=", "<=", "<=>")
_LIST_MAX = 6
_ODD = 0.04  # of the texts are read as something else; of the numbers are large; of any are NULL


class Filled(NamedTuple):
    """One statement of a shape, with the values of its question marks."""

    sql: str
    values: tuple[object, ...]


CONDITIONS = (
    *("{t} {to} {text}", "{t} IN ({texts})", "{t} NOT IN ({texts})", "NOT {t} {to} {text}") * 4,
    *("{t} = {text} AND {n} {no} {number}", "{t} = {text} OR {n} = {number}", "{n} IN ({numbers})"),
    *("{n} {no} {number}", "{n} NOT IN ({numbers})", "{n} BETWEEN {number} AND {number}", "{text} = {t}"),
    *("{t} LIKE {pattern} ESCAPE '!'", "{t} NOT LIKE {pattern} ESCAPE '!'", "{t} LIKE {pattern}"),
    *("{m} >= {moment}", "{m} >= {moment} AND {m} < {moment}", "flown_on {no} {day}", "flown_on IN ({days})"),
    *("{m} < DATE_ADD({moment}, INTERVAL {count} {unit})", "on_time = {truth}", "on_time IS {truth_word}"),
    *("DATE({m}) = {day}", "TIME(hour_start) >= {clock}", "HOUR(hour_start) = {count}", "{n} <=> {null}"),
    *(
        "{t} = {text} AND {t} <> {text}",
        "COALESCE({t}, {text}) = {text}",
        *("carrier = CONCAT({number}, '')", "carrier = CAST({number} AS CHAR)") * 2,
        "{t} > CONCAT({text}, {text})",
    ),
    *("CAST({text} AS DECIMAL(10,2)) = {n}", "{n} + {number} > {number}", "{t} BETWEEN {text} AND {text}"),
    *("{t} = {any}", "{n} = {any}", "flown_on = {any}", "{m} = {any}", "IF({t} = {text}, {n}, {number}) > 0"),
    *("(carrier, origin) IN (({text}, {text}))", "({t} = {text}) IS TRUE", "{t} = {text} XOR {n} = {number}"),
    "carrier IN (SELECT carrier FROM routes WHERE origin = {text})",
    "EXISTS (SELECT 1 FROM routes r WHERE r.origin = {text} AND r.carrier <> {text})",
)
STATEMENTS = (
    *("SELECT carrier, COUNT(*) FROM flights WHERE {c} GROUP BY carrier",) * 5,
    *("SELECT COUNT(*), SUM(delay), MIN(ts) FROM flights WHERE {c} AND {c}",) * 3,
    *("SELECT carrier c, SUM(price) AS {alias} FROM flights WHERE {c} GROUP BY c",) * 2,
    "SELECT {any}, COUNT(*) FROM flights WHERE {c}",
    "SELECT {any}, {t}, {any} x FROM flights WHERE {c} GROUP BY 2",
    "SELECT {t} = {text}, COUNT(*) FROM flights GROUP BY 1",
    "SELECT carrier, origin, COUNT(*) FROM flights WHERE {c} GROUP BY {place}, {place}, 1, 2",
    "SELECT carrier, origin, COUNT(*) n FROM flights WHERE {c} GROUP BY 1, 2 "
    "ORDER BY {place} DESC, 1, 2, 3 LIMIT {count} OFFSET {count}",
    "SELECT gate, COUNT(*) n FROM flights WHERE {c} GROUP BY gate ORDER BY n, gate LIMIT {count}, {count}",
    "SELECT SUM(IF({t} = {text}, delay, {number})), ROUND(AVG(price), {count}) FROM flights WHERE {c}",
    "SELECT CASE carrier WHEN {text} THEN {number} WHEN {text} THEN {number} END k, COUNT(*) FROM flights "
    "WHERE {c} GROUP BY k",
    "SELECT SUM(delay + {number}), SUM(delay) * {number}, MAX(price) - {number} FROM flights WHERE {c}",
    "SELECT CONCAT(carrier, {text}) t, COUNT(*) FROM flights WHERE {c} GROUP BY t",
    "SELECT GROUP_CONCAT(DISTINCT carrier ORDER BY carrier SEPARATOR {text}) FROM flights WHERE {c}",
    "SELECT DATE_ADD(day_start, INTERVAL {count} {unit}) d, COUNT(*) FROM flights WHERE {c} GROUP BY d",
    "SELECT carrier, COUNT(*) n FROM flights WHERE {c} GROUP BY carrier "
    "HAVING n > {number} AND carrier {to} {text}",
    "SELECT COUNT(*) FROM flights WHERE {c} UNION ALL SELECT COUNT(*) + {number} FROM routes "
    "WHERE origin = {text}",
    "WITH w AS (SELECT {t} o, COUNT(*) n FROM flights WHERE {c} GROUP BY 1) "
    "SELECT o, n, {any} FROM w WHERE o = {text}",
    "SELECT x, n FROM (SELECT origin x, COUNT(*) n FROM flights WHERE {c} GROUP BY origin) q "
    "WHERE x {to} {text}",
    "SELECT f.carrier, COUNT(*) FROM flights f JOIN routes r ON f.origin = r.origin AND r.carrier = {text} "
    "WHERE f.carrier {to} {text} GROUP BY f.carrier",
    "SELECT a.name, COUNT(*) FROM flights f LEFT JOIN airlines a ON f.carrier = a.carrier "
    "AND a.name {to} {text} WHERE f.origin = {text} GROUP BY a.name",
    "SELECT CONCAT({number}, '/', {number}), CAST({number} AS CHAR), COUNT(*) FROM flights WHERE {c}",
    *("SELECT COUNT(*), MAX(gate) FROM flights WHERE carrier = CAST({number} AS CHAR) AND origin <> {text}",)
    * 3,
    *("SELECT origin, COUNT(*) FROM flights WHERE carrier = CAST({any} AS CHAR) GROUP BY origin",) * 2,
    "SELECT {any}, {any}",
    "SELECT COUNT(DISTINCT delay) FILTER (WHERE {t} = {text}) FROM flights WHERE {c}",
)
_COLUMNS = {
    "t": ("carrier", "origin"),
    "n": ("gate", "fare_class", "gate"),
    "m": ("ts", "hour_start", "day_start"),
    "to": _OF_TEXT,
    "no": _OF_NUMBER,
    "unit": ("HOUR", "DAY", "MINUTE", "MONTH"),
}


def drawn_shape(rng: random.Random) -> str:
    """Return a text with holes for literals alone."""
    text = rng.choice(STATEMENTS)
    for kind, choices in {"c": CONDITIONS, **_COLUMNS}.items():
        while f"{{{kind}}}" in text:
            text = text.replace(f"{{{kind}}}", rng.choice(choices), 1)
    return text


def fillings(shape: str, rng: random.Random, count: int, *, bound: bool) -> Iterator[Filled]:
    """Yield statements of a shape, which is no promise that the service finds one: literals that it leaves in
    the text, and lists of other lengths, make shapes of their own.

    `bound`: about half of the literals are question marks.
    """
    is_plain = rng.random() < 0.7
    texts = [each for each in _TEXTS if "'" not in each and "\\" not in each] if is_plain else list(_TEXTS)
    if rng.random() < 0.5:
        texts = rng.sample(texts, 3)  # the same text comes again, and twice in one statement
    holes = [_Hole(bound and rng.random() < 0.6, rng.random() < 0.6) for _ in _HOLE.findall(shape)]
    numbers = rng.choice(_ALIKE) if rng.random() < 0.5 else _NUMBERS
    length = rng.randint(1, 3)
    for _ in range(count):
        drawing = _Drawing(
            rng, texts, numbers, is_plain, length if rng.random() < 0.8 else rng.randint(1, _LIST_MAX)
        )
        yield drawing.filled(shape, holes)


@dataclass
class _Hole:
    """How a hole of a shape is filled.

    Attributes:
        is_bound: its literal is bound to a question mark.
        is_fixed: all statements of the shape have one literal in it. A text is never fixed.
        literal: what the first statement has in a fixed one.
    """

    is_bound: bool
    is_fixed: bool
    literal: object = None


@dataclass
class _Drawing:
    """What the literals of one statement are drawn from."""

    rng: random.Random
    texts: Sequence[str]
    numbers: Sequence[str]
    is_plain: bool
    length: int
    values: list[object] = field(default_factory=list)

    def filled(self, shape: str, holes: Sequence[_Hole]) -> Filled:
        places = iter(holes)
        sql = _HOLE.sub(lambda found: self._of_hole(found.group(1), next(places)), shape)
        return Filled(sql, tuple(self.values))

    def _of_hole(self, kind: str, hole: _Hole) -> str:
        if kind in _LISTS:
            return ", ".join(self._literal(_LISTS[kind], hole.is_bound) for _ in range(self.length))
        if kind == "text" or not hole.is_fixed or kind in _ONLY_WRITTEN:
            return self._literal(kind, hole.is_bound)
        if hole.literal is None:
            hole.literal = (_BOUND if hole.is_bound else _WRITTEN)[kind](self)
        if not hole.is_bound:
            return str(hole.literal)
        self.values.append(hole.literal)
        return "?"

    def _literal(self, kind: str, is_bound: bool) -> str:
        if not is_bound or kind in _ONLY_WRITTEN:
            return _WRITTEN[kind](self)
        self.values.append(_BOUND[kind](self))
        return "?"

    def is_odd(self) -> bool:
        return not self.is_plain and self.rng.random() < _ODD

    def or_null(self, literal: str) -> str:
        return "NULL" if self.is_odd() else literal

    def of(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def text(self) -> str:
        return self.rng.choice(_ODD_TEXTS if self.is_odd() else self.texts)

    def number(self) -> str:
        return self.rng.choice(_LARGE if self.rng.random() < _ODD else self.numbers)

    def bound_number(self) -> object:
        number = self.number()
        if number in ("TRUE", "FALSE"):
            return number == "TRUE"
        if "e" in number:
            return float(number)
        return Decimal(number) if "." in number or self.rng.random() < 0.2 else int(number)

    def moment(self) -> str:
        return f"{self.of(*_DAYS)} {self.of(*_CLOCKS)}"

    def written_text(self) -> str:
        text = self.text()
        return f"'{text}'" if self.is_plain else self.or_null(quoted(text, self.rng))

    def written_moment(self) -> str:
        if self.rng.random() < 0.2:
            return f"'{self.of(*_DAYS)}'"
        return self.of("'{}'", "'{}'", "TIMESTAMP '{}'").format(self.moment())

    def any_kind(self) -> str:
        return self.of("text", "number", "day", "moment", "truth", "null", "text", "number")


def quoted(text: str, rng: random.Random) -> str:
    """Return a text as a literal of MySQL, in one of the ways to write it."""
    escaped = text.replace("\\", "\\\\")
    match rng.randrange(40):
        case 0:
            return '"' + escaped.replace('"', '""') + '"'
        case 1:
            return "'" + escaped.replace("'", "\\'") + "'"
        case 2 if text:
            return f"X'{text.encode().hex()}'"
        case _:
            return "'" + escaped.replace("'", "''") + "'"


_LISTS = {"texts": "text", "numbers": "number", "days": "day"}
_ONLY_WRITTEN = frozenset(("alias", "place", "truth_word"))
_WRITTEN: dict[str, Callable[[_Drawing], str]] = {
    "text": _Drawing.written_text,
    "number": lambda drawing: drawing.or_null(drawing.number()),
    "day": lambda drawing: drawing.or_null(drawing.of("'{}'", "DATE '{}'").format(drawing.of(*_DAYS))),
    "moment": _Drawing.written_moment,
    "clock": lambda drawing: drawing.of("'{}'", "TIME '{}'").format(drawing.of(*_CLOCKS)),
    "pattern": lambda drawing: quoted(drawing.of(*_PATTERNS), drawing.rng),
    "count": lambda drawing: str(drawing.rng.randrange(5)),
    "place": lambda drawing: drawing.of("1", "2"),
    "truth": lambda drawing: drawing.of("TRUE", "FALSE", "1", "0", "NULL", "'1'"),
    "truth_word": lambda drawing: drawing.of("TRUE", "FALSE", "NOT TRUE", "NULL"),
    "null": lambda drawing: drawing.of("NULL", "0"),
    "alias": lambda drawing: drawing.of("a", "`b c`", "'d'", "'AA'", "`AA`", '"e"'),
    "any": lambda drawing: _WRITTEN[drawing.any_kind()](drawing),
}
_BOUND: dict[str, Callable[[_Drawing], object]] = {
    "text": _Drawing.text,
    "number": _Drawing.bound_number,
    "day": lambda drawing: drawing.rng.choice((date.fromisoformat(drawing.of(*_DAYS)), drawing.of(*_DAYS))),
    "moment": lambda drawing: drawing.rng.choice(
        (datetime.fromisoformat(drawing.moment()), drawing.moment())
    ),
    "clock": lambda drawing: drawing.of(*_CLOCKS),
    "pattern": lambda drawing: drawing.of(*_PATTERNS),
    "count": lambda drawing: drawing.rng.randrange(5),
    "truth": lambda drawing: drawing.rng.choice((True, False, 1, 0, None)),
    "null": lambda drawing: drawing.rng.choice((None, 0)),
    "any": lambda drawing: _BOUND[drawing.any_kind()](drawing),
}

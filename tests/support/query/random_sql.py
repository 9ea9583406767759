"""Random statements over the raw columns of `tests.support.cubes.flights`, in what MySQL and we both know.

A seed gives the same statements for ever. Constants are `{}` in the template, so that the same statement can
be sent as text and with its values bound.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

_TIMES = ("", " 00:00:00", " 05:00:00", " 23:59:59")
_PATTERNS = ("J%", "%A", "_F_", "%", r"\%", r"J\_K", r"%\_", "")
COMPARED = ("=", "<>", "<", "<=", ">", ">=", "<=>")


@dataclass(frozen=True)
class RandomStatement:
    """A random statement. `keys` is how many of the first columns say which row it is; `for_oracle` is set
    where the oracle gets another text."""

    template: str
    values: tuple[object, ...]
    keys: int
    for_oracle: str = ""

    @property
    def plain(self) -> str:
        return self.template.format(*map(written, self.values))

    @property
    def oracle(self) -> str:
        """Return the same statement for an exact server."""
        return self.for_oracle or self.plain

    @property
    def prepared(self) -> str:
        return self.template.format(*("?" for _ in self.values))


def random_statement(rng: random.Random) -> RandomStatement:
    return Writer(rng).statement()


class Writer:
    """Builds a template from the left to the right, so that values stand in the order of their marks.

    `days`: ISO dates at and around the events.
    """

    days: tuple[str, ...] = ("2013-01-01", "2013-01-02", "2013-01-03")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._values: list[object] = []

    def statement(self) -> RandomStatement:
        keys = [
            self._pick(self._integer, self._decimal, self._text, self._day, self._moment)
            for _ in range(self._rng.choice((0, 1, 1, 2)))
        ]
        columns = [f"{key} as k{i}" for i, key in enumerate(keys)]
        columns += [f"{self._total()} as a{i}" for i in range(self._rng.randint(1, 3))]
        selected = f"select {', '.join(columns)} from flights"
        condition = f" where {self._condition()}" if self._rng.random() < 0.7 else ""
        groups = f" group by {', '.join(f'k{i}' for i in range(len(keys)))}" if keys else ""
        return RandomStatement(selected + condition + groups, tuple(self._values), len(keys))

    def _value(self, value: object) -> str:
        self._values.append(value)
        return "{}"

    def _pick(self, *makers: Callable[[], str]) -> str:
        return self._rng.choice(makers)()

    def _small(self) -> str:
        return self._value(self._rng.randint(-2, 3))

    def _number(self) -> str:
        return self._value(self._rng.choice((0, 1, -1, 7, 2_147_483_647, 100_000, 3_000_000_000)))

    def _fraction(self) -> str:
        return self._value(Decimal(self._rng.choice(("0.5", "-1.25", "0.0004", "2.50", "3", "1.005"))))

    def _integer(self) -> str:
        r = self._rng
        match r.randrange(13):
            case 0 | 1 | 2:
                return "gate"
            case 3:
                return f"(gate {r.choice('+-*')} {self._number()})"
            case 4:
                return f"abs(gate {r.choice('+-')} {self._small()})"
            case 5:
                return f"(gate {r.choice(('%', 'div'))} {self._small()})"
            case 6:
                return f"coalesce(gate, {self._number()})"
            case 7:
                return f"if({self._simple()}, gate, {self._number()})"
            case 8:
                return "char_length(origin)"
            case 9:
                return f"{r.choice(('year', 'month', 'day', 'dayofweek', 'quarter'))}(flown_on)"
            case 10:
                return f"(on_time + {self._small()})"
            case 11:
                return f"datediff(flown_on, {self._value(r.choice(self.days))})"
            case _:
                return "cast(fare_class as signed)"

    def _decimal(self) -> str:
        r = self._rng
        match r.randrange(8):
            case 0 | 1:
                return "fare_class"
            case 2:
                return f"(fare_class {r.choice('+-*')} {self._fraction()})"
            case 3:
                return f"round(fare_class, {r.choice((0, 1, 2))})"
            case 4:
                return f"truncate(fare_class, {r.choice((0, 1))})"
            case 5:
                return f"case when {self._simple()} then fare_class else {self._fraction()} end"
            case 6:
                return f"ifnull(fare_class, {self._fraction()})"
            case _:
                return f"{r.choice(('greatest', 'least'))}(fare_class, gate)"

    def _text(self) -> str:
        r = self._rng
        match r.randrange(12):
            case 0 | 1 | 2:
                return r.choice(("carrier", "origin"))
            case 3:
                return f"{r.choice(('left', 'right'))}(origin, {self._small()})"
            case 4:
                return f"substring(origin, {self._small()})"
            case 5:
                return f"substring(origin, {self._small()}, {self._small()})"
            case 6:
                return f"concat({r.choice(('gate', 'on_time', 'fare_class', 'flown_on'))}, '-', origin)"
            case 7:
                return (
                    f"cast({r.choice(('gate', 'on_time', 'fare_class', 'flown_on', 'hour_start'))} as char)"
                )
            case 8:
                return f"lpad(origin, {self._small()}, 'x')"
            case 9:
                return f"replace(upper(origin), {self._value('J')}, 'yy')"
            case 10:
                return f"if({self._simple()}, origin, {r.choice(('gate', 'on_time', 'fare_class'))})"
            case _:
                return f"coalesce(origin, {self._value('?')})"

    def _day(self) -> str:
        r = self._rng
        match r.randrange(5):
            case 0 | 1:
                return "flown_on"
            case 2:
                return "date(hour_start)"
            case 3:
                return f"last_day({r.choice(('flown_on', 'day_start'))})"
            case _:
                return (
                    f"date_add(flown_on, interval {r.randint(-40, 40)} {r.choice(('day', 'month', 'year'))})"
                )

    def _moment(self) -> str:
        r = self._rng
        match r.randrange(3):
            case 0:
                return "day_start"
            case 1:
                return "hour_start"
            case _:
                return f"date_add({r.choice(('hour_start', 'flown_on'))}, interval {r.randint(-30, 30)} hour)"

    def _instant(self) -> str:
        written = self._rng.choice(self.days) + self._rng.choice(_TIMES)
        r = self._rng.random()
        if r < 0.2:
            return self._value(datetime.fromisoformat(written))
        return self._value(date.fromisoformat(written[:10]) if r < 0.3 else written)

    def _condition(self) -> str:
        r = self._rng.random()
        if r < 0.6:
            return self._simple()
        if r < 0.7:
            return f"not ({self._simple()})"
        return f"(({self._simple()}) {self._rng.choice(('and', 'or'))} ({self._simple()}))"

    def _simple(self) -> str:
        r = self._rng
        match r.randrange(13):
            case 0:
                return f"gate {r.choice(COMPARED)} {self._small()}"
            case 1:
                return f"gate {r.choice(COMPARED)} {self._value(r.choice(('1', '0.5', '-1.0')))}"
            case 2:
                return f"fare_class {r.choice(COMPARED)} {self._fraction()}"
            case 3:
                return f"origin {r.choice(('like', 'not like'))} {self._value(r.choice(_PATTERNS))}"
            case 4:
                return f"carrier {r.choice(COMPARED)} {self._value(r.choice(('AA', 'ZZ', 'aa', '')))}"
            case 5 | 6:
                return f"{r.choice(('flown_on', 'date(hour_start)'))} {r.choice(COMPARED)} {self._instant()}"
            case 7:
                return f"{r.choice(('hour_start', 'day_start'))} {r.choice(COMPARED)} {self._instant()}"
            case 8:
                return f"flown_on {r.choice(('in', 'not in'))} ({self._instant()}, {self._instant()})"
            case 9:
                column = r.choice(("flown_on", "hour_start"))
                return f"{column} between {self._instant()} and {self._instant()}"
            case 10:
                column = r.choice(("gate", "origin", "fare_class", "flown_on"))
                return f"{column} is {r.choice(('null', 'not null'))}"
            case 11:
                return r.choice(("on_time", "not on_time", "on_time = 1", "on_time <> 0", "on_time is null"))
            case _:
                return f"gate {r.choice(('in', 'not in'))} ({self._small()}, {self._small()})"

    def _total(self) -> str:
        r = self._rng
        match r.randrange(18):
            case 0:
                return "count(*)"
            case 1:
                distinct = ("distinct origin", "distinct delay", "distinct price", "distinct gate, origin")
                return f"count({r.choice(('gate', 'delay', 'carrier', 'price', *distinct))})"
            case 2:
                return f"sum({self._integer()})"
            case 3:
                return f"sum({self._decimal()})"
            case 4:
                value = self._pick(self._integer, self._decimal, self._text, self._day, self._moment)
                return f"{r.choice(('min', 'max'))}({value})"
            case 5:
                return r.choice(("sum(delay)", "sum(price)", "sum(distance)", "max(price)", "min(delay)"))
            case 6:
                return f"sum(coalesce(delay, {self._pick(self._integer, self._small)}))"
            case 7:
                return f"sum(ifnull(price, {self._pick(self._decimal, self._integer, self._fraction)}))"
            case 8:
                return f"sum(case when {self._simple()} then price else {self._fraction()} end)"
            case 9:
                return f"sum(if({self._simple()}, delay, {self._pick(self._integer, self._decimal)}))"
            case 10:
                return f"sum(delay * {self._pick(self._integer, self._decimal)})"
            case 11:
                return f"sum(delay {r.choice('+-')} {self._pick(self._integer, self._decimal)})"
            case 12:
                return f"(max(delay) - min(delay)) * {self._number()}"
            case 13:
                return f"sum(delay) * {self._number()}"
            case 14:
                return f"count({r.choice(('', 'distinct '))}case when {self._simple()} then delay end)"
            case 15:
                return f"max(if({self._simple()}, delay, null))"
            case 16:
                return f"avg({r.choice(('price', 'gate', 'fare_class', 'weight', 'on_time'))})"
            case _:
                return f"sum(price) {r.choice('+-*')} {self._fraction()}"


def written(value: object) -> str:
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, datetime):
        return f"timestamp '{value}'"
    if isinstance(value, date):
        return f"date '{value}'"
    return "'" + str(value) + "'"

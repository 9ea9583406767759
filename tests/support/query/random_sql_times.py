"""Random statements over the cube of `half_hours`.

Beside those of `random_sql` they have weeks from Sunday, half hours, parts of the event time, ranges of it at
any instant, and values of five digits behind the point.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from tests.support.query.random_sql import COMPARED, RandomStatement, Writer, written

_MINUTE = timedelta(minutes=1)
_FIRST = datetime(2013, 11, 2, 22, 0)  # local time, a little before the first event
_SECONDS = 5 * 3600
_UNITS = ("minute", "thirty_minute", "hour", "day", "week")
_FRACTIONS = ("0.00001", "-1.12345", "2.5", "0.333333", "3", "-0.00005")


def random_half_hour_statement(rng: random.Random) -> RandomStatement:
    """Return a statement, sometimes with a range of the event time between any two seconds. The cube keeps
    minutes, so all of the first and of the last minute count, and the oracle is queried so."""
    statement = HalfHourWriter(rng).statement()
    if rng.random() < 0.7:
        return statement
    asked, meant, values = _range(rng)
    head, where, tail = statement.template.partition(" where ")
    if where:
        condition, by, groups = tail.partition(" group by ")
        template = f"{head} where ({condition}) and {{}}{by}{groups}"
    else:
        head, by, groups = statement.template.partition(" group by ")
        template = f"{head} where {{}}{by}{groups}"
    marks = len(statement.values)
    exact = template.format(*map(written, statement.values), meant)
    return replace(
        statement,
        template=template.format(*["{}"] * marks, asked),
        values=(*statement.values, *values),
        for_oracle=exact,
    )


class HalfHourWriter(Writer):
    days = ("2013-11-02", "2013-11-03", "2013-11-04")

    def _integer(self) -> str:
        r = self._rng
        match r.randrange(3):
            case 0:
                part = r.choice(
                    ("hour", "minute", "day", "dayofweek", "week", "year", "weekday", "dayofyear")
                )
                return f"{part}({r.choice(('ts', 'minute_start'))})"
            case 1:
                return r.choice(
                    (
                        f"week({r.choice(('week_start', 'day_start', 'flown_on', 'ts'))})",
                        "datediff(day_start, week_start)",
                        "timestampdiff(minute, hour_start, minute_start)",
                        "timestampdiff(minute, week_start, thirty_minute_start)",
                        "extract(hour from ts)",
                    )
                )
        return super()._integer()

    def _decimal(self) -> str:
        r = self._rng
        match r.randrange(10):
            case 0 | 1:
                return "rate"
            case 2:
                return f"(rate {r.choice('+-*')} {self._fraction()})"
            case 3:
                return f"{r.choice(('round', 'truncate'))}(rate, {r.choice((0, 2, 4, 5))})"
            case 4:
                return f"{r.choice(('greatest', 'least'))}(rate, fare_class)"
            case 5:
                return f"if({self._simple()}, rate, {self._fraction()})"
            case 6:
                return f"abs(rate {r.choice('+-')} gate)"
        return super()._decimal()

    def _fraction(self) -> str:
        if self._rng.random() < 0.5:
            return self._value(Decimal(self._rng.choice(_FRACTIONS)))
        return super()._fraction()

    def _text(self) -> str:
        r = self._rng
        if r.random() < 0.2:
            column = r.choice(("ts", "minute_start", "thirty_minute_start", "week_start"))
            return f"date_format({column}, '{r.choice(('%Y-%m-%d %H:%i', '%a %H', '%W', '%H:%i'))}')"
        return super()._text()

    def _day(self) -> str:
        r = self._rng
        if r.random() < 0.4:
            return r.choice(
                ("date(ts)", "date(week_start)", "date(date_trunc('week', ts))", "last_day(week_start)")
            )
        return super()._day()

    def _moment(self) -> str:
        r = self._rng
        match r.randrange(5):
            case 0:
                return f"{r.choice(_UNITS)}_start"
            case 1 | 2:
                return f"date_trunc('{r.choice(_UNITS)}', ts)"
            case 3:
                unit = r.choice(("day", "hour", "minute"))
                return f"date_add({r.choice(_UNITS)}_start, interval {r.randint(-90, 90)} {unit})"
        return super()._moment()

    def _simple(self) -> str:
        r = self._rng
        match r.randrange(10):
            case 0:
                return f"rate {r.choice(COMPARED)} {self._fraction()}"
            case 1:
                return f"ts {r.choice(('>=', '<'))} {self._minute()}"
            case 2:
                return f"ts >= {self._minute()} and ts < {self._minute()}"
            case 3:
                return f"{r.choice(_UNITS)}_start {r.choice(COMPARED)} {self._minute()}"
            case 4:
                unit = r.choice(("week", "day", "hour"))
                return f"date_trunc('{unit}', ts) {r.choice(COMPARED)} {self._instant()}"
        return super()._simple()

    def _minute(self) -> str:
        at = _FIRST + timedelta(minutes=self._rng.randrange(0, _SECONDS // 60, self._rng.choice((1, 5, 30))))
        return self._value(at if self._rng.random() < 0.4 else str(at))

    def _total(self) -> str:
        r = self._rng
        match r.randrange(18):
            case 0:
                return r.choice(
                    ("sum(toll)", "min(toll)", "max(toll)", "count(toll)", "avg(toll)", "avg(rate)")
                )
            case 1:
                return (
                    f"sum(toll {r.choice('+-*')} {self._pick(self._integer, self._decimal, self._fraction)})"
                )
            case 2:
                return f"sum(case when {self._simple()} then toll else {self._fraction()} end)"
            case 3:
                return f"sum(coalesce(toll, {self._pick(self._decimal, self._fraction, self._small)}))"
            case 4:
                return f"sum(toll) {r.choice('+-*')} {self._fraction()}"
            case 5:
                return f"max(if({self._simple()}, toll, null))"
            case 6:
                return "sum(toll) - sum(price)"
        return super()._total()


def _range(rng: random.Random) -> tuple[str, str, tuple[object, ...]]:
    """Return a condition on the event time, what it means where minutes are kept, and the values of the
    first."""
    low = _FIRST + timedelta(seconds=rng.randrange(_SECONDS))
    high = low + timedelta(seconds=rng.randrange(_SECONDS // 2))
    values = (low, high) if rng.random() < 0.5 else (str(low), str(high))
    begun, beyond = _floor(low), _floor(high) + _MINUTE
    match rng.randrange(6):
        case 0:
            return "ts >= {}", f"ts >= '{begun}'", values[:1]
        case 1:
            return "ts > {}", f"ts >= '{begun}'", values[:1]
        case 2:
            return "ts < {}", f"ts < '{_ceiling(low)}'", values[:1]
        case 3:
            return "ts <= {}", f"ts < '{beyond}'", values[1:]
        case 4:
            return "ts between {} and {}", f"ts >= '{begun}' and ts < '{beyond}'", values
    return "ts >= {} and ts < {}", f"ts >= '{begun}' and ts < '{_ceiling(high)}'", values


def _floor(at: datetime) -> datetime:
    return at.replace(second=0)


def _ceiling(at: datetime) -> datetime:
    return at if at == _floor(at) else _floor(at) + _MINUTE

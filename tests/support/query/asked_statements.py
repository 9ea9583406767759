"""A seeded set of statements over the cube of `service_world`, each with its own plain recount in Python.

Of every kind: roll-ups, windows of time, conditions on values, distinct counts, joins with a lookup.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from tests.support.cubes.builders import START_MS, WINDOW_MS, Event
from tests.support.cubes.recount import VALUES, combine, counted_row, row_of
from tests.support.query.visitors import plain_estimate

Cells = tuple[Any, ...]
KINDS = ("roll-up", "time", "value", "distinct", "join")
OF_EACH_KIND = 3
LOOKUP = "places"
REGIONS = {1: "north", 2: "south", 3: "north", 4: "east"}  # nobody is in 4
_NOTHING: Cells = (0, None, 0, None, None, None, None)


class _Where(NamedTuple):
    """`holds`: where SQL says TRUE, so not where it says NULL."""

    sql: str
    holds: Callable[[Event], bool]


_ALL = _Where("", lambda event: True)
_VALUES = (
    _Where("kind = 'a'", lambda event: event.kind == "a"),
    _Where("kind IN ('b', 'c')", lambda event: event.kind in ("b", "c")),
    _Where("kind IS NULL", lambda event: event.kind is None),
    _Where("place > 1", lambda event: event.place is not None and event.place > 1),
    _Where("place <> 2", lambda event: event.place is not None and event.place != 2),
    _Where("kind = 'c' OR place = 3", lambda event: event.kind == "c" or event.place == 3),
    _Where("NOT (kind = 'a')", lambda event: event.kind is not None and event.kind != "a"),
)
_KEYS: dict[str, Callable[[Event], Any]] = {
    "kind": lambda event: event.kind,
    "place": lambda event: event.place,
    "minute_start": lambda event: _time(event.segment_ms),
}


@dataclass(frozen=True)
class Statement:
    """The first `keys` columns identify a row, the others are numbers. `recount`: of these events."""

    kind: str
    sql: str
    keys: int
    recount: Callable[[Iterable[Event]], list[Cells]]

    def rows(self, found: Iterable[Sequence[Any]]) -> list[Cells]:
        """Return a server's rows, in JSON or by the MySQL protocol, in the form of `recount`."""
        return in_order(
            (*(_key(cell) for cell in row[: self.keys]), *(number(cell) for cell in row[self.keys :]))
            for row in found
        )


def statements(cube: str, random_: random.Random) -> list[Statement]:
    """Return `OF_EACH_KIND` of every kind, in the order of chance; equal for equal seeds."""
    makers = {"distinct": _distinct, "join": _join}
    found = [makers.get(kind, _roll_up)(cube, kind, random_) for kind in KINDS for _ in range(OF_EACH_KIND)]
    random_.shuffle(found)
    return found


def in_order(rows: Iterable[Cells]) -> list[Cells]:
    return sorted(rows, key=lambda row: [(cell is None, str(cell)) for cell in row])


def number(cell: Any) -> Any:
    """Return a number of JSON's texts of decimals and MySQL's Decimals alike; whole ones are ints."""
    if cell is None or isinstance(cell, int):
        return cell
    value = Decimal(str(cell))
    return int(value) if value == value.to_integral_value() else value


def _roll_up(cube: str, kind: str, random_: random.Random) -> Statement:
    names = random_.choice((("kind",), ("place",), ("kind", "place"), ("minute_start", "kind"), ()))
    where = _ALL
    if kind == "time":
        where = _window(random_)
    elif kind == "value":
        where = random_.choice(_VALUES)
    sql = f"SELECT {', '.join((*names, VALUES))} FROM {cube}{_condition(where)}{_group(names)}"

    def recount(events: Iterable[Event]) -> list[Cells]:
        found: dict[Cells, Cells] = {} if names else {(): _NOTHING}
        for event in events:
            if where.holds(event):
                _add(found, tuple(_KEYS[name](event) for name in names), event)
        return in_order((*key, *counted_row(row)) for key, row in found.items())

    return Statement(kind, sql, len(names), recount)


def _distinct(cube: str, kind: str, random_: random.Random) -> Statement:
    where = random_.choice((_ALL, _window(random_), random_.choice(_VALUES)))
    name = random_.choice(("kind", "place"))
    sql = f"SELECT {name}, COUNT(*), APPROX_COUNT_DISTINCT(visitor) FROM {cube}{_condition(where)}"

    def recount(events: Iterable[Event]) -> list[Cells]:
        counts: dict[Any, int] = {}
        visitors: dict[Any, set[str]] = {}
        for event in filter(where.holds, events):
            key = _KEYS[name](event)
            counts[key] = counts.get(key, 0) + 1
            visitors.setdefault(key, set()).update({event.visitor} - {None, ""})  # type: ignore[arg-type]
        return in_order((key, count, round(plain_estimate(visitors[key]))) for key, count in counts.items())

    return Statement(kind, sql + _group((name,)), 1, recount)


def _join(cube: str, kind: str, random_: random.Random) -> Statement:
    where = random_.choice((_ALL, _Where("c.kind = 'a'", _VALUES[0].holds), _window(random_, "c.ts")))
    join = random_.choice(("JOIN", "LEFT JOIN"))
    sql = (
        f"SELECT p.region, {VALUES} FROM {cube} c {join} {LOOKUP} p ON c.place = p.place"
        f"{_condition(where)}{_group(('p.region',))}"
    )

    def recount(events: Iterable[Event]) -> list[Cells]:
        found: dict[Cells, Cells] = {}
        for event in filter(where.holds, events):
            region = REGIONS.get(event.place) if event.place is not None else None
            if region is not None or join == "LEFT JOIN":
                _add(found, (region,), event)
        return in_order((*key, *counted_row(row)) for key, row in found.items())

    return Statement(kind, sql, 1, recount)


def _window(random_: random.Random, column: str = "ts") -> _Where:
    """Return some minutes out of those that a run covers, or before or after it."""
    start_ms = START_MS + random_.randrange(-5, 10) * WINDOW_MS
    end_ms = start_ms + random_.randrange(1, 6) * WINDOW_MS
    return _Where(
        f"{column} >= '{_time(start_ms)}' AND {column} < '{_time(end_ms)}'",
        lambda event: start_ms <= event.event_ms < end_ms,
    )


def _add(found: dict[Cells, Cells], key: Cells, event: Event) -> None:
    row = row_of(event)
    found[key] = combine(found[key], row) if key in found else row


def _condition(where: _Where) -> str:
    return f" WHERE {where.sql}" if where.sql else ""


def _group(names: Sequence[str]) -> str:
    return f" GROUP BY {', '.join(names)}" if names else ""


def _key(cell: Any) -> Any:
    return cell.isoformat(" ") if isinstance(cell, datetime) else cell


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).replace(tzinfo=None).isoformat(" ")

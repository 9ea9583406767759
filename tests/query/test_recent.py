"""Conditions on any instant, units below the hour, weeks from any day, segments of half an hour.

They are answered alike in real time, half built and built, held against the raw events.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest
from rtolap.base.errors import QueryError
from rtolap.model.cube import Cube, Measure, Schema, SegmentPolicy
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import flight_table, random_flights
from tests.support.query.calendar_units import unit_start
from tests.support.query.oracles.sql_oracle import asked_of, oracle_cursor, rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

START = datetime(2013, 3, 1, 22, 10)
EVENTS = 200
_MICRO = timedelta(microseconds=1)


def recent_schema(*units: str, zone: str = "UTC", **changes: Any) -> Schema:
    values: dict[str, Any] = {
        "name": "recent",
        "table": "flight_events",
        "dimensions": ("carrier",),
        "time_dimensions": units,
        "measures": (Measure("sum", "delay"), Measure("sum", "price")),
        "segment": SegmentPolicy(window_ms=1_800_000),
    }
    return Schema(flight_table(zone), Cube(**{**values, **changes}))


def world_of(schema: Schema, start: datetime = START, days: float = 0.25) -> QueryWorld:
    return QueryWorld(schema, random_flights(random.Random(8), EVENTS, start, days), {})


@dataclass
class Standing:
    """A world of which `share` is built."""

    world: QueryWorld
    service: QueryService
    oracle: duckdb.DuckDBPyConnection

    @classmethod
    def opened(cls, schema: Schema, share: float, **world: Any) -> Standing:
        made = world_of(schema, **world)
        rng = random.Random(9)
        segments = made.segments()
        for segment in rng.sample(segments, round(share * len(segments))):
            made.build(segment, rng)
        oracle = oracle_cursor()
        oracle.register("recent", made.visible())
        return cls(made, made.service(), oracle)

    def close(self) -> None:
        self.service.close()
        self.oracle.close()
        self.world.close()

    def asked(self, sql: str) -> tuple[list[tuple[object, ...]], tuple[QueryWarning, ...]]:
        outcome = self.service.execute(sql)
        return rows_of(outcome.table()), outcome.warnings

    def expected(self, sql: str) -> list[tuple[object, ...]]:
        return rows_of(asked_of(self.oracle, sql))


UNITS = [
    ("second", "minute"),
    ("five_minute", "hour", "day"),
    ("fifteen_minute", "ten_minute"),
    ("thirty_minute", "day", "week"),
]


SHARES = {"live": 0.0, "half-built": 0.5, "built": 1.0}


@pytest.fixture(params=SHARES)
def share(request: pytest.FixtureRequest) -> float:
    return SHARES[request.param]


@pytest.fixture(
    scope="module", params=itertools.product(UNITS, SHARES), ids=lambda drawn: "-".join((*drawn[0], drawn[1]))
)
def standing(request: pytest.FixtureRequest) -> Iterator[Standing]:
    units, share = request.param
    schema = recent_schema(*units, zone="Asia/Kathmandu", week_starts_on="sunday")
    made = Standing.opened(schema, SHARES[share])
    yield made
    made.close()


def begun(at: datetime, schema: Schema) -> datetime:
    """The latest start of a kept unit that is not behind the instant."""
    return max(unit_start(at, unit, schema.cube.week_starts_on) for unit in schema.cube.time_dimensions)


def ended(at: datetime, schema: Schema) -> datetime:
    """The earliest start of a kept unit that is not before the instant."""
    step = timedelta(seconds=1 if "second" in schema.cube.time_dimensions else 60)
    floor = at.replace(microsecond=0) if step.seconds == 1 else at.replace(second=0, microsecond=0)
    at = floor if floor == at else floor + step
    while begun(at, schema) != at:
        at += step
    return at


@pytest.mark.seeded
def test_any_instant_counts_from_or_up_to_the_unit_that_holds_it(standing: Standing) -> None:
    schema = standing.world.schema
    rng = random.Random(f"{schema.cube.time_dimensions} {standing.world.built}")  # of each others
    first = datetime(2013, 3, 2, 3, 55)  # START in Kathmandu
    counted = "select count(*), sum(delay), sum(price) from recent where"
    for _ in range(so_many(1, 2)):
        low = first + timedelta(seconds=rng.randrange(20_000), microseconds=rng.choice((0, 250_000)))
        high = low + timedelta(seconds=rng.randrange(7_200))
        behind = high + _MICRO
        for asked, meant in (
            (f"ts >= '{low}'", f"ts >= '{begun(low, schema)}'"),
            (f"ts < '{high}'", f"ts < '{ended(high, schema)}'"),
            (
                f"ts between '{low}' and '{high}'",
                f"ts >= '{begun(low, schema)}' and ts < '{ended(behind, schema)}'",
            ),
            (f"not (ts >= '{low}')", f"ts < '{ended(low, schema)}'"),
            (
                f"not ts between '{low}' and '{high}'",
                f"ts < '{ended(low, schema)}' or ts >= '{begun(behind, schema)}'",
            ),
            (f"ts = '{low}'", f"ts >= '{begun(low, schema)}' and ts < '{ended(low + _MICRO, schema)}'"),
        ):
            rows, warnings = standing.asked(f"{counted} {asked}")
            assert rows == standing.expected(f"{counted} {meant}"), (asked, meant)
            told = " ".join(warning.message for warning in warnings)
            assert {warning.code for warning in warnings} <= {"time_aligned"}
            for used in re.findall(r"'([^']+)'", meant):
                assert used in told or f"'{used}'" in asked or _is_next(used, asked), (asked, told)


def _is_next(used: str, asked: str) -> bool:
    """Whether the bound is a microsecond behind an instant that was asked for: then it is exact."""
    return f"'{datetime.fromisoformat(used) - _MICRO}'" in asked


def test_the_start_of_a_kept_unit_is_exact_and_has_no_warning(standing: Standing) -> None:
    schema = standing.world.schema
    at = begun(datetime(2013, 3, 2, 6, 20), schema)
    for condition in (f"ts >= '{at}'", f"ts < '{at}'", f"ts > '{at - _MICRO}'", f"ts <= '{at - _MICRO}'"):
        sql = f"select carrier, count(*) from recent where {condition} group by 1"
        assert standing.asked(sql) == (standing.expected(sql), ())


def test_derived_columns_group_and_filter_as_the_calendar_says(standing: Standing) -> None:
    cube = standing.world.schema.cube
    for name in cube.time_columns:
        sql = f"select {name}, count(*), sum(price) from recent group by 1"
        assert standing.asked(sql) == (standing.expected(sql), ())
        (middle, *_), *_ = standing.expected(f"select quantile_disc({name}, 0.5) from recent")
        filtered = f"select count(*) from recent where {name} >= '{middle}'"
        assert standing.asked(filtered) == (standing.expected(filtered), ())


def test_units_that_a_finer_one_determines_need_no_column(share: float) -> None:
    standing = Standing.opened(recent_schema("minute"), share)
    for unit in ("five_minute", "ten_minute", "fifteen_minute", "thirty_minute", "hour"):
        rows, warnings = standing.asked(f"select date_trunc('{unit}', ts) t, count(*) from recent group by 1")
        expected: dict[datetime, int] = {}
        for at in standing.world.visible().column("ts").to_pylist():
            expected[unit_start(at, unit)] = expected.get(unit_start(at, unit), 0) + 1
        assert {row[0]: row[1] for row in rows} == {str(start): count for start, count in expected.items()}
        assert warnings == ()
    standing.close()


@pytest.mark.parametrize("first", ["monday", "saturday", "sunday"])
@pytest.mark.parametrize("units", [("day",), ("hour", "week")])
def test_weeks_begin_on_the_declared_day_wherever_they_are_asked_of(
    first: str, units: tuple[str, ...]
) -> None:
    schema = recent_schema(*units, week_starts_on=first, segment=SegmentPolicy(window_ms=86_400_000))
    standing = Standing.opened(schema, 0.5, days=20)
    expected: dict[str, int] = {}
    for at in standing.world.visible().column("ts").to_pylist():
        start = str(unit_start(at, "week", first))
        expected[start] = expected.get(start, 0) + 1
    finest = f"{units[0]}_start"
    for asked in ("date_trunc('week', ts)", f"date_trunc('week', {finest})"):
        rows, _ = standing.asked(f"select {asked} w, count(*) from recent group by 1 order by 1")
        assert {str(row[0]): row[1] for row in rows} == expected, asked
    standing.close()


def test_the_last_five_minutes_name_the_instant_that_was_used(share: float) -> None:
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    standing = Standing.opened(recent_schema("minute"), share, start=now - timedelta(hours=3), days=0.05)
    never_whole = "now() - interval 1 day - interval 1 microsecond"
    rows, (warning,) = standing.asked(f"select count(*) from recent where ts >= {never_whole}")
    assert rows == standing.expected("select count(*) from recent")
    assert (warning.code, warning.level) == ("time_aligned", "Warning")
    assert "keeps time by the minute" in warning.message
    assert re.search(r"counts from \d{4}-\d\d-\d\d \d\d:\d\d:00, not \d{4}-", warning.message)
    rows, _ = standing.asked("select count(*) from recent where ts >= now() - interval 5 minute")
    assert rows == [(0,)]
    between = "select count(*) from recent where ts between now() - interval 5 hour and now()"
    assert standing.asked(between)[0] == standing.expected("select count(*) from recent")
    standing.close()


def test_a_cube_may_refuse_what_it_cannot_answer_exactly() -> None:
    standing = Standing.opened(recent_schema("hour", time_filters="refuse"), 0.5)
    with pytest.raises(QueryError, match=r"cannot be answered exactly.*time_filters: align"):
        standing.asked("select count(*) from recent where ts >= '2013-03-02 00:10:00'")
    whole = "select count(*) from recent where ts >= '2013-03-02 00:00:00'"
    assert standing.asked(whole) == (standing.expected(whole), ())
    standing.close()


def test_the_clock_beside_local_time_is_warned_about() -> None:
    standing = Standing.opened(recent_schema("hour", zone="Asia/Kathmandu"), 0.0)
    now = "now() + interval 1 microsecond"  # never a whole hour
    _, warnings = standing.asked(f"select count(*) from recent where ts < {now}")
    assert sorted(warning.code for warning in warnings) == ["clock_in_utc", "time_aligned"]
    converted = f"select count(*) from recent where ts < convert_tz({now}, 'UTC', 'Asia/Kathmandu')"
    assert [warning.code for warning in standing.asked(converted)[1]] == ["time_aligned"]
    standing.close()

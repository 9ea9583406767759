"""Tables with a zone: local time, clock changes and whole segments left out, against the raw rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import duckdb
import pytest
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import flights_world
from tests.support.query.oracles.sql_oracle import asked_of, open_oracle, rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

EVENTS = 400
CHANGES = [
    ("America/New_York", datetime(2013, 11, 2)),  # an hour twice
    ("America/New_York", datetime(2013, 3, 9)),  # an hour missing
    ("America/Sao_Paulo", datetime(2013, 10, 19)),  # a day without its midnight
    ("Australia/Lord_Howe", datetime(2013, 4, 5, 12)),  # half an hour twice
    ("Asia/Kolkata", datetime(2013, 1, 1)),  # half an hour off all the year
]


@dataclass
class Zoned:
    zone: str
    start: datetime
    world: QueryWorld
    service: QueryService
    oracle: duckdb.DuckDBPyConnection


@pytest.fixture(scope="module", params=CHANGES, ids=lambda change: f"{change[0]}-{change[1]:%m}")
def zoned(request: pytest.FixtureRequest) -> Iterator[Zoned]:
    zone, start = request.param
    world = flights_world(11, EVENTS, zone=zone, start=start, days=2.5)
    service = world.service()
    with open_oracle(world) as oracle:
        yield Zoned(zone, start, world, service, oracle)
    service.close()
    world.close()


def equal(zoned: Zoned, sql: str) -> None:
    assert rows_of(zoned.service.execute(sql).table()) == rows_of(asked_of(zoned.oracle, sql)), sql


def test_derived_dimensions_and_parts_of_the_date_are_local(zoned: Zoned) -> None:
    for sql in (
        "select hour_start, count(*), sum(delay) from flights group by hour_start",
        "select day_start, carrier, count(*) from flights group by 1, 2",
        "select date(ts), hour(ts), count(*), max(price) from flights group by 1, 2",
        "select date_format(ts, '%Y-%m-%d %H') h, count(*) from flights group by 1",
        "select month_start, sum(distance) from routes group by 1",
        "select date_trunc('month', ts), day(ts), count(*) from flights group by 1, 2",
    ):
        equal(zoned, sql)


@pytest.mark.seeded
def test_conditions_on_time_at_every_hour_around_the_change(zoned: Zoned) -> None:
    local = zoned.start.replace(tzinfo=UTC).astimezone(ZoneInfo(zoned.zone)).replace(tzinfo=None)
    first = local.replace(minute=0) - timedelta(hours=2)
    hours = [first + timedelta(hours=number) for number in range(66)]
    rng = random.Random(zoned.zone)
    counted = "select count(*), sum(delay) from flights where"
    near = hours[24:40]  # the clocks change among them, where they do
    draws = so_many(2, 4)
    drawn = rng.sample(near, min(len(near), draws // 2))
    drawn += rng.sample([hour for hour in hours if hour not in near], draws - len(drawn))
    for hour in drawn:
        other = rng.choice(hours)
        low, high = min(hour, other), max(hour, other)
        for condition in (
            f"ts >= '{hour}'",
            f"ts < '{hour}' and carrier <> 'AA'",
            f"ts between '{low}' and '{high - timedelta(microseconds=1)}'",
            f"hour_start = '{hour}' or hour_start > '{high}'",
            f"hour_start >= '{low:%Y-%m-%d %H}:30:00' and hour_start <= '{high:%Y-%m-%d %H}:59:59'",
            f"day_start = '{hour:%Y-%m-%d}'",
            f"hour(ts) = {hour.hour} and day_start in ('{low:%Y-%m-%d}', '{high:%Y-%m-%d}')",
        ):
            equal(zoned, f"{counted} {condition}")
        equal(zoned, f"select origin, count(*) from routes where date(ts) <= '{hour:%Y-%m-%d}' group by 1")


def test_segments_out_of_the_local_range_are_left_out(zoned: Zoned) -> None:
    day = (zoned.start + timedelta(days=2)).date()
    outcome = zoned.service.execute(f"select count(*) from flights where day_start = '{day}'")
    read = outcome.stats[0]
    outcome.close()
    assert read.pruned_segments
    assert {*read.pruned_segments, *read.history_segments} == zoned.world.built["flights"]


def test_the_first_and_last_instant_are_shown_in_local_time(zoned: Zoned) -> None:
    """By instants: where an hour comes twice, the latest of two is not the one with the larger local time."""
    zone = ZoneInfo(zoned.zone)

    def local(instant: datetime) -> datetime:
        return instant.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)

    spans: dict[tuple[object, object], list[datetime]] = {}
    visible = zoned.world.visible().select(["carrier", "hour_start"]).to_pylist()
    for row, instant in zip(visible, zoned.world.events.column("ts").to_pylist(), strict=True):
        spans.setdefault((row["carrier"], None), []).append(instant)
        spans.setdefault((None, row["hour_start"]), []).append(instant)
    expected = {key: (local(min(found)), local(max(found))) for key, found in spans.items()}
    by_carrier = zoned.service.execute("select carrier, min(ts) a, max(ts) b from flights group by 1").table()
    by_hour = zoned.service.execute("select hour_start, min(ts) a, max(ts) b from flights group by 1").table()
    named = [((row["carrier"], None), row) for row in by_carrier.to_pylist() if row["carrier"] is not None]
    named += [((None, row["hour_start"]), row) for row in by_hour.to_pylist()]
    assert len(named) > 20
    assert {key: (row["a"], row["b"]) for key, row in named} == {key: expected[key] for key, _ in named}
    latest = zoned.service.execute(
        "select carrier from flights group by carrier having max(ts) >= timestamp '2013-01-01' limit 1"
    ).table()
    assert latest.num_rows == 1


def test_previews_and_conversions_work_in_the_zone(zoned: Zoned) -> None:
    middle = zoned.start + timedelta(days=1, hours=6)
    aligned = (
        middle - timedelta(minutes=30) if zoned.zone in ("Asia/Kolkata", "Australia/Lord_Howe") else middle
    )
    converted = f"convert_tz('{aligned}', 'UTC', '{zoned.zone}')"
    equal(zoned, f"select count(*) from flights where ts >= {converted}")
    few = zoned.service.execute("select hour_start, delay from flights order by hour_start desc limit 3")
    assert len(few.stats[0].history_segments) < len(zoned.world.built["flights"])
    whole = "select hour_start, sum(delay) from flights group by 1 order by 1 desc limit 3"
    assert rows_of(few.table()) == rows_of(asked_of(zoned.oracle, whole))

"""Time dimensions against Python's zoneinfo."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from rtolap.cubes.format.aggregate import time_keys
from rtolap.model.cube import TIME_UNITS, Cube, Schema, SegmentPolicy
from rtolap.model.table import Column, Table, TimeColumn

from tests.support.query.calendar_units import unit_start


def _schema(zone: str, window_ms: int = 3_600_000, **cube: Any) -> Schema:
    table = Table(
        name="t", topic="t", columns=(Column("ts", "bigint"),), time=TimeColumn("ts", "epoch_ms", zone)
    )
    policy = SegmentPolicy(window_ms=window_ms)
    settings = {"time_dimensions": TIME_UNITS, "segment": policy, **cube}
    return Schema(table, Cube(name="c", table="t", dimensions=(), **settings))


@pytest.mark.parametrize(
    "zone", ["UTC", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Amsterdam"]
)
@pytest.mark.parametrize("first_ms", [-1_500_000_000_000, 1_300_000_000_000])
@pytest.mark.parametrize("week_starts_on", ["monday", "saturday", "sunday"])
def test_every_unit_is_the_local_floor(zone: str, first_ms: int, week_starts_on: str) -> None:
    rng = random.Random(zone)
    instants = np.array([first_ms + rng.randrange(80_000_000_000) for _ in range(500)], np.int64)
    keys = time_keys(_schema(zone, week_starts_on=week_starts_on), instants)
    starts = {unit: keys.columns[f"{unit}_start"].to_pylist() for unit in TIME_UNITS}
    for code, instant in zip(keys.codes.tolist(), instants.tolist(), strict=True):
        local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant)).astimezone(
            ZoneInfo(zone)
        )
        at = local.replace(tzinfo=None)
        for unit in TIME_UNITS:
            assert starts[unit][code] == unit_start(at, unit, week_starts_on), (zone, instant, unit)


@pytest.mark.parametrize("window_ms", [1_800_000, 300_000, 90_000])
@pytest.mark.parametrize("units", [("second",), ("five_minute", "thirty_minute"), ("fifteen_minute", "week")])
def test_units_do_not_depend_on_which_others_are_kept_nor_on_the_window(
    window_ms: int, units: tuple[str, ...]
) -> None:
    rng = random.Random(window_ms)
    instants = np.array([1_300_000_000_000 + rng.randrange(80_000_000_000) for _ in range(300)], np.int64)
    schema = _schema("Asia/Kathmandu", window_ms, time_dimensions=units, week_starts_on="sunday")
    keys = time_keys(schema, instants)
    assert keys.segment_ms[keys.codes].tolist() == [ms // window_ms * window_ms for ms in instants.tolist()]
    for row, instant in enumerate(instants.tolist()):
        at = datetime.fromtimestamp(instant / 1000, ZoneInfo("Asia/Kathmandu")).replace(tzinfo=None)
        for unit in units:
            found = keys.columns[f"{unit}_start"][int(keys.codes[row])].as_py()
            assert found == unit_start(at, unit, "sunday"), (instant, unit)


def test_both_hours_of_a_clock_going_back_share_a_local_hour_but_not_a_segment() -> None:
    instants = np.array([1_383_456_600_000, 1_383_460_200_000])  # 01:30 twice in New York, 2013-11-03
    keys = time_keys(_schema("America/New_York"), instants)
    hours = [keys.columns["hour_start"][int(code)].as_py() for code in keys.codes]
    assert hours == [datetime(2013, 11, 3, 1)] * 2
    assert keys.segment_ms[keys.codes].tolist() == [1_383_454_800_000, 1_383_458_400_000]


@pytest.mark.parametrize("window_ms", [1_000, 7_000, 90_000, 3_600_000])
def test_segments_are_floor_division_even_before_1970(window_ms: int) -> None:
    instants = np.array([-1, 0, window_ms - 1, window_ms, -window_ms, 123_456_789_123])
    keys = time_keys(_schema("UTC", window_ms), instants)
    assert keys.segment_ms[keys.codes].tolist() == [ms // window_ms * window_ms for ms in instants.tolist()]

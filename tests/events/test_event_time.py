from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from rtolap.events.event_time import EventTimeParser


def _parse(time_format: str, zone: str, *values: str | int | None) -> list[str | None]:
    found = EventTimeParser(time_format, zone).parse(pa.array(values))
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [
        "missing"
        if missing
        else "invalid"
        if invalid
        else (epoch + timedelta(microseconds=micros)).isoformat()[:-6]
        for micros, missing, invalid in zip(
            found.micros.tolist(), found.missing.tolist(), found.invalid.tolist(), strict=True
        )
    ]


@pytest.mark.parametrize(
    ("time_format", "value"),
    [("epoch_s", 1_357_034_400), ("epoch_ms", 1_357_034_400_000), ("epoch_us", 1_357_034_400_000_000)],
)
def test_epochs_are_numbers_or_numbers_in_strings(time_format: str, value: int) -> None:
    wanted = ["2013-01-01T10:00:00", "missing"]
    assert _parse(time_format, "America/New_York", value, None) == wanted
    assert _parse(time_format, "UTC", str(value), None, "1.5", "x", "") == [
        *wanted,
        "invalid",
        "invalid",
        "invalid",
    ]


def test_iso_times_with_an_offset_ignore_the_zone_and_others_are_local() -> None:
    found = _parse(
        "iso8601",
        "America/New_York",
        "2013-01-01T10:00:00Z",
        "2013-01-01T10:00:00+05:30",
        "2013-01-01 10:00:00-0300",
        "2013-01-01T10:00:00.123456789+01",
        "2013-01-01T10:00:00",
        "2013-01-01 10:00",
        "2013-01-01",
        "2013-01-01T10:00:00.1234567",
        "2013-13-01",
        "01/02/2013",
        "",
        None,
    )
    assert found == [
        "2013-01-01T10:00:00",
        "2013-01-01T04:30:00",
        "2013-01-01T13:00:00",
        "2013-01-01T09:00:00.123456",
        "2013-01-01T15:00:00",
        "2013-01-01T15:00:00",
        "2013-01-01T05:00:00",
        "2013-01-01T15:00:00.123456",
        "invalid",
        "invalid",
        "invalid",
        "missing",
    ]


@pytest.mark.parametrize("value", ["2013-01-01T10:00:00Z", "2013-01-01T10:00:00.123456", "2013-01-01", "x"])
def test_an_iso_time_reads_the_same_alone_and_in_mixed_company(value: str) -> None:
    (alone,) = _parse("iso8601", "Europe/Oslo", value)
    assert _parse("iso8601", "Europe/Oslo", "2013-01-01T10:00:00Z", "x", "2013-01-01", value)[-1] == alone


@pytest.mark.parametrize("time_format", ["iso8601", "%Y-%m-%d %H:%M:%S"])
def test_clock_changes_take_the_earlier_instant(time_format: str) -> None:
    found = _parse(
        time_format, "America/New_York", "2013-11-03 01:30:00", "2013-03-10 02:30:00", "2013-03-10 03:00:00"
    )
    assert found == ["2013-11-03T05:30:00", "2013-03-10T06:59:59.999999", "2013-03-10T07:00:00"]


def test_patterns_read_fractions_and_offsets() -> None:
    assert _parse("%d/%b/%Y:%H:%M:%S %z", "Asia/Tokyo", "02/Jan/2013:10:00:00 +0500", "x", None) == [
        "2013-01-02T05:00:00",
        "invalid",
        "missing",
    ]
    assert _parse("%Y%m%d %H%M%S.%f", "Asia/Tokyo", "20130102 100000.25", "20130102") == [
        "2013-01-02T01:00:00.250000",
        "invalid",
    ]

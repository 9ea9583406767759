from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.model.instants import instant_ms


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [
        ("0", 0),
        ("-1", -1),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T01:00+01:00", 0),
        (" 2013-01-01 ", 1356998400000),
        ("2013-01-01T01:00:00+01:00", 1356998400000),
        ("1356998400000", 1356998400000),
        (1356998400000, 1356998400000),
        (datetime(2013, 1, 1), 1356998400000),
        (datetime(2013, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 1356998400000),
        ("1970-01-01T00:00:00.0015", 2),
    ],
)
def test_instants_are_utc_unless_they_say_otherwise(value: str | int | datetime, expected_ms: int) -> None:
    assert instant_ms(value) == expected_ms


@pytest.mark.parametrize("value", ["yesterday", "", "١٢", "--1"])
def test_what_is_no_instant_is_told(value: str) -> None:
    with pytest.raises(DefinitionError, match="not an instant; expected ISO 8601"):
        instant_ms(value)

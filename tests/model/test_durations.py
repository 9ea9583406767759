from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rtolap.base.errors import DefinitionError
from rtolap.model.durations import format_duration, parse_duration_ms


@given(st.integers(min_value=0, max_value=10**13))
def test_a_spelled_duration_reads_back(duration_ms: int) -> None:
    assert parse_duration_ms(format_duration(duration_ms)) == duration_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("1 D", 86_400_000),
        ("1h30m", 5_400_000),
        ("2w", 1_209_600_000),
    ],
)
def test_durations_are_read(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "5", "h", "-1h", "1.5h", "1y", "1h x", "9999999999999s"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="not a duration"):
        parse_duration_ms(text)

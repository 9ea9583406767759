"""Values of typed columns mean what their texts mean, whatever stands beside them."""

from __future__ import annotations

import math
import random
from decimal import ROUND_HALF_UP, Decimal

import pyarrow as pa
import pytest
from rtolap.column_types import parse_type
from rtolap.stored.bodies.casting import convert

both_modes = pytest.mark.parametrize("rounds", [True, False])


def values(found: list[object], source: pa.DataType, column: str, rounds: bool = False) -> list[object]:
    """Of each value alone; beside each other they must be the same."""
    kind = parse_type(column)
    together = convert(pa.array(found, source), kind, zone="UTC", rounds=rounds).values.to_pylist()
    alone = [
        convert(pa.array([one], source), kind, zone="UTC", rounds=rounds).values[0].as_py() for one in found
    ]
    assert together == alone
    return together


@both_modes
def test_a_float_is_the_decimal_that_its_text_is(rounds: bool) -> None:
    exact = [Decimal("0.10"), Decimal("-2.50"), None]
    inexact = [Decimal("1.56"), Decimal("-0.13"), Decimal("0.00")] if rounds else [None, None, None]
    found = values([0.1, -2.5, None, 1.555, -0.125, 1e-300, 1e300], pa.float64(), "decimal(10,2)", rounds)
    assert found == [*exact, *inexact, None]
    edges = [9999.99, 9999.994, 9999.995, -9999.99]
    nearly = Decimal("9999.99") if rounds else None
    found = values(edges, pa.float64(), "decimal(6,2)", rounds)
    assert found == [Decimal("9999.99"), nearly, None, Decimal("-9999.99")]
    many = values([0.1, 123456789012.7, 1e22], pa.float64(), "decimal(38,10)", rounds)
    assert many == [Decimal("0.1"), Decimal("123456789012.7"), Decimal(10) ** 22]
    assert values([0.1, 0.5], pa.float64(), "decimal(38,30)", rounds) == [Decimal("0.1"), Decimal("0.5")]


@both_modes
def test_a_shorter_float_is_the_number_that_it_holds(rounds: bool) -> None:
    assert values([0.1, 0.5, float("nan")], pa.float32(), "double") == [0.10000000149011612, 0.5, None]
    tenth = Decimal("0.10") if rounds else None
    assert values([0.1, 0.5], pa.float32(), "decimal(10,2)", rounds) == [tenth, Decimal("0.50")]


def test_a_whole_float_is_an_integer_however_large() -> None:
    large = [1e15, -(2.0**63), 2.0**63, 2.5, float("inf")]
    assert values(large, pa.float64(), "bigint") == [10**15, -(2**63), None, None, None]


@pytest.mark.parametrize("scale", [0, 2, 10, 18, 25])
def test_decimals_and_floats_become_each_other_as_they_are_written(scale: int) -> None:
    rng = random.Random(scale)
    drawn = [Decimal(rng.randrange(-(10**15), 10**15) // 10 ** rng.randrange(15)) for _ in range(2000)]
    decimals = [one.scaleb(-scale) for one in drawn]
    floats = [float(str(one)) for one in decimals]
    kind = parse_type("double")
    source = pa.array([None, *decimals], pa.decimal128(38, scale)).slice(1)
    assert convert(source, kind, zone="UTC", rounds=False).values.to_pylist() == floats
    kind = parse_type(f"decimal(38,{scale})")
    found = convert(pa.array(floats), kind, zone="UTC", rounds=False)
    assert (found.values.to_pylist(), found.lost) == (decimals, None)


@pytest.mark.parametrize("scale", [0, 2, 10])
def test_a_float_is_rounded_as_its_text_is(scale: int) -> None:
    rng = random.Random(scale)
    floats = [rng.uniform(-1e6, 1e6) for _ in range(500)]
    floats += [round(rng.uniform(-1e3, 1e3), scale) + 5 * 10.0 ** -(scale + 1) for _ in range(500)]
    kind = parse_type(f"decimal(20,{scale})")
    ties = [round(one, scale + 1) for one in floats[-100:]]
    floats += [*ties, *(math.nextafter(one, 0) for one in ties), *(math.nextafter(one, 9e9) for one in ties)]
    found = convert(pa.array(floats), kind, zone="UTC", rounds=True).values.to_pylist()
    unit = Decimal(1).scaleb(-scale)
    assert found == [Decimal(repr(one)).quantize(unit, ROUND_HALF_UP) for one in floats]


@both_modes
@pytest.mark.parametrize("column", ["date", "timestamp"])
def test_an_instant_that_leaves_the_calendar_fits_nowhere(column: str, rounds: bool) -> None:
    """Its zone or its rounding takes it out of the years 1 to 9999."""
    beyond = [
        "9999-12-31T23:59:59-05:00",
        "0001-01-01T00:00:00+05:00",
        "9999-12-31T23:59:59.9999999",
        "9999-12-31T20:00:59.9999999-03:59",
    ]
    last = ["9999-12-31T23:59:59.999999", "0001-01-01T00:00:00", "9999-12-31T18:59:59-05:00"]
    found = values([*beyond, *last], pa.string(), column, rounds)
    assert found[:4] == [None] * 4
    assert None not in found[4:]
    kind = parse_type(column)
    east = convert(pa.array(["9999-12-31T23:59:59Z"]), kind, zone="Asia/Shanghai", rounds=rounds)
    assert (east.values.to_pylist(), list(east.lost)) == ([None], [True])  # type: ignore[call-overload]


@both_modes
def test_an_instant_of_a_file_that_leaves_the_calendar_fits_nowhere(rounds: bool) -> None:
    last = pa.array([253_402_300_799_999_999], pa.timestamp("us", "UTC"))
    for column in ("date", "timestamp"):
        shanghai = convert(last, parse_type(column), zone="Asia/Shanghai", rounds=rounds)
        assert shanghai.values.to_pylist() == [None]
        assert convert(last, parse_type(column), zone="UTC", rounds=rounds).lost is None
    finest = pa.array([-62_135_596_800_000_000], pa.timestamp("us"))
    assert convert(finest, parse_type("timestamp"), zone="UTC", rounds=rounds).lost is None

"""A decimal column that declares `rounding: half_up` takes values with more digits, exactly."""

from __future__ import annotations

import random
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal, localcontext

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.table import Column, Lookup, Table, TimeColumn
from rtolap.model.validation.definition import validate_lookup, validate_table


def schema_of(kind: str, rounding: str = "half_up", measure: str | None = "price") -> Schema:
    columns = (
        Column("ts", "bigint"),
        Column("kind", "string"),
        Column("price", kind, rounding=rounding),  # type: ignore[arg-type]
    )
    table = Table(name="t", topic="t", columns=columns, time=TimeColumn("ts"))
    measures = () if measure is None else (Measure("sum", measure),)
    return Schema(table, Cube(name="c", table="t", dimensions=("kind",), measures=measures))


def decoded(schema: Schema, texts: Iterable[str]) -> Decoded:
    values = [f'{{"ts": 1000, "kind": "a", "price": {text}}}'.encode() for text in texts]
    places = np.arange(len(values))
    return EventDecoder(schema).decode(values, np.zeros(len(values), np.int32), places, now_ms=1000)


def half_up(text: str, scale: int) -> Decimal:
    with localcontext(prec=200):
        return Decimal(text.strip('"')).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)


@pytest.mark.parametrize(("precision", "scale"), [(10, 2), (5, 5), (4, 0), (37, 3), (12, 5)])
def test_values_of_any_number_of_digits_are_rounded_as_pythons_decimals_are(
    precision: int, scale: int
) -> None:
    rng = random.Random(precision)
    texts = []
    for _ in range(500):
        whole = str(rng.randrange(10 ** rng.randrange(1, max(2, precision - scale + 1))))
        digits = "".join(rng.choice("0123456789459") for _ in range(rng.randrange(1, 45)))
        tie = "" if rng.random() < 0.7 else digits[:scale].ljust(scale, "0") + "5"
        text = rng.choice(("", "-")) + (whole if precision > scale else "0") + "." + (tie or digits)
        texts.append(rng.choice((text, f'"{text}"')) if len(text) > 36 else f"{text}e{rng.randrange(-6, 1)}")
    found = decoded(schema_of(f"decimal({precision},{scale})"), texts)
    bound = Decimal(10) ** (precision - scale)
    expected = [half_up(text, scale) for text in texts]
    assert found.table.column("price").to_pylist() == [value for value in expected if abs(value) < bound]
    refused = [place for place, value in enumerate(expected) if abs(value) >= bound]
    assert found.rejects.index.tolist() == refused
    assert set(found.rejects.reason) <= {"wrong_type"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.005", "1.01"),
        ("-1.005", "-1.01"),
        ("1.00499999999999999999999999999999999999999999999999999", "1.00"),
        ("0.001", "0.00"),
        ("99999999.994999", "99999999.99"),
        ("15e-4", "0.00"),
        ("5e-3", "0.01"),
        ("1.5e2", "150.00"),
        ("7", "7.00"),
        ('"2.675"', "2.68"),
        ("null", None),
    ],
)
def test_halves_go_away_from_zero(text: str, value: str | None) -> None:
    found = decoded(schema_of("decimal(10,2)"), [text])
    assert found.table.column("price").to_pylist() == [None if value is None else Decimal(value)]


@pytest.mark.parametrize("rounding", ["half_up", "refuse"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_a_long_number_with_an_exponent_is_refused_before_the_reader_makes_another_of_it(
    rounding: str, quote: str
) -> None:
    long = "6042999.6" + "0" * 35 + "e0"
    found = decoded(schema_of("decimal(10,2)", rounding), ["1.5", f"{quote}{long}{quote}", "2.5"])
    assert found.rejects.reason == ["wrong_type"]
    assert found.table.column("price").to_pylist() == [Decimal("1.50"), Decimal("2.50")]


@pytest.mark.parametrize("text", ["99999999.995", "-99999999.995", "123456789.1", '"x"', "true", "[1.5]"])
def test_what_does_not_fit_when_rounded_is_refused_by_the_declared_type(text: str) -> None:
    found = decoded(schema_of("decimal(10,2)"), ["1.5", text, "2.5"])
    assert found.rejects.index.tolist() == [1]
    assert "expected decimal(10,2), found" in found.rejects.detail[0]
    assert found.table.column("price").to_pylist() == [Decimal("1.50"), Decimal("2.50")]


def test_sister_cubes_of_a_rounded_column_count_alike_and_of_a_strict_one_do_not() -> None:
    texts = [f"{number}.12345" if number % 2 else f"{number}.25" for number in range(100)]
    counts = {
        (rounding, measure): decoded(schema_of("decimal(10,2)", rounding, measure), texts).table.num_rows
        for rounding in ("half_up", "refuse")
        for measure in ("price", None)
    }
    assert counts == {
        ("half_up", "price"): 100,
        ("half_up", None): 100,
        ("refuse", "price"): 50,
        ("refuse", None): 100,
    }


@pytest.mark.parametrize("kind", ["double", "bigint", "string", "decimal(38,2)"])
def test_rounding_is_for_decimals_that_leave_room_for_the_digit_that_decides(kind: str) -> None:
    with pytest.raises(DefinitionError, match=r"rounding: cannot be rounded.*at most 37 digits"):
        validate_table(schema_of(kind).table)
    validate_table(schema_of("decimal(37,2)").table)
    columns = (Column("price", "decimal(4,2)", rounding="half_up"),)
    with pytest.raises(DefinitionError, match="a lookup is read as it is"):
        validate_lookup(Lookup(name="l", columns=columns, file="l.csv"))

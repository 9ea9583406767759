"""Computed columns: drawn expressions over drawn events equal a plain evaluation, event by event."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.column_types import ColumnType, parse_type
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.expressions.grammar import DEPTH_MAX, NODES_MAX, parse_expression
from rtolap.model.expressions.nodes import (
    Arithmetic,
    Both,
    Call,
    Case,
    Coalesce,
    Comparison,
    Either,
    Expression,
    Inverse,
    IsNull,
    Name,
    Negative,
    Value,
)
from rtolap.model.expressions.types import type_of
from rtolap.model.table import Column, Lookup, Table, TimeColumn
from rtolap.model.validation.definition import validate_lookup, validate_schema, validate_table

from tests.support.seeds import so_many

SEED = 9100
READ = {
    "small": "int",
    "big": "bigint",
    "price": "decimal(10,2)",
    "wide": "decimal(30,6)",
    "ratio": "double",
    "late": "boolean",
    "shop": "string",
    "day": "date",
    "seen": "timestamp",
}


def schema_of(expression: str, kind: str, rounding: str = "refuse", measure: str = "count") -> Schema:
    columns = (
        Column("ts", "bigint"),
        *(Column(name, declared) for name, declared in READ.items()),
        Column("made", kind, rounding=rounding, expression=expression),  # type: ignore[arg-type]
    )
    table = Table(name="t", topic="t", columns=columns, time=TimeColumn("ts"))
    cube = Cube(name="c", table="t", dimensions=("shop",), measures=(Measure(measure, "made"),))
    return Schema(table, cube)


def decoded(schema: Schema, events: Iterable[dict[str, Any]]) -> Decoded:
    values = [msgspec.json.encode({"ts": 1000} | event) for event in events]
    offsets = np.arange(len(values))
    return EventDecoder(schema).decode(values, np.zeros(len(values), np.int32), offsets, now_ms=1000)


def made(expression: str, kind: str, event: dict[str, Any], rounding: str = "refuse") -> object:
    found = decoded(schema_of(expression, kind, rounding), [event])
    assert not len(found.rejects), found.rejects.detail
    return found.table.column("made").to_pylist()[0]


# --- the oracle --------------------------------------------------------------------------------------


def plain(node: Expression, event: dict[str, Any]) -> Any:
    """Return the value for one event: fractions, floats, texts, booleans or None."""
    match node:
        case Name():
            return event[node.name]
        case Value():
            return Fraction(node.value) if isinstance(node.value, Decimal) else node.value
        case Negative():
            found = plain(node.operand, event)
            return None if found is None else -found
        case Arithmetic():
            return computed(node, plain(node.left, event), plain(node.right, event))
        case Comparison():
            return compared(node.operator, plain(node.left, event), plain(node.right, event))
        case Both():
            sides = [plain(node.left, event), plain(node.right, event)]
            return False if False in sides else None if None in sides else True
        case Either():
            sides = [plain(node.left, event), plain(node.right, event)]
            return True if True in sides else None if None in sides else False
        case Inverse():
            found = plain(node.operand, event)
            return None if found is None else not found
        case IsNull():
            return plain(node.operand, event) is None
        case Case():
            for branch in node.branches:
                if plain(branch.condition, event) is True:
                    return plain(branch.result, event)
            return plain(node.otherwise, event)
        case Coalesce():
            return next((v for each in node.operands if (v := plain(each, event)) is not None), None)
        case Call():
            found = plain(node.operand, event)
            functions = {"abs": abs, "lower": str.lower, "upper": str.upper}
            return None if found is None else functions[node.function](found)


def computed(node: Arithmetic, left: Any, right: Any) -> Any:
    if left is None or right is None or (node.operator == "/" and right == 0):
        return None
    if node.operator == "/" or isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    operators = {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right}
    return left / right if node.operator == "/" else operators[node.operator]()


def compared(operator: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    return {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[operator]


# --- what is drawn -----------------------------------------------------------------------------------


def drawn_event(rng: random.Random) -> dict[str, Any]:
    event = {
        "small": rng.choice((0, 7, -3, 2**31 - 1, -(2**31))),
        "big": rng.choice((0, 12, -5, 2**63 - 1, -(2**63))),
        "price": Decimal(rng.choice(("0", "0.01", "2.5", "-1.99", "99999999.99"))),
        "wide": Decimal(rng.choice(("0", "0.000005", f"-{'9' * 24}.999999", "123.456789"))),
        "ratio": rng.choice((0.0, 0.5, -1.25, 1e9)),
        "late": rng.choice((False, True)),
        "shop": rng.choice(("", "Oslo", "OSLO", "quito")),
    }
    return {name: None if rng.random() < 0.2 else value for name, value in event.items()}


def number(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(("small", "big", "price", "wide", "ratio", "3", "0", "1.25", "2e1", "NULL"))
    match rng.randrange(6):
        case 0:
            return f"({number(rng, depth - 1)} {rng.choice('+-*/')} {number(rng, depth - 1)})"
        case 1:
            return f"-({number(rng, depth - 1)})"
        case 2:
            results = number(rng, depth - 1), number(rng, depth - 1)
            return f"CASE WHEN {condition(rng, depth - 1)} THEN {results[0]} ELSE {results[1]} END"
        case 3:
            return f"CASE WHEN {condition(rng, depth - 1)} THEN {number(rng, depth - 1)} END"
        case 4:
            return f"COALESCE({number(rng, depth - 1)}, {number(rng, depth - 1)})"
    return f"ABS({number(rng, depth - 1)})"


def condition(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(
            ("late", "NOT late", "late IS NULL", "small IN (7, 0, NULL)", "TRUE", "LOWER(shop) = 'oslo'")
        )
    match rng.randrange(5):
        case 0:
            sides = number(rng, depth - 1), number(rng, depth - 1)
            return f"{sides[0]} {rng.choice(('=', '<>', '<', '<=', '>', '>=', '!='))} {sides[1]}"
        case 1:
            return f"({condition(rng, depth - 1)} AND {condition(rng, depth - 1)})"
        case 2:
            return f"({condition(rng, depth - 1)} OR {condition(rng, depth - 1)})"
        case 3:
            return f"NOT ({condition(rng, depth - 1)})"
    return f"{number(rng, depth - 1)} {rng.choice(('BETWEEN', 'NOT BETWEEN'))} -1 AND 12.5"


def declared_for(rng: random.Random, text: str) -> str | None:
    """Return a type that takes the expression; None for one that is refused."""
    try:
        found = type_of(parse_expression(text), lambda name: parse_type(READ[name]))
    except DefinitionError:
        return None
    if found is None or found.kind == "double":
        return "double"
    if found.kind != "decimal":
        return str(found)
    kinds = (
        [f"decimal(38,{found.scale})", f"decimal({found.scale + 3},{found.scale})"]
        if found.scale < 36
        else []
    )
    return rng.choice([*kinds, *(("int", "bigint") if not found.scale else ())] or [None])  # type: ignore[list-item]


def limit_of(kind: ColumnType) -> tuple[Fraction, Fraction]:
    """Return the least and the greatest value."""
    if kind.kind == "decimal":
        most = Fraction(10**kind.precision - 1, 10**kind.scale)
        return -most, most
    bits = 31 if kind.kind == "int" else 63
    return Fraction(-(1 << bits)), Fraction((1 << bits) - 1)


def is_refused(value: Any, kind: ColumnType) -> bool:
    if value is None or kind.kind in ("boolean", "string"):
        return False
    if kind.kind == "double":
        return not math.isfinite(float(value))
    least, most = limit_of(kind)
    return not least <= value <= most


def is_same(found: Any, expected: Any, kind: ColumnType) -> bool:
    if found is None or expected is None or kind.kind in ("boolean", "string"):
        return found is expected or found == expected
    if kind.kind == "double":
        return math.isclose(found, float(expected), rel_tol=1e-9, abs_tol=1e-9)
    return Fraction(found) == expected


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(4)))
def test_drawn_expressions_equal_a_plain_evaluation_of_each_event(seed: int) -> None:
    rng = random.Random(SEED + seed)
    events = [drawn_event(rng) for _ in range(60)]
    exact = [
        {name: Fraction(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else value
         for name, value in event.items()}
        for event in events
    ]  # fmt: skip
    compared_values = refused_values = 0
    for _ in range(60):
        text = rng.choice((number, condition))(rng, 3)
        declared = declared_for(rng, text)
        if declared is None:
            continue
        kind, tree = parse_type(declared), parse_expression(text)
        expected = [plain(tree, event) for event in exact]
        found = decoded(schema_of(text, declared), events)
        refused = [place for place, value in enumerate(expected) if is_refused(value, kind)]
        assert found.rejects.index.tolist() == refused, text
        assert set(found.rejects.reason) <= {"out_of_range"}, text
        kept = [value for value in expected if not is_refused(value, kind)]
        for value, wanted in zip(found.table.column("made").to_pylist(), kept, strict=True):
            assert is_same(value, wanted, kind), (text, declared, value, wanted)
        compared_values += len(kept)
        refused_values += len(refused)
    assert compared_values > 1000, "runs in which little happens prove little"
    assert refused_values


# --- what is promised one by one ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "kind", "event", "expected"),
    [
        ("price * small", "decimal(21,2)", {"price": "1.25", "small": 4}, Decimal("5.00")),
        ("CASE WHEN small > 15 THEN small END", "int", {"small": 15}, None),
        ("CASE WHEN small > 15 THEN small END", "int", {"small": 16}, 16),
        ("big + 1", "decimal(20,0)", {"big": 2**63 - 1}, Decimal(2**63)),
        ("ratio / small", "double", {"ratio": 1.5, "small": 0}, None),
        ("day >= '2013-01-31'", "boolean", {"day": "2013-01-31"}, True),
        ("seen < '2013-01-31 10:00:00'", "boolean", {"seen": "2013-01-31T09:59:59Z"}, True),
        ("COALESCE(shop, 'nowhere')", "string", {}, "nowhere"),
        ("shop = 'it''s'", "boolean", {"shop": "it's"}, True),
        ("`small` = 1 or late", "boolean", {"late": True}, True),
        ("1 + 2", "int", {}, 3),
    ],
)
def test_an_expression_is_computed(
    expression: str, kind: str, event: dict[str, Any], expected: object
) -> None:
    validate_schema(schema_of(expression, kind))
    assert made(expression, kind, event) == expected


def test_more_digits_are_rounded_where_it_is_declared() -> None:
    event = {"price": "0.05", "small": 1}
    assert made("price * 0.5", "decimal(10,2)", event, "half_up") == Decimal("0.03")
    with pytest.raises(DefinitionError, match="at most 2 digits behind the point, or rounding: half_up"):
        validate_schema(schema_of("price * 0.5", "decimal(10,2)"))


def test_a_value_beyond_its_column_refuses_its_record_alone() -> None:
    found = decoded(schema_of("small * small", "int"), [{"small": 2}, {"small": 2**20}, {"small": 3}])
    assert found.table.column("made").to_pylist() == [4, 9]
    assert (found.rejects.index.tolist(), found.rejects.reason) == ([1], ["out_of_range"])
    assert found.rejects.detail == ["column made: small * small does not fit int"]


def test_columns_that_only_an_expression_reads_are_not_in_the_events() -> None:
    names = decoded(schema_of("price * small", "decimal(21,2)"), [{}]).table.column_names
    assert "made" in names
    assert not {"price", "small"} & set(names)


def test_a_record_cannot_give_a_computed_column() -> None:
    schema = schema_of("small + 1", "bigint")
    strict = msgspec.structs.replace(schema.table, unknown_columns="reject")
    event = {"small": 1, "made": 7}
    assert decoded(schema, [event]).table.column("made").to_pylist() == [2]
    assert decoded(Schema(strict, schema.cube), [event]).rejects.reason == ["unknown_column"]


@pytest.mark.parametrize(
    ("expression", "kind", "said"),
    [
        ("price *", "decimal(20,2)", "not an expression"),
        ("prise * 2", "decimal(20,2)", "no column prise .*did you mean 'price'"),
        ("made + 1", "int", "no column made is read from records"),
        ("price * 2", "int", "expected a whole number"),
        ("price / 2", "decimal(10,2)", "no double and no division"),
        ("shop + 1", "int", "[+] does not fit"),
        ("shop > 1", "boolean", "> does not fit"),
        ("late = 1", "boolean", "= does not fit"),
        ("NOT small", "boolean", "a condition does not fit"),
        ("day > 'soon'", "boolean", "compared with a time"),
        ("wide * wide * wide", "decimal(38,18)", "may need 92 digits"),
        ("CASE WHEN late THEN 1 ELSE 'x' END", "int", "CASE does not fit"),
        ("(" * (DEPTH_MAX + 1) + "small" + ")" * (DEPTH_MAX + 1), "int", "nested too deep"),
        ("+".join(["small"] * NODES_MAX), "int", "too large"),
        ("small " * 1_000, "int", "too long"),
    ],
)
def test_what_cannot_be_computed_exactly_is_refused_when_it_is_declared(
    expression: str, kind: str, said: str
) -> None:
    with pytest.raises(DefinitionError, match=said):
        validate_table(schema_of(expression, kind).table)


def test_columns_with_a_role_are_read() -> None:
    table = schema_of("small + 1", "bigint").table
    columns = (Column("ts", "bigint", expression="big"), *table.columns[1:])
    with pytest.raises(DefinitionError, match="the event time is computed"):
        validate_table(msgspec.structs.replace(table, columns=columns))
    with pytest.raises(DefinitionError, match="a lookup is read as it is"):
        validate_lookup(Lookup(name="l", file="l.csv", columns=(Column("a", "int", expression="1"),)))
    with_path = Column("made", "int", path="a.b", expression="small")
    with pytest.raises(DefinitionError, match="a computed column is not read"):
        validate_table(msgspec.structs.replace(table, columns=(*table.columns[:-1], with_path)))

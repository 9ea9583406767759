"""Avro: writers' schemas beside the columns' types, and registries that are away or change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.column_types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, ColumnType, decimal
from rtolap.events.classify import Leaf
from rtolap.events.decode import EventDecoder
from rtolap.events.event_time import EventTimeParser
from rtolap.events.formats.avro_reader import AvroReader
from rtolap.events.plan import JsonPlan
from rtolap.events.rows import at_path
from rtolap.kafka.schema_registry import RegisteredSchema
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.formats.avro_schema import parse_avro_schema
from rtolap.model.formats.record_format import RecordFormat
from rtolap.model.table import Column, Table, TimeColumn

from tests.events.formats.conftest import decoded, decoder_of
from tests.events.formats.test_contract import FULL, rows
from tests.support.formats.avro import encode, framed, varint, zigzag
from tests.support.formats.declared import AVRO_SCHEMA, SCHEMA_ID, Declared, avro_value, formats

ISO = EventTimeParser("iso8601", "UTC")


def leaf(kind: ColumnType, name: str = "v") -> Leaf:
    if kind in (DATE, TIMESTAMP):
        return Leaf(name, (name,), STRING, False, moment=kind, times=ISO)
    return Leaf(name, (name,), kind, False)


def read(schema: Any, values: list[bytes], *leaves: Leaf) -> tuple[pa.StructArray, dict[int, Any]]:
    """Read values of a record whose field `v` is of the schema."""
    record = {"type": "record", "name": "R", "fields": [{"name": "v", "type": schema}]}
    problems: dict[int, Any] = {}
    reader = AvroReader(JsonPlan(leaves, None), parse_avro_schema(json.dumps(record)))
    found, _ = reader.read(values, np.arange(len(values)), problems)
    return found, problems


@pytest.mark.parametrize(
    ("schema", "value", "kind", "found"),
    [
        ("int", 5, BIGINT, 5),
        ("long", 5, INT, 5),
        ("long", -(1 << 31), INT, -(1 << 31)),
        ("long", 7, DOUBLE, 7.0),
        ("int", 7, decimal(6, 2), Decimal("7.00")),
        ("float", 0.5, DOUBLE, 0.5),
        ("double", 3.0, BIGINT, 3),
        ("double", 0.1, decimal(6, 2), Decimal("0.10")),
        ("string", "12.50", decimal(6, 2), Decimal("12.50")),
        ("string", "-7", INT, -7),
        ("string", "2014-05-13", DATE, date(2014, 5, 13)),
        ("string", "2014-05-13T10:00:00+02:00", TIMESTAMP, datetime(2014, 5, 13, 8)),
        ("string", "true", BOOLEAN, True),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", STRING, "B"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            1500,
            TIMESTAMP,
            datetime(1970, 1, 1, 0, 0, 1, 500000),
        ),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            1500,
            TIMESTAMP,
            datetime(1970, 1, 1, 0, 0, 0, 1),
        ),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1500, BIGINT, 1500),
        ({"type": "int", "logicalType": "date"}, 3, TIMESTAMP, datetime(1970, 1, 4)),
        ({"type": "long", "logicalType": "timestamp-micros"}, 86_400_000_001, DATE, date(1970, 1, 2)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 4},
            Decimal("1.5"),
            decimal(6, 2),
            Decimal("1.50"),
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}, Decimal("-300"), INT, -300),
        ({"type": "long", "logicalType": "of another maker"}, 3, BIGINT, 3),
    ],
)
def test_values_of_a_writer_fit_columns_of_wider_and_other_types(
    schema: Any, value: Any, kind: ColumnType, found: Any
) -> None:
    column, problems = read(schema, [encode(schema, value)], leaf(kind))
    assert problems == {}
    assert at_path(column, ("v",)).to_pylist() == [found]


@pytest.mark.parametrize(
    ("schema", "value", "kind"),
    [
        ("long", 1 << 31, INT),
        ("double", 1.5, INT),
        ("double", float("inf"), DOUBLE),
        ("double", float("nan"), decimal(6, 2)),
        ("double", 0.125, decimal(6, 2)),
        ("long", 10_000, decimal(6, 2)),
        ("long", 5, STRING),
        ("boolean", True, INT),
        ("bytes", b"x", STRING),
        ("string", "0x10", INT),
        ("string", "yesterday", TIMESTAMP),
        ("long", 5, TIMESTAMP),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 4},
            Decimal("1.5555"),
            decimal(6, 2),
        ),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1 << 60, TIMESTAMP),
    ],
)
def test_values_that_do_not_fit_are_refused_alone(schema: Any, value: Any, kind: ColumnType) -> None:
    nullable = ["null", schema]
    values = [encode(nullable, None), encode(nullable, value), encode(nullable, None)]
    column, problems = read(nullable, values, leaf(kind))
    assert {place: problem.reason for place, problem in problems.items()} == {1: "wrong_type"}
    assert "column v: expected" in problems[1].detail
    assert at_path(column, ("v",)).to_pylist() == [None, None]


def test_a_record_where_a_value_is_wanted_is_refused_and_so_is_a_value_where_a_record_is() -> None:
    record = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}]}
    _, problems = read(record, [encode(record, {"n": 1})], leaf(INT))
    assert problems[0].reason == "nested_value"
    _, problems = read("int", [encode("int", 1)], Leaf("n", ("v", "n"), INT, False))
    assert problems[0].reason == "wrong_type"
    assert "an object at v" in problems[0].detail


def test_a_field_that_the_writer_lacks_is_null_and_fields_may_stand_in_any_order() -> None:
    values = [encode("int", 1), encode("int", 2)]
    column, problems = read("int", values, leaf(INT), leaf(STRING, "later"))
    assert problems == {}
    assert at_path(column, ("later",)).to_pylist() == [None, None]


def test_blocks_of_arrays_may_say_their_size_and_are_passed_over() -> None:
    items = zigzag(1) + zigzag(2)
    sized = zigzag(-2) + zigzag(len(items)) + items + b"\0"
    split = zigzag(1) + zigzag(1) + zigzag(1) + zigzag(2) + b"\0"
    schema = {
        "type": "record",
        "name": "I",
        "fields": [
            {"name": "skip", "type": {"type": "array", "items": "long"}},
            {"name": "n", "type": "int"},
        ],
    }
    values = [sized + zigzag(7), split + zigzag(8), b"\0" + zigzag(9), zigzag(1 << 40) + b"\2\0" + zigzag(9)]
    column, problems = read(schema, values, Leaf("n", ("v", "n"), INT, False))
    assert at_path(column, ("v", "n")).to_pylist() == [7, 8, 9]
    assert {place: problem.reason for place, problem in problems.items()} == {3: "malformed_avro"}


def test_a_type_that_holds_itself_is_read_as_deep_as_it_goes_and_no_deeper_than_64() -> None:
    tree = (
        '{"type":"record","name":"T","fields":[{"name":"v","type":"int"},{"name":"in","type":["null","T"]}]}'
    )
    reader = AvroReader(JsonPlan((leaf(INT),), None), parse_avro_schema(tree))
    shallow = zigzag(1) + b"\2" + zigzag(2) + b"\0"
    problems: dict[int, Any] = {}
    found, _ = reader.read([shallow, (zigzag(1) + b"\2") * 200 + zigzag(1) + b"\0"], np.arange(2), problems)
    assert at_path(found, ("v",)).to_pylist() == [1]
    assert problems[1].reason == "malformed_avro"
    assert "64" in problems[1].detail


def test_numbers_of_all_lengths_are_read() -> None:
    numbers = [sign * (1 << bits) + step for bits in range(63) for sign in (1, -1) for step in (0, -1)]
    column, problems = read("long", [zigzag(number) for number in numbers], leaf(BIGINT))
    assert problems == {}
    assert at_path(column, ("v",)).to_pylist() == numbers
    assert varint(300) == b"\xac\x02"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '"int"',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"Unknown"}]}',
        '{"type":"record","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":[["int"]]}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"fixed","name":"F","size":-1}}]}',
    ],
)
def test_a_schema_that_is_none_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"expected .*; found "):
        parse_avro_schema(text)


# What fastavro 1.13.1 has written of two events: the writer of these tests is not the only judge.
GOLDEN = {
    "0280c085e8be5104026b040278027900026c00000212613b2262222c63c3a902ffffffff0f02feffffffffffffffff01"
    "02000000000000c0bf0206f0bdc102010296fd010280898bebdcd2fc040202020e": FULL,
    "020204026b040278027900026c0000000000000000000000": dict.fromkeys(FULL) | {"ts": 1},
}


def test_records_of_another_writer_are_read() -> None:
    declared = next(each for each in formats() if each.name == "avro")
    found = decoded(decoder_of(declared), [bytes.fromhex(text) for text in GOLDEN])
    assert not len(found.rejects), found.rejects
    assert rows(found) == list(GOLDEN.values())
    assert [avro_value(event).hex() for event in GOLDEN.values()] == list(GOLDEN)


def by_registry() -> Declared:
    return next(each for each in formats() if each.name == "avro of a registry")


def test_schemas_of_one_batch_may_differ() -> None:
    """Producers change one after the other: a schema without a field, and one with a time of its own kind."""
    declared = by_registry()
    assert declared.schemas is not None
    fields = [field for field in AVRO_SCHEMA["fields"] if field["name"] not in ("unread", "s", "at")]
    fields.append({"name": "at", "type": ["null", "string"]})
    older: Mapping[str, Any] = AVRO_SCHEMA | {"fields": list(reversed(fields))}
    declared.schemas.schemas[3] = RegisteredSchema(json.dumps(older))
    event = FULL | {"s": None}
    old = dict(event) | {"outer": {"inner": {"n": 7}}, "at": "2014-05-13T16:53:20.123456"}
    values = [framed(SCHEMA_ID, avro_value(FULL)), framed(3, encode(older, old))] * 3
    found = decoded(decoder_of(declared), values)
    assert not len(found.rejects), found.rejects
    assert rows(found) == [FULL, event] * 3
    assert declared.schemas.asked == [3, SCHEMA_ID]  # each once


READER = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "v", "type": "long", "aliases": ["other", "old"]},
        {"name": "s", "type": "string", "default": "none"},
        {
            "name": "d",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            "default": "\u0001\u0002",
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 1500},
        {"name": "n", "type": ["null", "int"], "default": None},
        {
            "name": "in",
            "type": {
                "type": "record",
                "name": "I",
                "fields": [
                    {"name": "a", "type": "int", "default": 7},
                    {"name": "b", "type": "int", "aliases": ["c"]},
                ],
            },
            "default": {"b": 9},
        },
    ],
}


def test_a_readers_schema_gives_names_by_alias_and_defaults_where_the_record_is_there() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "c", "type": "int"}]}
    writer = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "old", "type": "int"}, {"name": "in", "type": ["null", inner]}],
    }
    plan = JsonPlan(
        (
            leaf(BIGINT),
            leaf(STRING, "s"),
            leaf(decimal(6, 2), "d"),
            leaf(TIMESTAMP, "at"),
            leaf(INT, "n"),
            Leaf("a", ("in", "a"), INT, False),
            Leaf("b", ("in", "b"), INT, False),
        ),
        None,
    )
    reader = parse_avro_schema(json.dumps(READER))
    problems: dict[int, Any] = {}
    both = AvroReader(plan, parse_avro_schema(json.dumps(writer)), reader)
    values = [encode(writer, {"old": 1, "in": {"c": 2}}), encode(writer, {"old": 3, "in": None}), b"\2"]
    found, _ = both.read(values, np.arange(3), problems)
    at = datetime(1970, 1, 1, 0, 0, 1, 500_000)
    beside = {"s": "none", "d": Decimal("2.58"), "at": at, "n": None}
    assert found.to_pylist() == [
        {"v": 1, "in": {"a": 7, "b": 2}, **beside},
        {"v": 3, "in": {"a": None, "b": None}, **beside},
    ]
    assert list(problems) == [2]
    bare = {"type": "record", "name": "R", "fields": [{"name": "v", "type": "long"}]}
    found, _ = AvroReader(plan, parse_avro_schema(json.dumps(bare)), reader).read(
        [zigzag(5)], np.arange(1), {}
    )
    assert found.to_pylist() == [{"v": 5, "in": {"a": 7, "b": 9}, **beside}]


@pytest.mark.parametrize("order", [(DATE, TIMESTAMP), (TIMESTAMP, DATE)])
@pytest.mark.parametrize(
    ("kind", "value"),
    [({"type": "long", "logicalType": "timestamp-millis"}, 90_000_000), ("string", "1970-01-02T01:00:00")],
)
def test_a_day_and_a_time_may_be_read_of_one_value(order: Any, kind: Any, value: Any) -> None:
    columns = [Column("ts", "bigint")]
    columns += [Column(each.kind, each.kind, path="v") for each in order]
    fields = [{"name": "ts", "type": "long"}, {"name": "v", "type": kind}]
    schema = {"type": "record", "name": "R", "fields": fields}
    form = RecordFormat(type="avro", schema=json.dumps(schema))
    table = Table(name="t", topic="t", columns=tuple(columns), time=TimeColumn("ts"), format=form)
    measures = (Measure("count", "date"), Measure("count", "timestamp"))
    decoder = EventDecoder(Schema(table, Cube(name="c", table="t", dimensions=(), measures=measures)))
    found = decoded(decoder, [encode(schema, {"ts": 1, "v": value})])
    assert not len(found.rejects), found.rejects
    (row,) = found.table.to_pylist()
    assert (row["date"], row["timestamp"]) == (date(1970, 1, 2), datetime(1970, 1, 2, 1))


def test_a_registry_and_a_readers_schema_stand_side_by_side() -> None:
    declared = by_registry()
    assert declared.schemas is not None
    renamed = [
        dict(field) | ({"name": "text"} if field["name"] == "s" else {}) for field in AVRO_SCHEMA["fields"]
    ]
    declared.schemas.schemas[SCHEMA_ID] = RegisteredSchema(json.dumps(AVRO_SCHEMA | {"fields": renamed}))
    aliased = [
        dict(field) | ({"aliases": ["text"]} if field["name"] == "s" else {})
        for field in AVRO_SCHEMA["fields"]
    ]
    form = RecordFormat(type="avro", registry="default", schema=json.dumps(AVRO_SCHEMA | {"fields": aliased}))
    found = decoded(decoder_of(declared, format=form), [declared.encode(FULL)])
    assert rows(found) == [FULL]


def test_nothing_of_a_batch_is_decoded_while_the_registry_is_away() -> None:
    declared = by_registry()
    assert declared.schemas is not None
    decoder = decoder_of(declared)
    declared.schemas.away = True
    values = [declared.encode(FULL), b"broken"]
    for _ in range(2):
        with pytest.raises(Unavailable):
            decoded(decoder, values)
    declared.schemas.away = False
    found = decoded(decoder, values)
    assert (rows(found), found.rejects.reason) == ([FULL], ["bad_framing"])


def test_a_host_that_knows_no_such_registry_says_so() -> None:
    with pytest.raises(DefinitionError, match="registry default"):
        decoder_of(replace(by_registry(), schemas=None))

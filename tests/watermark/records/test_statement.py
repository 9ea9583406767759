"""The format of docs/watermark_records.md."""

from __future__ import annotations

import json
import random

import pytest
from rtolap.base.errors import Corrupted, DefinitionError, Refused
from rtolap.kafka.interfaces import WATERMARK_HEADER, OutRecord
from rtolap.watermark.records.statement import (
    INT64_MAX,
    Statement,
    check_producer,
    control_record,
    decode,
    stating,
)

NAMES = ("store-0", "a", "host.example:7070/x_1", "x" * 200)


def test_a_statement_is_read_as_it_was_written() -> None:
    assert Statement("data", 7, 42, "store-0").encode() == b"1 data 7 42 store-0"
    assert Statement("end", 0, None, "a").encode() == b"1 end 0 - a"
    chance = random.Random(1)
    for _ in range(2000):
        statement = Statement(
            chance.choice(["data", "control", "end"]),
            chance.choice([0, INT64_MAX, chance.randrange(2**60)]),
            chance.choice([None, 0, INT64_MAX, chance.randrange(2**45)]),
            chance.choice(NAMES),
        )
        assert decode(statement.encode()) == decode(statement.encode().decode()) == statement


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"2 data 7 42 a",
        b"1 other 7 42 a",
        b"1 data 7 42",
        b"1 data -7 42 a",
        b"1 data 7 -42 a",
        b"1 data 7 42 a b",
        b"1  data 7 42 a",
        b"1 data 7 42 a\n",
        b"1 data 7 9223372036854775808 a",
        b"1 data 9223372036854775808 7 a",
        b"1 data 7 42 \xff",
        "1 data ٧ 42 a".encode(),
        b"1 data 7 42 " + b"x" * 201,
    ],
)
def test_what_is_no_statement_is_refused(text: bytes) -> None:
    with pytest.raises(Corrupted, match="expected 1 data"):
        decode(text)


def test_a_producer_has_a_name_and_a_generation_that_can_be_stated() -> None:
    for name in NAMES:
        check_producer(name, 0)
    for name in ("", "a b", "ä", 'a"', "x" * 201):
        with pytest.raises(DefinitionError, match="name of a producer"):
            check_producer(name, 0)
    for generation in (-1, INT64_MAX + 1):
        with pytest.raises(DefinitionError, match="generation"):
            check_producer("a", generation)


def test_a_header_is_added_beside_others_and_takes_the_place_of_anothers_statement() -> None:
    record = OutRecord(b"v", b"k", 3, {"trace": b"t", WATERMARK_HEADER: b"of an upstream"}, 9)
    alone = OutRecord(b"w", partition=1)
    assert stating([record, alone, alone], b"ours", None) == [
        OutRecord(b"v", b"k", 3, {"trace": b"t", WATERMARK_HEADER: b"ours"}, 9),
        *[OutRecord(b"w", partition=1, headers={WATERMARK_HEADER: b"ours"})] * 2,
    ]


@pytest.mark.parametrize("value", [b"{}", b' { "a" : 1 } \n', b'{"a":{"field":2},"b":"field}"}'])
def test_a_field_is_added_to_a_value_and_changes_nothing_else(value: bytes) -> None:
    (found,) = stating([OutRecord(value, headers={"trace": b"t"})], b"1 data 7 42 a", "field")
    assert found.headers == {"trace": b"t"}
    assert json.loads(found.value or b"") == {**json.loads(value), "field": "1 data 7 42 a"}


@pytest.mark.parametrize("value", [None, b"", b"[1]", b"no", b'{"a":1', b'{"field":1}', b"1"])
def test_a_value_that_cannot_carry_the_field_is_refused(value: bytes | None) -> None:
    with pytest.raises(Refused, match="field"):
        stating([OutRecord(value)], b"1 data 7 42 a", "field")


def test_a_control_record_is_recognised_by_what_it_states() -> None:
    statement = Statement("control", 7, 42, "store-0")
    by_header = control_record(statement, 3, None)
    assert (by_header.value, by_header.partition) == (None, 3)
    assert by_header.headers == {WATERMARK_HEADER: statement.encode()}
    by_field = control_record(statement, 3, "field")
    assert json.loads(by_field.value or b"") == {"field": statement.encode().decode()}
    assert by_field.key == by_header.key == b"rtolap-watermark/store-0"

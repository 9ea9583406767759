"""The contract of all formats: the same events give the same columns, and what is wrong is refused alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from rtolap.columnar.schema import EVENT_MS, OFFSET, PARTITION
from rtolap.events.decode import Decoded

from tests.events.conftest import NOW_MS
from tests.events.formats.conftest import Decode, decoded, decoder_of
from tests.support.formats.declared import NAMES, Declared
from tests.support.seeds import so_many

FULL: dict[str, Any] = {
    "ts": NOW_MS,
    "s": 'a;"b",c\u00e9',
    "i": -(1 << 31),
    "b": (1 << 63) - 1,
    "f": -0.125,
    "d": Decimal("-9999.99"),
    "ok": True,
    "day": date(2014, 5, 13),
    "at": datetime(2014, 5, 13, 16, 53, 20, 123456),
    "deep": 7,
}


def rows(found: Decoded) -> list[dict[str, Any]]:
    table = found.table.drop_columns([EVENT_MS, PARTITION])
    return [{name: value for name, value in row.items() if name != OFFSET} for row in table.to_pylist()]


def test_every_type_of_value_arrives(decode: Decode, declared: Declared) -> None:
    found = decode([declared.encode(FULL)])
    assert not len(found.rejects), found.rejects
    assert rows(found) == [FULL]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ts"])
def test_a_value_that_is_absent_is_null(decode: Decode, declared: Declared, name: str) -> None:
    found = decode([declared.encode(FULL | {name: None}), declared.encode(FULL)])
    assert not len(found.rejects), found.rejects
    assert rows(found) == [FULL | {name: None}, FULL]


def test_an_empty_text_is_not_null(decode: Decode, declared: Declared) -> None:
    assert rows(decode([declared.encode(FULL | {"s": ""})])) == [FULL | {"s": ""}]


def test_tombstones_and_empty_values_are_refused_by_name(decode: Decode, declared: Declared) -> None:
    found = decode([None, b"", declared.encode(FULL)])
    assert list(zip(found.rejects.index.tolist(), found.rejects.reason, strict=True)) == [
        (0, "tombstone"),
        (1, "empty"),
    ]
    assert found.table.column(OFFSET).to_pylist() == [2]


def test_a_record_without_a_time_is_refused(decode: Decode, declared: Declared) -> None:
    assert decode([declared.encode(FULL | {"ts": None})]).rejects.reason == ["missing_time"]


def test_a_broken_record_is_refused_alone(decode: Decode, declared: Declared) -> None:
    assert declared.broken, "a format of which nothing can be broken"
    values: list[bytes | None] = []
    expected = []
    for record, reason in declared.broken.values():
        expected.append((len(values) + 1, reason))
        values += [declared.encode(FULL), record]
    found = decode([*values, declared.encode(FULL)])
    assert list(zip(found.rejects.index.tolist(), found.rejects.reason, strict=True)) == expected
    assert rows(found) == [FULL] * (len(expected) + 1)
    assert all(found.rejects.detail)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [("i", "1.5", "wrong_type"), ("f", "abc", "wrong_type"), ("d", "1.555", "wrong_type")],
)
def test_a_value_that_does_not_fit_is_refused(
    decode: Decode, declared: Declared, name: str, value: str, reason: str
) -> None:
    if declared.typed:
        pytest.skip("such a value cannot be written; test_avro and test_protobuf have schemas of other types")
    found = decode([declared.encode(FULL | {name: value}), declared.encode(FULL)])
    assert (found.rejects.index.tolist(), found.rejects.reason) == ([0], [reason])
    assert rows(found) == [FULL]


def drawn(source: random.Random) -> dict[str, Any]:
    event: dict[str, Any] = {
        "ts": NOW_MS - source.randrange(10**9),
        "s": "".join(source.choices('abc ;",\u00e9\u6f22', k=source.choice((0, 3, 20)))),
        "i": source.randrange(-(1 << 31), 1 << 31),
        "b": source.choice((0, -1, source.randrange(-(1 << 63), 1 << 63))),
        "f": source.choice((0.0, 1.5, source.random() * 1e9)),
        "d": Decimal(source.randrange(-999_999, 1_000_000)).scaleb(-2),
        "ok": source.random() < 0.5,
        "day": date.fromordinal(source.randrange(600_000, 800_000)),
        "at": datetime(2014, 5, 13, 16, source.randrange(60), 20, source.randrange(10**6)),
        "deep": source.randrange(-5, 5),
    }
    return {name: None if name != "ts" and source.random() < 0.2 else value for name, value in event.items()}


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3)))
def test_drawn_batches_equal_their_events_whatever_stands_between(declared: Declared, seed: int) -> None:
    """Broken records stand among others; however the batch is cut, the same ones are refused."""
    source = random.Random(seed)
    events = [drawn(source) for _ in range(400)]
    values: list[bytes | None] = []
    kept, refused = [], []
    for event in events:
        if source.random() < 0.05:
            record, reason = source.choice(list(declared.broken.values()))
            refused.append((len(values), reason))
            values.append(record)
        kept.append(event)
        values.append(declared.encode(event))
    whole = decoded(decoder_of(declared), values)
    assert list(zip(whole.rejects.index.tolist(), whole.rejects.reason, strict=True)) == refused
    assert rows(whole) == kept
    decoder, parts, first = decoder_of(declared), [], 0
    while first < len(values):
        last = first + source.randrange(1, 60)
        parts += rows(decoded(decoder, values[first:last]))
        first = last
    assert parts == kept


def test_unknown_fields_are_refused_where_the_table_says_so(declared: Declared) -> None:
    if declared.name == "csv":
        pytest.skip("fields of csv have no names; the definition is refused, see test_validation")
    encode: Callable[[dict[str, Any]], bytes] = declared.encode
    record = encode(FULL | {"other": 1}) if not declared.typed else encode(FULL)
    found = decoded(decoder_of(declared, unknown_columns="reject"), [record])
    assert found.rejects.reason == ["unknown_column"]

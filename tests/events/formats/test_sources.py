"""Columns of a record's key, headers, timestamp, partition and offset."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.events.decode import EventDecoder
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.formats.record_format import RecordFormat
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.model.validation.definition import validate_schema

SENT_MS = 1_400_000_000_123
COLUMNS = (
    Column("at", "timestamp", source="timestamp"),
    Column("customer", "bigint", source="key"),
    Column("origin", "string", source="header:origin"),
    Column("part", "int", source="partition"),
    Column("place", "bigint", source="offset"),
    Column("amount", "int"),
)


def decoder(columns: tuple[Column, ...] = COLUMNS, **changes: Any) -> EventDecoder:
    values: dict[str, Any] = {
        "name": "t",
        "topic": "t",
        "columns": columns,
        "time": TimeColumn("at", "iso8601"),
    }
    table = Table(**(values | changes))
    measures = [Measure("count", name) for name in ("amount", "place") if name in {c.name for c in columns}]
    dimensions = tuple(each.name for each in columns if each.name in ("customer", "origin", "part"))
    schema = Schema(table, Cube(name="c", table="t", dimensions=dimensions, measures=tuple(measures)))
    validate_schema(schema)
    return EventDecoder(schema)


def test_they_stand_beside_the_values_of_the_record() -> None:
    found = decoder().decode(
        [b'{"amount": 1}', b"broken", b'{"amount": 2}', b"{}"],
        np.array([3, 0, 0, 1], np.int32),
        np.array([10, 20, 21, 30]),
        now_ms=SENT_MS,
        create_ms=np.array([SENT_MS, SENT_MS, SENT_MS + 1, SENT_MS]),
        texts={"key": [b"7", b"8", None, b"-9"], "header:origin": [b"JFK", None, "\u00e9".encode(), b""]},
    )
    rows = [{name: row[name] for name in [each.name for each in COLUMNS]} for row in found.table.to_pylist()]
    at = datetime(2014, 5, 13, 16, 53, 20, 123_000)
    assert rows == [
        {"at": at, "customer": 7, "origin": "JFK", "part": 3, "place": 10, "amount": 1},
        {
            "at": at.replace(microsecond=124_000),
            "customer": None,
            "origin": "\u00e9",
            "part": 0,
            "place": 21,
            "amount": 2,
        },
        {"at": at, "customer": -9, "origin": "", "part": 1, "place": 30, "amount": None},
    ]
    assert found.rejects.reason == ["malformed_json"]


def test_what_does_not_fit_its_column_is_refused_alone() -> None:
    found = decoder().decode(
        [b"{}"] * 4,
        np.zeros(4, np.int32),
        np.arange(4),
        now_ms=SENT_MS,
        create_ms=np.array([SENT_MS, SENT_MS, SENT_MS, -1]),
        texts={"key": [b"7", b"seven", b"1", b"1"], "header:origin": [b"a", b"a", b"\xff", b"a"]},
    )
    assert list(zip(found.rejects.index.tolist(), found.rejects.reason, strict=True)) == [
        (1, "wrong_type"),
        (2, "invalid_utf8"),
        (3, "missing_time"),
    ]
    assert found.table.num_rows == 1


@pytest.mark.parametrize("form", [RecordFormat(), RecordFormat(type="csv", fields=("a",))])
def test_nothing_of_the_value_need_be_read(form: RecordFormat) -> None:
    made = decoder(COLUMNS[:3], format=form)
    found = made.decode(
        [b"{}", None],
        np.zeros(2, np.int32),
        np.arange(2),
        now_ms=SENT_MS,
        create_ms=np.array([SENT_MS, SENT_MS]),
        texts={"key": [b"7", b"8"]},
    )
    assert found.table.column("customer").to_pylist() == [7]
    assert found.rejects.reason == ["tombstone"]


def test_the_timestamp_is_a_number_in_the_units_of_the_tables_time() -> None:
    columns = (Column("at", "bigint", source="timestamp"), Column("amount", "int"))
    for unit, expected in (("epoch_ms", SENT_MS), ("epoch_s", SENT_MS // 1000), ("epoch_us", SENT_MS * 1000)):
        found = decoder(columns, time=TimeColumn("at", unit)).decode(
            [b'{"amount": 1}'],
            np.zeros(1, np.int32),
            np.arange(1),
            now_ms=SENT_MS,
            create_ms=np.array([SENT_MS]),
        )
        assert found.table.column("at").to_pylist() == [expected]


@pytest.mark.parametrize(
    ("column", "match"),
    [
        (
            Column("x", "string", source="keys"),
            r"columns\[1\]\.source: unknown source; expected",
        ),
        (Column("x", "string", source="header:"), "unknown source"),
        (Column("x", "string", source="key", path="a.b"), "no path: only values have parts"),
        (Column("x", "bigint", source="timestamp"), "another column reads it; expected a source once"),
        (Column("x", "int", source="offset", expression="1 + 1"), "a computed column is not read"),
    ],
)
def test_a_source_that_is_none_is_refused(column: Column, match: str) -> None:
    with pytest.raises(DefinitionError, match=match):
        decoder((COLUMNS[0], column, COLUMNS[5]))

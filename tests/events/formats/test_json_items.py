"""Items of JSON arrays as columns, and dates and timestamps that are written in other ways than ISO 8601."""

from __future__ import annotations

import json
import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rtolap.base.errors import DefinitionError
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.loader import Loader, LoaderColumn
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.model.validation.definition import validate_schema
from rtolap.model.validation.loader import loader_problems
from rtolap.model.value_paths import path_steps, path_text

from tests.support.seeds import so_many

NOW_MS = 1_400_000_000_000


def decode(columns: tuple[Column, ...], *values: dict[str, Any] | bytes, **changes: Any) -> Decoded:
    every = (Column("ts", "bigint"), *columns)
    table = Table(name="t", topic="t", columns=every, time=TimeColumn("ts", "epoch_ms"), **changes)
    cube = Cube(
        name="c", table="t", dimensions=(), measures=tuple(Measure("count", each.name) for each in columns)
    )
    schema = Schema(table, cube)
    validate_schema(schema)
    records = [
        value if isinstance(value, bytes) else json.dumps({"ts": 1, **value}).encode() for value in values
    ]
    count = len(records)
    return EventDecoder(schema).decode(records, np.zeros(count, np.int32), np.arange(count), now_ms=NOW_MS)


def column(found: Decoded, name: str) -> list[Any]:
    values: list[Any] = found.table.column(name).to_pylist()
    return values


def test_paths_are_read_as_written_in_jsonpath_and_without_its_root() -> None:
    for path in ("a.b[0].c", "$.a.b[0].c"):
        assert path_steps(path) == ("a", "b", "[0]", "c")
    assert path_text(("a", "b", "[0]", "[12]", "c")) == "a.b[0][12].c"
    for wrong in ("a..b", "a[", "a[x]", "a]b", "a[0]b", ""):
        assert not all(path_steps(wrong))


def test_an_item_is_null_where_there_is_none() -> None:
    columns = (Column("c", "int", path="$.a.b[1].c"), Column("d", "string", path="a.b[0].d"))
    found = decode(
        columns,
        {"a": {"b": [{"d": "x"}, {"c": 5}, {"c": 6}]}},
        {"a": {"b": [{"d": "y"}]}},
        {"a": {"b": []}},
        {"a": {"b": None}},
        {"a": {}},
        {},
        {"a": {"b": [None, {"c": None}]}},
    )
    assert not len(found.rejects), found.rejects
    assert column(found, "c") == [5, None, None, None, None, None, None]
    assert column(found, "d") == ["x", "y", None, None, None, None, None]


def test_items_themselves_are_columns_and_lose_no_digit() -> None:
    columns = (Column("x", "int", path="p[0]"), Column("d", "decimal(6,2)", path="q[1]"))
    found = decode(
        columns,
        {"p": [1, 2], "q": [0, 2.25]},
        {"p": [1.5], "q": []},
        b'{"ts":1,"p":[1e0],"q":["1","7.50"]}',
        b'{"ts":1,"q":[1,2.255]}',
        b'{"ts":1,"p":["x"]}',
        b'{"ts":1,"p":{"0":1}}',
    )
    assert column(found, "x") == [1, 1]
    assert column(found, "d") == [Decimal("2.25"), Decimal("7.50")]
    assert list(zip(found.rejects.index.tolist(), found.rejects.reason, strict=True)) == [
        (1, "wrong_type"),
        (3, "wrong_type"),
        (4, "wrong_type"),
        (5, "wrong_type"),
    ]
    assert "expected an array at p" in found.rejects.detail[3]


def test_all_items_of_an_array_have_the_type_of_the_column() -> None:
    """The reader reads all of them as one type; a record with others is refused, whatever else is read."""
    found = decode((Column("x", "int", path="p[0]"),), {"p": [1, "a"]}, {"p": [1, 2]})
    assert (found.rejects.index.tolist(), found.rejects.reason) == ([0], ["wrong_type"])
    with pytest.raises(DefinitionError, match="as another type"):
        decode((Column("x", "int", path="p[0]"), Column("y", "string", path="p[1]")), {})


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3)))
def test_drawn_arrays_are_read_as_python_reads_them(seed: int) -> None:
    source = random.Random(seed)
    values = []
    for _ in range(3000):
        legs = [
            {"n": source.choice((None, source.randrange(100))), "s": source.choice(("a.1", "é", "", None))}
            for _ in range(source.randrange(4))
        ]
        numbers = [source.choice((None, source.randrange(-9, 9))) for _ in range(source.randrange(4))]
        values.append({"legs": source.choice((legs, legs, None)), "m": [numbers, []]})
    columns = (
        Column("n", "bigint", path="legs[1].n"),
        Column("s", "string", path="legs[2].s"),
        Column("m", "int", path="m[0][2]"),
    )
    found = decode(columns, *values)
    assert not len(found.rejects)

    def item(items: Any, at: int) -> Any:
        return items[at] if items is not None and len(items) > at else None

    assert column(found, "n") == [(item(each["legs"], 1) or {}).get("n") for each in values]
    assert column(found, "s") == [(item(each["legs"], 2) or {}).get("s") for each in values]
    assert column(found, "m") == [item(each["m"][0], 2) for each in values]


def test_dates_and_timestamps_are_written_as_their_column_says() -> None:
    columns = (
        Column("seconds", "timestamp", format="epoch_s"),
        Column("millis", "date", format="epoch_ms"),
        Column("german", "date", format="%d.%m.%Y"),
        Column("zoned", "timestamp", format="%Y-%m-%d %H:%M %z"),
    )
    full = {
        "seconds": 1_400_000_000,
        "millis": "1400000000000",
        "german": "13.05.2014",
        "zoned": "2014-05-13 18:00 +0200",
    }
    found = decode(columns, full, {}, full | {"german": "2014-05-13"}, full | {"seconds": "soon"})
    assert column(found, "seconds") == [datetime(2014, 5, 13, 16, 53, 20), None]
    assert column(found, "millis") == [date(2014, 5, 13), None]
    assert column(found, "german") == [date(2014, 5, 13), None]
    assert column(found, "zoned") == [datetime(2014, 5, 13, 16), None]
    assert found.rejects.reason == ["wrong_type", "wrong_type"]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (Column("x", "string", format="epoch_s"), r"columns\[1\].format: not for this column"),
        (Column("x", "date", format="%d.%m"), "the pattern holds no whole date"),
        (Column("x", "date", format="epoch"), "unknown format"),
        (Column("x", "int", path="a[b]"), "an empty step in a path"),
    ],
)
def test_formats_and_paths_of_columns_are_checked(wrong: Column, match: str) -> None:
    with pytest.raises(DefinitionError, match=match):
        decode((wrong,), {})


@given(st.text(alphabet="ab.[]0\"\\\x00\n\x1f\x7f$é\u2028 {}'", min_size=1, max_size=8))
def test_a_path_that_a_definition_takes_is_one_that_readers_look_for(path: str) -> None:
    try:
        found = decode((Column("x", "string", path=path),), {"other": 1})
    except DefinitionError:
        return
    assert found.rejects.reason == []
    assert column(found, "x") == [None]


@pytest.mark.parametrize("path", ["a..b", "a[b]", 'a"', "a\\b", "a\nb"])
def test_a_loader_refuses_paths_that_no_reader_looks_for(path: str) -> None:
    (problem,) = loader_problems(
        Loader(name="l", topic="t", database="d", table="t", columns=(LoaderColumn("x", path=path),))
    )
    assert problem.key == ("columns", 0, "path")

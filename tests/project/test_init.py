"""Drawn records of drawn shapes give definitions that the product reads and that refuse none of them."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rtolap.base.errors import AlreadyExists, DefinitionError
from rtolap.events.decode import EventDecoder
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.yaml_files import read_definitions
from rtolap.project.files import write_project
from rtolap.project.guess import Source, guess
from rtolap.project.records import Record
from rtolap.project.times import PATTERNS

NOW_MS = 1_700_000_000_000
Draw = random.Random
NAMES = [
    "host",
    "User Name",
    "userName",
    "user_name",
    "größe",
    "a.b",
    "x[0]",
    "",
    "$",
    "hour_start",
    "1st",
    "a__b",
]
NAMES += ["\x07bell", "\u2028line", "😀", "# no comment", "null", "yes", "k: v", "order_id", "price", "\x85"]


def drawn_text(draw: Draw) -> str:
    return "".join(draw.choices(string.printable + "é€😀\x00\x7f", k=draw.randint(0, 12)))


VALUES: dict[str, Callable[[Draw], Any]] = {
    "small": lambda draw: draw.randint(-100, 100),
    "wide": lambda draw: draw.randint(-(1 << 63), (1 << 63) - 1),
    "huge": lambda draw: draw.randint(-(10**37), 10**37),
    "too_huge": lambda draw: draw.randint(-(10**45), 10**45),
    "float": lambda draw: draw.choice([draw.uniform(-1e9, 1e9), draw.randint(0, 9), 1e300, 5e-324]),
    "few": lambda draw: draw.choice(["red", "green", "blue"]),
    "text": drawn_text,
    "digits": lambda draw: str(draw.randint(0, 10**6)),
    "flag": lambda draw: draw.random() < 0.5,
    "null": lambda draw: None,
    "list": lambda draw: [1, "a"][: draw.randint(0, 2)],
    "mixed": lambda draw: draw.choice([1, "a", True, None, 2.5, {"in": 1}, [1]]),
    "object": lambda draw: {"in": draw.randint(0, 5), "deep": {"er": draw.choice(["a", "b"])}},
    "odd_object": lambda draw: draw.choice([{"in": 1}, {"in": "a"}, None, {}]),
}
TIMES: dict[str, Callable[[int], Any]] = {
    "epoch_s": lambda ms: ms // 1000,
    "epoch_ms": lambda ms: ms,
    "epoch_us": lambda ms: ms * 1000,
    "iso8601": lambda ms: datetime.fromtimestamp(ms / 1000, UTC).isoformat(),
} | {
    pattern: lambda ms, pattern=pattern: datetime.fromtimestamp(ms // 1000, UTC).strftime(pattern)  # type: ignore[misc]
    for pattern in PATTERNS
}


def drawn_records(draw: Draw, form: str, time_name: str = "ts") -> list[dict[str, Any]]:
    makers = {name: VALUES[draw.choice(list(VALUES))] for name in draw.sample(NAMES, draw.randint(0, 12))}
    records = []
    for _ in range(draw.randint(1, 60)):
        record = {name: make(draw) for name, make in makers.items() if draw.random() < 0.9}
        record[time_name] = TIMES[form](NOW_MS - draw.randint(0, 10**10))
        items = list(record.items())
        draw.shuffle(items)
        records.append(dict(items))
    return records


def encoded(records: list[dict[str, Any]]) -> list[Record]:
    return [Record(json.dumps(each).encode(), NOW_MS) for each in records]


def refusals(folder: Path, records: list[Record]) -> list[str]:
    """Return why the written table refuses records, when its own cube and when all columns are read."""
    definitions = read_definitions(folder / "include")
    (table,), (cube,) = definitions.tables.values(), definitions.cubes.values()
    everything = tuple(Measure("count", column.name) for column in table.columns)
    found = []
    for each in (cube, Cube(name="c", table=table.name, dimensions=(), measures=everything)):
        decoded = EventDecoder(Schema(table, each)).decode(
            [record.value for record in records],
            np.zeros(len(records), np.int32),
            np.arange(len(records)),
            now_ms=NOW_MS,
        )
        found += decoded.rejects.reason
        assert decoded.table.num_rows + len(decoded.rejects) == len(records)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_the_written_definitions_refuse_no_drawn_record(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    form = sorted(TIMES)[seed % len(TIMES)]
    records = encoded(drawn_records(draw, form))
    guessed = guess("Web.Clicks-1", records, now_ms=NOW_MS)
    table, cube = write_project(guessed, tmp_path)
    assert (table, cube) == tuple(
        tmp_path / "include" / kind / "web_clicks_1.yaml" for kind in ("tables", "cubes")
    )
    assert refusals(tmp_path, records) == []
    assert guessed.table.time.column == "ts"
    assert guessed.table.topic == "Web.Clicks-1"


def test_dimensions_measures_and_reasons(tmp_path: Path) -> None:
    records = [
        {"at": f"2023-01-0{1 + n % 7}T00:00:{n % 60:02}Z", "city": "ab"[n % 2], "price": n / 7, "order_id": n,
         "session": f"s{n}", "geo": {"land": "de"}, "tags": [1], "odd": n if n % 2 else "x", "none": None}
        for n in range(300)
    ]  # fmt: skip
    guessed = guess("sales", encoded(records), now_ms=NOW_MS)
    table, cube = guessed.table, guessed.cube
    assert (table.time.column, table.time.format) == ("at", "iso8601")
    assert {column.name: (column.type, column.path) for column in table.columns} == {
        "at": ("string", None), "city": ("string", None), "price": ("double", None),
        "order_id": ("bigint", None),
        "session": ("string", None), "geo_land": ("string", "geo.land"),
    }  # fmt: skip
    assert cube.dimensions == ("city", "geo_land")
    assert [(each.function, each.column) for each in cube.measures] == [
        ("count", None), ("sum", "price"), ("min", "price"), ("max", "price"),
        ("approx_distinct", "order_id"),
        ("approx_distinct", "session"),
    ]  # fmt: skip
    assert [path for path, _ in guessed.left_out] == ["tags", "odd", "none"]
    text = write_project(guessed, tmp_path)[0].read_text()
    for word in ("several types: integer, string", "an array", "null in every record", "few, so a dimension"):
        assert word in text


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    guessed = guess("t", encoded([{"ts": NOW_MS}]), now_ms=NOW_MS)
    cube = tmp_path / "include" / "cubes" / "t.yaml"
    cube.parent.mkdir(parents=True)
    cube.write_text("mine")
    with pytest.raises(AlreadyExists, match="not overwritten"):
        write_project(guessed, tmp_path)
    assert cube.read_text() == "mine"
    assert not (tmp_path / "include" / "tables").exists()
    cube.unlink()
    cube.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AlreadyExists):
        write_project(guessed, tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_broken_records_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    broken = [b"", b"{", b"[1]", b"\xff", None, b'{"ts": NaN}', b"7"]
    sound = encoded([{"ts": NOW_MS, "a": n} for n in range(5)])
    guessed = guess("t", [*map(Record, broken), *sound], now_ms=NOW_MS)
    assert (guessed.looked_at, guessed.broken) == (12, 7)
    assert "7 of them are not a JSON object" in write_project(guessed, tmp_path)[0].read_text()
    assert refusals(tmp_path, sound) == []


def test_a_time_that_not_every_record_has_or_that_is_in_the_future_is_not_taken() -> None:
    records = [{"ts": NOW_MS + 10**9, "seen_at": NOW_MS, "time": NOW_MS if n else None} for n in range(3)]
    assert guess("t", encoded(records), now_ms=NOW_MS).table.time.column == "seen_at"


def test_a_column_that_refuses_a_record_is_left_out_and_the_others_stay(tmp_path: Path) -> None:
    """JSON has numbers that no double holds."""
    texts = [f'{{"ts": {NOW_MS}, "far": {far}, "n": 1.5}}' for far in ("1e400", "2.5")]
    records = [Record(text.encode(), NOW_MS) for text in texts]
    guessed = guess("t", records, now_ms=NOW_MS)
    assert [column.name for column in guessed.table.columns] == ["ts", "n"]
    assert [path for path, _ in guessed.left_out] == ["far"]
    write_project(guessed, tmp_path)
    assert refusals(tmp_path, records) == []


def test_errors_name_what_was_expected_found_and_what_to_do() -> None:
    with pytest.raises(DefinitionError) as none:
        guess("t", encoded([{"size": 1, "name": "a"}]), now_ms=NOW_MS)
    assert none.value.expected is not None
    assert "ISO 8601" in none.value.expected
    assert "size (integer), name (string)" in str(none.value.found)
    assert "--time-column" in str(none.value.action)
    with pytest.raises(DefinitionError, match="no record of topic t is a JSON object"):
        guess("t", [Record(b"a;b;c")], now_ms=NOW_MS, source=Source("json"))
    with pytest.raises(DefinitionError, match="name cannot be the event time"):
        guess("t", encoded([{"ts": NOW_MS, "name": "a"}]), now_ms=NOW_MS, time_path="name")


def test_the_time_that_somebody_names_is_taken() -> None:
    records = encoded([{"ts": NOW_MS, "when": {"d": "31-01-2023"}, "n": 5}])
    guessed = guess("t", records, now_ms=NOW_MS, time_path="when.d", time_format="%d-%m-%Y")
    assert (guessed.table.time.column, guessed.table.time.format) == ("when_d", "%d-%m-%Y")
    assert guess("t", records, now_ms=NOW_MS, time_path="n", time_format="epoch_s").table.time.column == "n"

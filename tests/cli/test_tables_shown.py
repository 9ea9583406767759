"""Tables at 80 columns: no column is left out or cut, quantities are texts, and JSON keeps numbers."""

from __future__ import annotations

import ast
import importlib
import io
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import rtolap
from rich.cells import cell_len
from rich.console import Console
from rtolap.cli.output import for_people, print_table, text_table
from rtolap.model.quantities import instant_text, size_text, span_text

WIDTH = 80
SEEDS = range(200)
ROOMS = ("cli", "sep/status", "fleet/monitoring")
PACKAGE = Path(rtolap.__file__).parent


def tables() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(where, columns) of every table whose columns stand in the code."""
    for room in ROOMS:
        for file in sorted((PACKAGE / room).rglob("*.py")):
            name = ".".join(("rtolap", *file.relative_to(PACKAGE).with_suffix("").parts))
            yield from _columns_in(file, name)


def _columns_in(file: Path, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print_table":
            try:
                columns = ast.literal_eval(node.args[0])
            except ValueError:
                continue
            yield f"{name}:{node.lineno}", tuple(map(str, columns))
    module = importlib.import_module(name)
    for constant, value in vars(module).items():
        if constant.endswith(("COLUMNS", "_AUDIT")) and isinstance(value, tuple):
            yield f"{name}.{constant}", value


def shown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    console = Console(width=WIDTH, file=io.StringIO(), force_terminal=False)
    console.print(text_table(*for_people(columns, rows)))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def assert_all_is_shown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    text = shown(columns, rows)
    assert max(cell_len(line.rstrip()) for line in text.splitlines()) <= WIDTH, text
    names, values = for_people(columns, rows)
    for word in (word for name in names for word in name.split()):
        assert word in text, (word, text)
    for value in (str(value) for row in values for value in row if value is not None):
        letters = set(value) - set(" ")
        for letter in letters:
            assert text.count(letter) >= value.count(letter), (value, text)


def long_row(columns: Sequence[str], number: int) -> list[Any]:
    """A row whose numbers are large and whose texts are long, each of a letter of its own."""
    quantities = {"bytes": 7 << 40, "ms": 1_790_000_000_000, "per_s": 123_456_789, "_s": 86_399}
    return [
        next((value for suffix, value in quantities.items() if name.endswith(suffix)), chr(0x430 + at) * 30)
        for at, name in enumerate(columns)
    ]


TABLES = dict(tables())


@pytest.mark.parametrize("where", TABLES)
def test_every_table_is_readable_at_eighty_columns(where: str) -> None:
    columns = TABLES[where]
    assert_all_is_shown(columns, [long_row(columns, number) for number in range(3)])


def test_the_tables_of_the_commands_are_found() -> None:
    assert len(TABLES) > 30


@pytest.mark.parametrize("seed", SEEDS)
def test_any_table_is_readable_at_eighty_columns(seed: int) -> None:
    chooser = random.Random(seed)
    columns = [chr(0x391 + at) * chooser.randrange(1, 14) for at in range(chooser.randrange(1, 16))]
    rows = [
        [
            chooser.choice((None, 7, 10**12 + at, chr(0x430 + at) * chooser.randrange(60)))
            for at in range(len(columns))
        ]
        for _ in range(chooser.randrange(1, 4))
    ]
    assert_all_is_shown(columns, rows)


def test_a_table_that_fits_has_its_columns_side_by_side() -> None:
    first, *_ = (line for line in shown(("name", "rows"), [("flights", 12)]).splitlines() if line.strip())
    assert first.split() == ["name", "rows"]


def test_a_table_without_rows_has_its_columns() -> None:
    columns = [f"column_{at}" for at in range(5)]
    assert all(name in shown(columns, []) for name in columns)


def test_quantities_are_texts_for_people_and_numbers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ("size_bytes", "bytes_per_s", "at_ms", "behind_ms", "left_s", "note_ms")
    row = (3 << 20, 2048, 1_700_000_000_000, 90_000, None, "none")
    names, ((size, rate, at, behind, left, note),) = for_people(columns, [row])
    assert names == ("size", "rate", "at", "behind", "left", "note_ms")
    assert (size, rate, at) == ("3.0 MiB", "2.0 KiB/s", "2023-11-14 22:13:20Z")
    assert (behind, left, note) == ("1m30s", None, "none")
    print_table(columns, [row], as_json=True)
    assert json.loads(capsys.readouterr().out) == [dict(zip(columns, row, strict=True))]


def test_quantities() -> None:
    assert [size_text(each) for each in (0, 1023, 1024, -(5 << 30), 1 << 60)] == [
        *("0 B", "1023 B", "1.0 KiB", "-5.0 GiB", "1024.0 PiB")
    ]
    assert instant_text(0) == "1970-01-01 00:00:00Z"
    assert instant_text(1 << 62) == f"{1 << 62} ms"
    assert [span_text(each) for each in (0, 9_500, 61_234, -1_000)] == ["0s", "9s500ms", "1m1s", "-1s"]


def test_nobody_writes_bytes_or_instants_in_another_way() -> None:
    """One formatter: no other module of the commands has one of its own."""
    own = [
        str(file.relative_to(PACKAGE))
        for room in ("cli", "sep/status", "fleet")
        for file in (PACKAGE / room).rglob("*.py")
        if any(word in file.read_text() for word in ("strftime(", "1e9:", '"MB"', '"MiB"'))
    ]
    assert own == []

"""Definitions are read strictly, and every problem names its file, line, key, expected and found."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.model.cube import Cube, Measure
from rtolap.model.table import Column
from rtolap.model.yaml_files import read_definitions

TABLE = """\
kind: table
name: sales
topic: sales
time: {column: at, format: epoch_ms}
columns:
  - {name: at, type: bigint}
  - {name: shop, type: string, path: where.shop}
  - {name: price, type: "decimal(10,2)"}
"""
CUBE = """\
kind: cube
name: sales_cube
table: sales
dimensions: [shop]
time_dimensions: [hour]
measures:
  - {function: count}
  - {function: sum, column: price}
segment:
  window: 6h
  allowed_lateness: 1h30m
retention: {policy: PURGE, after: 2d}
"""


def problems(tmp_path: Path, **files: str) -> list[str]:
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(DefinitionError) as caught:
        read_definitions(tmp_path)
    return [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()]


def test_tables_cubes_and_lookups_are_read_from_any_mix_of_files(tmp_path: Path) -> None:
    lookup = "kind: lookup\nname: shops\nfile: shops.csv\ncolumns: [{name: shop, type: string}]\n"
    (tmp_path / "deep").mkdir()
    (tmp_path / "all.yaml").write_text(f"{CUBE}---\n{lookup}")
    (tmp_path / "deep" / "table.yml").write_text(TABLE)
    (tmp_path / "receivers.yaml").write_text("- {id: r0, replica_set: rs-0}\n")
    found = read_definitions(tmp_path)
    assert found.tables["sales"].columns[1] == Column("shop", "string", "where.shop")
    assert found.cubes["sales_cube"].measures == (Measure("count"), Measure("sum", "price"))
    assert list(found.lookups) == ["shops"]


def test_durations_are_written_without_the_unit_in_the_key(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{TABLE}---\n{CUBE}late: {{merge_after_ms: 1500}}\n")
    cube: Cube = read_definitions(tmp_path / "a.yaml").cubes["sales_cube"]
    assert cube.segment.window_ms == 21_600_000
    assert cube.segment.allowed_lateness_ms == 5_400_000
    assert cube.retention.after_ms == 172_800_000
    assert cube.late.merge_after_ms == 1500


def test_all_problems_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    cube = CUBE.replace("column: price", "colum: price").replace("window: 6h", "window: 6 moons")
    table = TABLE.replace("type: bigint", "type: bigit").replace("topic: sales", "topic: 7")
    assert problems(tmp_path, cube=cube, table=table) == [
        "cube.yaml:8: measures[1].colum: unknown key; expected one of function, column, lg_k, k, "
        "lg_max, where, name, input, bytes_max; found 'colum'; did you mean 'column'?",
        "cube.yaml:10: segment.window: wrong value; expected a duration such as 500ms, 30s, 15m, 6h, "
        "1d or 1h30m; found '6 moons' (str)",
        "table.yaml:3: topic: wrong value; expected text; found '7' (int); put it in quotes",
    ]


def test_units_weeks_and_the_policy_for_times_are_declared_by_name(tmp_path: Path) -> None:
    declared = CUBE.replace("[hour]", "[second, five_minute, thirty_minute, week]").replace("6h", "30m")
    declared += "week_starts_on: sunday\ntime_filters: refuse\ntruncation: drop\n"
    (tmp_path / "a.yaml").write_text(f"{TABLE}---\n{declared}")
    cube = read_definitions(tmp_path / "a.yaml").cubes["sales_cube"]
    starts = ("second_start", "five_minute_start", "thirty_minute_start", "week_start")
    assert cube.time_columns == starts
    assert (cube.week_starts_on, cube.time_filters, cube.finest_unit) == ("sunday", "refuse", "second")
    assert cube.truncation == "drop"
    wrong = CUBE.replace("[hour]", "[5m]") + "week_starts_on: sun\ntime_filters: guess\ntruncation: skip\n"
    found = problems(tmp_path, a=f"{TABLE}---\n{wrong}")
    assert len(found) == 4
    assert "five_minute" in found[0]
    assert "sunday" in found[1]
    assert "align" in found[2]
    assert "refuse" in found[2]
    assert "stop" in found[3]
    assert "drop" in found[3]


def test_a_problem_of_meaning_names_its_line_too(tmp_path: Path) -> None:
    cube = CUBE.replace("[shop]", "[shop, shpo]").replace("sum, column: price", "sum, column: shop")
    assert problems(tmp_path, cube=cube, table=TABLE) == [
        "cube.yaml:4: dimensions[1]: no such column; expected a column of table sales; found 'shpo'; "
        "did you mean 'shop'?",
        "cube.yaml:8: measures[1].column: sum does not fit the column; expected a numeric column; "
        "found shop string",
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("window: 7h", "cube.yaml:10: segment.window: segments would not line up with days; expected "),
        ("window_ms: 25200000", "cube.yaml:10: segment.window_ms: segments would not line up with days; "),
        ("window: [6h]", "cube.yaml:10: segment.window: wrong value; expected a duration such as "),
        (
            "window_ms: 6h",
            "cube.yaml:10: segment.window_ms: wrong value; expected a whole number; found '6h'",
        ),
    ],
)
def test_a_key_is_named_as_it_is_written(tmp_path: Path, written: str, expected: str) -> None:
    (line,) = problems(tmp_path, cube=CUBE.replace("window: 6h", written), table=TABLE)
    assert line.startswith(expected)


def test_a_table_that_cannot_be_read_is_not_said_to_be_missing(tmp_path: Path) -> None:
    found = problems(tmp_path, cube=CUBE.replace("measures:", "measurs:"), table=TABLE + "colour: red\n")
    assert any("colour" in line for line in found)
    assert any("measurs" in line for line in found), "all files at once"
    (line,) = problems(tmp_path, cube=CUBE, table=TABLE + "colour: red\n")
    assert "colour" in line


def test_an_unknown_table_is_said_with_the_nearest_name(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, cube=CUBE.replace("table: sales", "table: sale"), table=TABLE)
    assert (
        line
        == "cube.yaml:3: table: no such table; expected one of sales; found 'sale'; did you mean 'sales'?"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "kind: tabel\n",
            "unknown kind of definition; expected kind: table, cube, lookup, application, stored_table, loader",  # noqa: E501
        ),
        ("name: x\n", "a document without a kind"),
        ("- a\n", "a document without a kind"),
        ("kind: [\n", "not YAML"),
        (TABLE.replace("name: sales\n", ""), "a key is missing; expected the key name"),
        (TABLE + "name: again\n", "expected every key once; found name twice"),
        (
            TABLE.replace("columns:", "columns: 3\nunknown:"),
            "columns: wrong value; expected a list; found '3' (int)",
        ),
        (TABLE + "unknown_columns: refuse\n", "expected one of ignore, reject"),
        (TABLE + "record_bytes_max: 1.5\n", "expected a whole number; found '1.5' (float)"),
        (TABLE + "record_bytes_max: yes\n", "expected a whole number; found 'yes' (bool)"),
        (TABLE + "---\n" + TABLE, "table is declared twice"),
    ],
)
def test_a_wrong_document_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    lines = problems(tmp_path, wrong=text)
    assert any(expected in line and line.startswith("wrong.yaml:") for line in lines), lines


def test_bytes_that_are_not_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_bytes(b"kind: \xff\n")
    with pytest.raises(DefinitionError, match=r"bad\.yaml: cannot be read"):
        read_definitions(tmp_path)


def test_a_folder_without_definitions_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="no definitions"):
        read_definitions(tmp_path)
    with pytest.raises(DefinitionError, match="nothing there"):
        read_definitions(tmp_path / "missing")


def test_the_shipped_definitions_are_sound() -> None:
    found = read_definitions(Path(__file__).parents[2] / "include")
    assert "flights_cube" in found.cubes
    assert set(found.lookups) == {"airlines", "airports", "planes"}


STORED_AND_LOOKUP = """
kind: stored_table
database: shop
name: people
model: {model}
keys: [id, town]
columns:
  - {{name: id, type: int, nullable: false}}
  - {{name: town, type: string, nullable: false}}
  - {{name: seen, type: hll{function}}}
---
kind: lookup
name: people
stored_table: shop.people
keys: [{keys}]
columns:
{columns}
"""


def test_a_lookup_is_held_against_its_stored_table(tmp_path: Path) -> None:
    file = tmp_path / "people.yaml"
    sound = ("  - {name: town, type: string}", "  - {name: id, type: int}")

    def write(keys: str, *columns: str) -> None:
        text = STORED_AND_LOOKUP.format(
            model="aggregate", function=", aggregate: HLL_UNION", keys=keys, columns="\n".join(columns)
        )
        file.write_text(text)

    write("id, town", *sound)
    assert read_definitions(file).lookups["people"].source == "stored table shop.people"
    for keys, columns, says in (
        ("id", sound, r"people.yaml:15: keys: they do not identify rows of shop.people"),
        (
            "id, town",
            ("  - {name: town, type: string}", "  - {name: id, type: bigint}"),
            r"people.yaml:18: columns\[1\].type: another type than in shop.people; expected int; found big",
        ),
        (
            "id, town",
            (*sound, "  - {name: twon, type: string}"),
            r"no such column in shop.people; .*; did you mean 'town'",
        ),
        ("id, town", (*sound, "  - {name: seen, type: string}"), r"expected no sketch"),
    ):
        write(keys, *columns)
        with pytest.raises(DefinitionError, match=says):
            read_definitions(file)

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.base.errors import Corrupted, NotFound
from rtolap.cli.format import app
from rtolap.cubes.format import inspect
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables, to_plain
from rtolap.cubes.format.fragment import write_fragment
from rtolap.cubes.format.staged import write_staged_part
from rtolap.model.cube import Schema
from rtolap.model.offsets import PartRange
from rtolap.object_store.store import open_store
from typer.testing import CliRunner


@pytest.fixture
def local(schema: Schema, random_events: Callable[[int, int], pa.Table]) -> pa.Table:
    return merge_tables(schema, list(aggregate_events(schema, random_events(7, 100)).values()))


@pytest.fixture
def fragments(schema: Schema, local: pa.Table, tmp_path: Path) -> Path:
    for name in ("f1", "f2"):
        write_fragment(tmp_path, name, local, schema)
    return tmp_path


@pytest.fixture
def part(schema: Schema, local: pa.Table, tmp_path: Path) -> Path:
    store = open_store((tmp_path / "store").as_uri())
    written = write_staged_part(
        store,
        schema=schema,
        cube="c",
        segment="s",
        version=1,
        replica_set="a",
        ranges=[PartRange(0, 0, 100)],
        tables=[to_plain(schema, local)],
        events=100,
        unique="x",
    )
    return tmp_path / "store" / written.path


def test_a_folder_of_fragments_is_dumped_and_verified_whole(fragments: Path, local: pa.Table) -> None:
    result = CliRunner().invoke(app, ["dump", str(fragments), "--rows", "2", "--json"])
    dumps = json.loads(result.stdout)
    assert [each["name"] for each in dumps] == ["f1", "f2"]
    assert dumps[0]["events"] == 100
    assert len(dumps[0]["first_rows"]) == 2
    result = CliRunner().invoke(app, ["verify", str(fragments), "--json"])
    assert result.exit_code == 0
    assert [each["rows"] for each in json.loads(result.stdout)] == [local.num_rows] * 2


def test_damage_is_named_and_the_others_are_still_checked(fragments: Path) -> None:
    path = fragments / "f1.arrow"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    result = CliRunner().invoke(app, ["verify", str(fragments)])
    assert result.exit_code == 1
    assert "f1.arrow" in result.stdout.replace("\n", "")
    assert "1 of 2 whole" in result.stdout


@pytest.mark.parametrize("form", ["{}", "{}/manifest.json", "file://{}"])
def test_a_staged_part_is_found_by_folder_manifest_or_uri(part: Path, form: str, local: pa.Table) -> None:
    (found,) = inspect.find(form.format(part))
    assert found.kind == "staged"
    assert inspect.dump(found)["events"] == 100
    assert inspect.verify(found) == local.num_rows
    assert CliRunner().invoke(app, ["dump", form.format(part)]).exit_code == 0


def test_other_places_hold_nothing(tmp_path: Path, part: Path) -> None:
    for place in (str(tmp_path), str(tmp_path / "missing"), tmp_path.as_uri()):
        with pytest.raises(NotFound):
            inspect.find(place)
    (part / "manifest.json").write_bytes(b"{}")
    with pytest.raises(Corrupted):
        inspect.find(str(part))

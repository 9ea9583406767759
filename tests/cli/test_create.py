"""`rtolap create`: every kind goes to who takes it, and none is passed over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rtolap.base.errors import DefinitionError, NotFound, Refused, Unavailable
from rtolap.cli.definitions import app
from rtolap.model.loader import Loader
from rtolap.model.yaml_files import read_definitions
from rtolap.protocols.definitions import Takers, create_all
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.load_jobs import LoadJobs
from typer.testing import CliRunner

LOADER = """
kind: loader
name: orders_in
topic: orders
database: shop
table: orders
"""
LOOKUP = """
kind: lookup
name: people
stored_table: shop.people
keys: [id]
columns:
  - {name: id, type: int}
"""
STORED = """
kind: stored_table
database: shop
name: people
model: unique
keys: [id]
columns:
  - {name: id, type: int}
"""
FILE_LOOKUP = """
kind: lookup
name: shops
file: shops.csv
columns:
  - {name: id, type: int}
"""
TABLE = """
kind: table
name: clicks
topic: clicks
columns:
  - {name: at, type: timestamp}
  - {name: page, type: string}
time: {column: at, format: iso8601}
"""
CUBE = """
kind: cube
name: visits
table: clicks
dimensions: [page]
measures: [{function: count}]
segment: {window: 1h}
"""


APPLICATION = """
kind: application
name: shop
sources:
  - {name: web}
sinks:
  - {name: store}
edges:
  - [web, store]
"""


def invoke(file: Path, env: dict[str, str], *more: Path) -> Any:
    return CliRunner().invoke(app, ["create", str(file), *map(str, more), "--json"], env=env)


def noted(declared: list[str]) -> Callable[[Loader], Callable[[], object]]:
    def declare(loader: Loader) -> Callable[[], object]:
        declared.append(loader.name)
        return lambda: declared.remove(loader.name)

    return declare


def test_a_loader_is_declared_as_by_its_own_command(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'ledger.db'}"
    env = {"RTOLAP_LEDGER": address}
    file = tmp_path / "loader.yaml"
    for text in (LOADER, LOADER, LOADER + "parallel: 4\n"):
        file.write_text(text)
        done = invoke(file, env)
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout) == [["loader", "orders_in"]]
    with Ledger.open(address) as ledger:
        job = LoadJobs(ledger).get("orders_in")
    assert (job.db, job.table, job.topic) == ("shop", "orders", "orders")
    assert '"parallel":4' in job.config
    file.write_text(LOADER.replace("topic: orders", "topic: others"))
    assert "is there already" in str(invoke(file, env).exception)


def test_what_nobody_takes_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    declared: list[str] = []
    file = tmp_path / "all.yaml"
    for text, missing, named in (
        (f"{LOADER}---{STORED}", "a front end", "shop.people"),
        (f"{LOADER}---{FILE_LOOKUP}", "a coordinator", "shops"),
        (f"{LOADER}---{LOOKUP}", "a coordinator and a front end", "people; people"),
    ):
        file.write_text(text)
        takers = Takers(declare_loader=noted(declared))
        with pytest.raises(DefinitionError, match=f"expected {missing}; found {named}"):
            create_all(takers, read_definitions(file), enable=True)
    assert not declared
    file.write_text(LOADER)
    with pytest.raises(DefinitionError, match="expected a ledger for loaders; found orders_in"):
        create_all(Takers(), read_definitions(file), enable=True)


def test_stored_tables_come_before_all_others(tmp_path: Path) -> None:
    """Where no endpoint answers nothing is created, loaders neither."""
    file = tmp_path / "all.yaml"
    file.write_text(f"{LOADER}---{STORED}")
    declared: list[str] = []
    with StoredTablesClient(["http://127.0.0.1:9"], "a token", retry_s=0.1) as endpoints:
        takers = Takers(endpoints=endpoints, declare_loader=noted(declared))
        with pytest.raises(Unavailable):
            create_all(takers, read_definitions(file), enable=True)
    assert not declared


class Taker:
    """What a coordinator would do with one table, one lookup and one cube; the table is there already, and
    applications by name."""

    def __init__(self, **applications: dict[str, Any]) -> None:
        self.calls: list[str] = []
        self.present = applications

    def tables(self) -> tuple[str, ...]:
        return ("clicks",)

    def lookups(self) -> tuple[str, ...]:
        return ()

    cubes = lookups

    def applications(self) -> tuple[str, ...]:
        return tuple(self.present)

    def application(self, name: str) -> Any:
        return SimpleNamespace(definition=self.present[name])

    def change_application(self, name: str, definition: dict[str, Any]) -> None:
        self.present[name] = definition

    def __getattr__(self, name: str) -> Any:
        def call(argument: Any) -> None:
            self.calls.append(f"{name} {argument if isinstance(argument, str) else argument['name']}")
            if name == "enable_cube":
                raise NotFound("cube visits cannot be enabled")

        return call


def test_what_fails_leaves_nothing_behind_that_was_not_there(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(f"{TABLE}---{FILE_LOOKUP}---{CUBE}")
    taker = Taker()
    with pytest.raises(NotFound, match="visits cannot be enabled"):
        create_all(Takers(coordinator=cast(Any, taker)), read_definitions(file), enable=True)
    made = ["create_table clicks", "create_lookup shops", "create_cube visits", "enable_cube visits"]
    assert taker.calls == [*made, "disable_cube visits", "drop_cube visits", "drop_lookup shops"]


def test_an_application_that_was_changed_is_put_back(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(f"{TABLE}---{CUBE}---{APPLICATION}")
    before = {"name": "shop", "sources": [{"name": "mobile"}]}
    taker = Taker(shop=before)
    with pytest.raises(NotFound):
        create_all(Takers(coordinator=cast(Any, taker)), read_definitions(file), enable=True, change=True)
    assert taker.present == {"shop": before}
    assert taker.calls[-2:] == ["disable_cube visits", "drop_cube visits"]


def test_a_cube_that_was_there_is_disabled_again(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(f"{TABLE}---{CUBE}")
    for enabled, last in ((False, "disable_cube visits"), (True, "enable_cube visits")):
        taker = Taker()
        taker.cubes = lambda enabled=enabled: (SimpleNamespace(name="visits", enabled=enabled),)  # type: ignore[method-assign,assignment,misc]
        with pytest.raises(NotFound):
            create_all(Takers(coordinator=cast(Any, taker)), read_definitions(file), enable=True)
        assert taker.calls[-1] == last


def test_loaders_of_a_create_that_fails_are_as_they_were(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'ledger.db'}"
    env = {"RTOLAP_LEDGER": address}
    second, third = (LOADER.replace("orders_in", name) for name in ("other_in", "third_in"))
    file = tmp_path / "loaders.yaml"
    file.write_text(f"{LOADER}---{third}")
    assert invoke(file, env).exit_code == 0
    with Ledger.open(address) as ledger:
        before = LoadJobs(ledger).all()
    elsewhere = third.replace("topic: orders", "topic: others")
    file.write_text(f"{LOADER}parallel: 4\n---{second}---{elsewhere}")
    assert "third_in is there already" in str(invoke(file, env).exception)
    with Ledger.open(address) as ledger:
        assert LoadJobs(ledger).all() == before


def test_what_cannot_be_taken_back_is_named_and_the_rest_is_taken_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Stubborn(Taker):
        def drop_cube(self, name: str) -> None:
            raise Refused("cube visits is being asked")

    file = tmp_path / "all.yaml"
    file.write_text(f"{TABLE}---{FILE_LOOKUP}---{CUBE}")
    taker = Stubborn()
    with pytest.raises(NotFound):
        create_all(Takers(coordinator=cast(Any, taker)), read_definitions(file), enable=True)
    assert taker.calls[-1] == "drop_lookup shops"
    assert "cube visits could not be taken back: cube visits is being asked" in caplog.text


@pytest.mark.parametrize("command", ["validate", "create"])
def test_several_files_are_read_together_and_all_their_errors_told(tmp_path: Path, command: str) -> None:
    table, cube, more = tmp_path / "table.yaml", tmp_path / "cube.yaml", tmp_path / "more"
    table.write_text(TABLE.replace("type: string", "type: text"))
    cube.write_text(CUBE.replace("window: 1h", "window: 1x"))
    more.mkdir()
    (more / "lookup.yaml").write_text(FILE_LOOKUP.replace("columns:", "colums:"))
    paths = [str(one) for one in (table, cube, more, tmp_path / "missing.yaml")]
    said = str(CliRunner().invoke(app, [command, *paths]).exception)
    for path in (table, cube, more / "lookup.yaml"):
        assert f"{path}:" in said
    assert f"cannot read {tmp_path / 'missing.yaml'}" in said
    table.write_text(TABLE)
    cube.write_text(CUBE)
    (more / "lookup.yaml").write_text(FILE_LOOKUP)
    done = CliRunner().invoke(app, ["validate", *paths[:3], str(more / "lookup.yaml"), "--json"])
    assert done.exit_code == 0, done.output
    assert {row["name"] for row in json.loads(done.stdout)} == {"clicks", "visits", "shops"}, "each once"

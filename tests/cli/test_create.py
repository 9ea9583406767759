"""`rtolap create`: every kind goes to who takes it, and none is passed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from rtolap.base.errors import DefinitionError, NotFound, Unavailable
from rtolap.cli.definitions import app
from rtolap.ledger.database import Ledger
from rtolap.ledger.load_jobs import LoadJobs
from rtolap.model.yaml_files import read_definitions
from rtolap.wire.definitions import Takers, create_all
from rtolap.wire.stored_tables_client import StoredTablesClient
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


def invoke(file: Path, env: dict[str, str]) -> Any:
    return CliRunner().invoke(app, ["create", str(file), "--json"], env=env)


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
        (f"{LOADER}---{STORED}", "a Stream Load door", "shop.people"),
        (f"{LOADER}---{FILE_LOOKUP}", "a coordinator", "shops"),
        (f"{LOADER}---{LOOKUP}", "a coordinator and a Stream Load door", "people; people"),
    ):
        file.write_text(text)
        takers = Takers(declare_loader=lambda loader: declared.append(loader.name))
        with pytest.raises(DefinitionError, match=f"expected {missing}; found {named}"):
            create_all(takers, read_definitions(file), enable=True)
    assert not declared
    file.write_text(LOADER)
    with pytest.raises(DefinitionError, match="expected a ledger for loaders; found orders_in"):
        create_all(Takers(), read_definitions(file), enable=True)


def test_stored_tables_come_before_all_others(tmp_path: Path) -> None:
    """Where no door answers nothing is created, loaders neither."""
    file = tmp_path / "all.yaml"
    file.write_text(f"{LOADER}---{STORED}")
    declared: list[str] = []
    with StoredTablesClient(["http://127.0.0.1:9"], "a token", retry_s=0.1) as doors:
        takers = Takers(doors=doors, declare_loader=lambda loader: declared.append(loader.name))
        with pytest.raises(Unavailable):
            create_all(takers, read_definitions(file), enable=True)
    assert not declared


class Taker:
    """What a coordinator would do with one table, one lookup and one cube; the table is there already."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def tables(self) -> tuple[str, ...]:
        return ("clicks",)

    def lookups(self) -> tuple[str, ...]:
        return ()

    applications = cubes = lookups

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

"""`rtolap publish` on a real ZooKeeper: commands, a service that is killed, and what other engines read."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from rtolap.base.settings import Settings
from rtolap.metadata.cluster_store import open_cluster_store
from rtolap.model.cube import cuboids
from rtolap.model.publication import PublicationBatch, PublicationSnapshots

from tests.support.commands import called, ended
from tests.support.cubes.staging import CUBE
from tests.support.publish.postgres import PASSWORD
from tests.support.publish.published import NAME, PublishedCube, day, read_files, totals
from tests.support.waiting import patience_s, until

pytestmark = pytest.mark.integration

START_S = 240.0  # a process starts, gets the lead, and another's session may have to end first
DEFINITION = """
kind: publication
name: lake_sales
cube: sales_cube
cuboid: [shop, day]
table: olap.sales
catalog:
  kind: sqlite
  address: {folder}/catalog.db
  warehouse: file://{folder}/warehouse
batch: {{every: 200ms}}
snapshots: {{expire_after: 0ms}}
"""


@pytest.fixture
def environment(tmp_path: Path, zookeeper: str, unique_name: str) -> dict[str, str]:
    (tmp_path / "token").write_text("a-token-of-the-tests")
    (tmp_path / "token").chmod(0o600)
    return {
        "RTOLAP_ZOOKEEPER": zookeeper,
        "RTOLAP_ZOOKEEPER_ROOT": f"/{unique_name}",
        "RTOLAP_TOKEN_FILE": str(tmp_path / "token"),
        "RTOLAP_OBJECT_STORE": (tmp_path / "ein Stück 50%").as_uri(),
        "RTOLAP_HOST": "127.0.0.1",
        "RTOLAP_STACK": "off",
    }


@pytest.fixture
def cube(tmp_path: Path, environment: dict[str, str]) -> Iterator[PublishedCube]:
    settings = Settings(
        zookeeper=environment["RTOLAP_ZOOKEEPER"],
        zookeeper_root=environment["RTOLAP_ZOOKEEPER_ROOT"],
        token_file=Path(environment["RTOLAP_TOKEN_FILE"]),
    )
    made = PublishedCube(tmp_path, open_cluster_store(settings))
    yield made
    made.close()


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    path = tmp_path / "lake.yaml"
    path.write_text(DEFINITION.format(folder=tmp_path))
    return path


class Service:
    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rtolap.cli.main", "publish", "serve", NAME],
                env={**os.environ, **environment},
                stdout=output,
                stderr=output,
            )

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(patience_s(60))

    @property
    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def service(environment: dict[str, str], tmp_path: Path) -> Iterator[Any]:
    started: list[Service] = []

    def start() -> Service:
        started.append(Service(environment, tmp_path / "service.log"))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


def state(environment: dict[str, str]) -> dict[str, Any]:
    done = called(environment, "publish", "status", NAME, "--json")
    [found] = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_a_publication_from_its_declaration_to_its_end(
    cube: PublishedCube, environment: dict[str, str], definition: Path, service: Any
) -> None:
    cube.promote(0)
    cube.promote(1)
    assert called(environment, "publish", "create", str(definition)).returncode == 0
    waiting = state(environment)
    assert (waiting["state"], waiting["lag_segments"], waiting["ready_segments"]) == ("waiting", 2, 2)
    running = service()
    until(lambda: state(environment)["lag_segments"] == 0, lambda: running.log, timeout_s=START_S)
    cube.promote(0)
    until(lambda: state(environment)["lag_segments"] == 0, lambda: running.log, timeout_s=START_S)
    publication = cube.records.declaration(NAME).publication
    cube.assert_published(publication)
    until(lambda: not cube.records.holds(NAME).hold(day(0), 1), "the replaced version is free")
    listed = json.loads(called(environment, "publish", "segments", NAME, "--json").stdout)
    assert [(row["segment"], row["version"]) for row in listed] == [(day(0).name, 2), (day(1).name, 1)]
    assert called(environment, "publish", "verify", NAME).returncode == 0
    assert running.end(signal.SIGTERM) == 0, running.log
    assert called(environment, "publish", "drop", NAME, "--yes").returncode == 0
    assert called(environment, "publish", "list", "--json").stdout.strip() == "[]"
    assert cube.expected_files(cuboids(CUBE)[0]), "history stays"


@pytest.mark.seeded
def test_a_service_that_is_killed_again_and_again_publishes_every_version_once(
    cube: PublishedCube, environment: dict[str, str], service: Any
) -> None:
    rng = random.Random(28)
    publication = cube.declared(
        cuboid=("shop",),
        batch=PublicationBatch(every_ms=100, versions_max=1),
        snapshots=PublicationSnapshots(expire_after_ms=0),
    )
    for number in range(4):
        cube.promote(number, 3)
    for _ in range(3):
        before = cube.records.holds(NAME)
        running = service()
        until(lambda before=before: cube.records.holds(NAME) != before, "it works", timeout_s=START_S)
        running.end(signal.SIGKILL)
        cube.promote(rng.randrange(6), 2)
        cube.promote(6 + rng.randrange(6), 2)
    running = service()
    until(lambda: state(environment)["lag_segments"] == 0, lambda: running.log, timeout_s=START_S)
    cube.assert_published(publication)


def test_a_catalog_that_is_away_is_named_in_status_and_tried_again(
    cube: PublishedCube, environment: dict[str, str], definition: Path, service: Any, tmp_path: Path
) -> None:
    """Its secret is in no log and no status."""
    cube.promote(0)
    secret = tmp_path / "password"
    secret.touch(mode=0o600)
    secret.write_text(PASSWORD)
    text = definition.read_text().replace("kind: sqlite", "kind: postgres\n  tls: none\n  user: lake")
    text = text.replace(f"{tmp_path}/catalog.db", f"127.0.0.1:1/lake\n  password_file: {secret}")
    definition.write_text(text)
    assert called(environment, "publish", "create", str(definition)).returncode == 0
    running = service()
    until(lambda: state(environment)["status"]["failures"] >= 2, lambda: running.log, timeout_s=START_S)
    done = called(environment, "publish", "status", NAME)
    assert done.returncode == 3
    assert "does not answer" in done.stdout + done.stderr
    assert state(environment)["lag_segments"] == 1
    for shown in (running.log, done.stdout, done.stderr, json.dumps(state(environment))):
        assert PASSWORD not in shown
    assert running.end(signal.SIGTERM) == 0


def test_two_services_take_turns(
    cube: PublishedCube, environment: dict[str, str], definition: Path, service: Any
) -> None:
    cube.promote(0)
    assert called(environment, "publish", "create", str(definition)).returncode == 0
    first = service()
    until(lambda: state(environment)["lag_segments"] == 0, lambda: first.log, timeout_s=START_S)
    service()
    cube.promote(1)
    until(lambda: state(environment)["lag_segments"] == 0, lambda: first.log, timeout_s=START_S)
    first.end(signal.SIGKILL)
    cube.promote(1)
    until(lambda: state(environment)["lag_segments"] == 0, lambda: first.log, timeout_s=START_S)
    cube.assert_published(cube.records.declaration(NAME).publication)


def test_commands_that_publish_nothing_do_without_the_library(environment: dict[str, str]) -> None:
    """Services that do not publish never load it either: it is an extra."""
    script = (
        "import sys; sys.modules['pyiceberg'] = None\n"
        "import rtolap.cli.publish, rtolap.coordinator.purge, rtolap.query.run\n"
        "from rtolap.cli.publish import _library\n"
        "try: _library('process')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert "DefinitionError" in done.stdout, done.stderr
    assert "pip install 'rtolap[iceberg]'" in done.stdout
    unknown = ended(environment, "publish", "status", "nothing")
    assert (unknown.returncode, "no publication is named" in unknown.stderr) == (1, True)


# -- what other engines read -----------------------------------------------------------------------------


def test_pyarrow_and_duckdb_read_the_files_of_the_newest_snapshot(cube: PublishedCube) -> None:
    publication = cube.declared()
    publisher = cube.publisher(publication)
    for number in (0, 1, 0, 2):
        cube.promote(number)
        publisher.look()
    tasks = cube.table(publication).scan().plan_files()
    rows: pa.Table = read_files([task.file.file_path for task in tasks])
    expected = cube.expected(CUBE.all_dimensions)
    assert totals(rows) == totals(expected)
    with duckdb.connect() as engine:
        engine.register("history", rows)
        engine.register("expected", expected)
        merged = "SELECT shop, sum(__rows), sum(price__sum), min(price__min), max(at__max), " \
            "sum(items__sum) / sum(items__count) FROM {} GROUP BY shop ORDER BY shop NULLS FIRST"  # fmt: skip
        found = engine.execute(merged.format("history")).fetchall()
        assert found == engine.execute(merged.format("expected")).fetchall()
        assert len(found) == 5

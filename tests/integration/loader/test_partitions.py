"""Partitions made ahead by the loader's own role, with real endpoints for loads and for SQL."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec
import pytest
from rtolap.base.addresses import host_port
from rtolap.cli.main import app
from rtolap.model.loader import SinkPartitions
from rtolap.protocols.loader.messages import API, LoaderStatus, PartitionsStatus
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.stored.metastore.load_jobs import LoadJobEvent
from typer.testing import CliRunner

from tests.support.loader.loader_world import DATABASE, Around, LoaderWorld
from tests.support.stored.stored_cluster import DEFINING_USER, StoredCluster
from tests.support.stored.stream_load_cluster import PASSWORD, TOKEN
from tests.support.waiting import until

TIMEOUT_S = 60.0
AHEAD = 3


@pytest.fixture(scope="module")
def cluster(around: Around, zookeeper: str) -> StoredCluster:
    """With a query service, whose MySQL endpoint takes the statements."""
    found = around.cluster
    assert isinstance(found, StoredCluster)
    found.start_query(zookeeper, f"/partitions-{uuid.uuid4().hex}")
    return found


class World(LoaderWorld):
    """Its table has the partition of the present day, and loads make none."""

    def produce_day(self, days: int) -> None:
        """One row, so many days from now."""
        at = datetime.now(UTC) + timedelta(days=days)
        self.number += 1
        self.produce_rows([(0, {"at": f"{at:%Y-%m-%d %H:%M:%S}", "k": self.number})])

    def ended(self) -> LoaderStatus:
        """Its process too."""

        def has_failed() -> bool:
            return self.status().state == "FAILED" and self.process.pid() is None

        until(has_failed, self.status, timeout_s=TIMEOUT_S)
        return self.status()

    def partitions(self, is_so: Callable[[PartitionsStatus], bool]) -> PartitionsStatus:
        found = self.wait_until(lambda it: it.partitions is not None and is_so(it.partitions), TIMEOUT_S)
        assert found.partitions is not None
        return found.partitions

    def declare(self, partitions: SinkPartitions) -> None:
        sink = msgspec.structs.replace(self.loader.sink, partitions=partitions)
        self.loader = msgspec.structs.replace(self.loader, sink=sink)
        self.access.declare(self.loader)


@pytest.fixture
def world(around: Around, cluster: StoredCluster, tmp_path: Path, unique_name: str) -> Iterator[World]:
    name = f"p_{unique_name[-8:]}"
    cluster.ask(
        f"create table {DATABASE}.{name} (at datetime not null, k bigint) duplicate key(at) "
        "partition by range(at) () "
        "properties ('dynamic_partition.time_unit' = 'DAY', 'dynamic_partition.end' = '0')"
    )
    table = cluster.tables.table(TableName(DATABASE, name)).definition
    made = World(name, "duplicate", around, tmp_path, partitions=1, table=table)
    yield made
    made.close()


def wanted(cluster: StoredCluster, password_file: Path, **changes: object) -> SinkPartitions:
    found = SinkPartitions(
        sql=host_port(cluster.host, cluster.mysql_port),
        column="at",
        ahead=AHEAD,
        every_ms=1_000,
        user=DEFINING_USER,
        password_file=str(password_file),
    )
    return msgspec.structs.replace(found, **changes)


def status(world: World, *arguments: str) -> str:
    """What the command prints."""
    env = {**world.process.spec.env, "COLUMNS": "240"}
    return CliRunner().invoke(app, ["loader", "status", world.name, *arguments], env=env).stdout


def test_rows_of_tomorrow_are_refused_without_the_role_and_loaded_with_it(
    world: World, cluster: StoredCluster, tmp_path: Path
) -> None:
    began = datetime.now(UTC)
    world.produce_day(1)
    world.process.start()
    failed = world.ended()
    assert failed.stop_cause == "too_many_filtered", failed.reason
    rejected = re.search(r"http://\S+file=[\w-]+", failed.reason)
    assert rejected is not None, failed.reason
    assert "no partition for this tuple" in httpx.get(rejected[0]).text
    assert world.rows() == []

    world.declare(wanted(cluster, tmp_path / "password"))
    world.produce_day(0)
    world.access.jobs.change_state(world.name, LoadJobEvent.START, "")
    world.process.start()
    world.wait_loaded()
    assert sorted(row["k"] for row in world.rows()) == [1, 2]
    kept = world.partitions(lambda it: it.state == "kept")
    there = {name for name, *_ in cluster.ask(f"show partitions from {DATABASE}.{world.name}")}
    days = [datetime.now(UTC).date() + timedelta(days=days) for days in range(AHEAD + 1)]
    assert {f"p{day:%Y%m%d}" for day in days} <= there
    assert set(kept.made) == there - {f"p{began:%Y%m%d}"}

    # an operator drops one: it comes back
    gone = f"p{days[AHEAD]:%Y%m%d}"
    cluster.ask(f"alter table {DATABASE}.{world.name} drop partition {gone}")
    again = world.partitions(lambda it: it.made_count > kept.made_count and it.state == "kept")
    assert again.made[-1] == gone

    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = httpx.get(f"http://{world.process.address}{API}", headers=headers).json()
    assert answer["partitions"]["state"] == "kept"
    page = httpx.get(f"http://{world.process.address}/metrics", headers=headers).text
    assert f'rtolap_loader_partitions_failing{{loader="{world.name}"}} 0.0' in page
    assert f'rtolap_loader_partitions_made_total{{loader="{world.name}"}} {kept.made_count + 1}.0' in page
    assert "rtolap_loader_partitions_until_seconds" in page
    (told,) = json.loads(status(world, "--json"))["loaders"]
    assert (told["partitions"]["state"], told["partitions"]["made"][-1]) == ("kept", gone)


def test_a_wrong_password_stops_no_row_and_is_told_until_it_is_mended(
    world: World, cluster: StoredCluster, tmp_path: Path
) -> None:
    password = tmp_path / "sql-password"
    password.write_text("guessed")
    world.declare(wanted(cluster, password))
    world.produce_day(0)
    world.process.start()
    world.wait_loaded()
    assert [row["k"] for row in world.rows()] == [1]
    failing = world.partitions(lambda it: it.state == "failing")
    assert "ccess denied" in failing.last_error
    assert (failing.made_count, failing.checked_ms) == (0, None)
    page = httpx.get(
        f"http://{world.process.address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
    ).text
    assert f'rtolap_loader_partitions_failing{{loader="{world.name}"}} 1.0' in page
    assert "failing" in status(world)
    assert "guessed" not in world.process.log_tail(200)

    password.write_text(PASSWORD)
    kept = world.partitions(lambda it: it.state == "kept")
    assert (kept.last_error, kept.made_count) == ("", AHEAD)
    world.produce_day(AHEAD)
    world.wait_loaded()
    assert len(world.rows()) == 2


def test_a_table_that_is_not_partitioned_is_loaded_all_the_same(
    around: Around, cluster: StoredCluster, tmp_path: Path, unique_name: str
) -> None:
    name = f"n_{unique_name[-8:]}"
    cluster.ask(f"create table {DATABASE}.{name} (at datetime not null, k bigint) duplicate key(at)")
    table = cluster.tables.table(TableName(DATABASE, name)).definition
    world = World(name, "duplicate", around, tmp_path, partitions=1, table=table)
    try:
        world.declare(wanted(cluster, tmp_path / "password"))
        world.produce_day(7)
        world.process.start()
        world.wait_loaded()
        assert "a table that is partitioned" in world.partitions(lambda it: it.state == "failing").last_error
        assert len(world.rows()) == 1
    finally:
        world.close()

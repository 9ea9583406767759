"""Spark stages a batch out of a table of a real MariaDB, in zones that differ on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest
from rtolap.cubes.format.manifest import BATCH_NAME, BatchManifest, decode
from rtolap.model.batch import BatchSource
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess

from tests.support.batches.applied import StreamedHours
from tests.support.batches.source_jars import mariadb_jar
from tests.support.cubes.builders import Event
from tests.support.cubes.recount import from_table, recount
from tests.support.cubes.services import Services
from tests.support.runs import spark_drivers

from .conftest import progress_lines, spark_submit
from .test_batches import STAGE_JOB, drawn_events, spec_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
PASSWORD = "kept/Sécrèt-77"
ROWS = 200
READ_IN_PARTS = {"partitionColumn": "id", "lowerBound": "50", "upperBound": "120", "numPartitions": "3"}


class Sales(NamedTuple):
    """A database with the rows of `events`; `execute` runs statements in it as its administrator."""

    url: str
    user: str
    events: list[Event]
    execute: Callable[..., None]

    def source(self, time: str = "at", **options: str) -> BatchSource:
        return BatchSource(
            format="jdbc",
            options={"url": self.url, "dbtable": "sales", "user": self.user, **options},
            secrets={"password": "SALES_PASSWORD"},
            columns={"ts": time},
        )


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "ein Stück 50%").as_uri())


@pytest.fixture(scope="module")
def sales(mariadb_server: ManagedProcess) -> Iterator[Sales]:
    socket = str(mariadb_server.spec.folder / "s.sock")
    user, events = "batch_reader", drawn_events(ROWS)
    with pymysql.connect(unix_socket=socket, user="root", autocommit=True, charset="utf8mb4") as connection:
        cursor = connection.cursor()

        def execute(*statements: str) -> None:
            for statement in statements:
                cursor.execute(statement)

        execute(
            "CREATE DATABASE batch_sales CHARACTER SET utf8mb4",
            f"CREATE USER '{user}'@'%' IDENTIFIED BY '{PASSWORD}'",
            f"GRANT ALL ON batch_sales.* TO '{user}'@'%'",
            "USE batch_sales",
            "CREATE TABLE sales (id BIGINT PRIMARY KEY, at TIMESTAMP(3) NULL, wall DATETIME(3), "
            "kind VARCHAR(20), place INT, amount BIGINT, price DECIMAL(12,2), few TINYINT(1), raw BLOB)",
            "SET time_zone = '+00:00'",
        )
        for number, event in enumerate(events):
            at = datetime.fromtimestamp(event.event_ms / 1000, UTC).replace(tzinfo=None)
            cursor.execute(
                "INSERT INTO sales VALUES (%s, %s, %s, %s, %s, %s, %s, 1, x'ff')",
                (number, at, at, event.kind, event.place, event.amount, event.price),
            )
        execute("SET GLOBAL time_zone = '-05:00'")
        yield Sales(f"jdbc:mariadb://{mariadb_server.address}/batch_sales", user, events, execute)
        execute("SET GLOBAL time_zone = 'SYSTEM'", "DROP DATABASE batch_sales", f"DROP USER '{user}'@'%'")


class Ended(NamedTuple):
    code: int
    last: dict[str, Any]
    output: str


def staged(
    store: ObjectStore, source: BatchSource, folder: Path, *, password: str = PASSWORD, jar: bool = True
) -> Ended:
    """Stage the batch on a host whose own zone is another than the database's. No secret is ever shown."""
    file = folder / "batch-spec.json"
    file.write_bytes(msgspec.json.encode(spec_of(store, source)))
    return submitted(file, password=password, jar=jar)


def submitted(file: Path, *, password: str = PASSWORD, jar: bool = True) -> Ended:
    """Run the job of a batch that stands in a file."""
    command, environment = spark_submit(str(file), job=STAGE_JOB)
    if jar:
        command[1:1] = ["--jars", str(mariadb_jar())]
    run = spark_drivers.run if jar and password == PASSWORD else spark_drivers.run_apart
    done = run(command, {**environment, "SALES_PASSWORD": password, "TZ": "Europe/Berlin"})
    output = done.stdout + done.stderr
    assert password not in output
    assert password not in spark_drivers.logs()
    lines = progress_lines(done.stdout)
    return Ended(done.returncode, lines[-1] if lines else {}, output[-6000:])


def test_a_batch_of_a_database_takes_the_place_of_what_the_stream_had_said(
    sales: Sales,
    tmp_path: Path,
    zookeeper: str,
    kafka: str,
    unique_name: str,
    create_topic: Callable[..., str],
) -> None:
    create_topic(unique_name, 1)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)

    def stage(file: Path) -> None:
        ended = submitted(file)
        assert ended.code == 0, ended.output

    try:
        with closing(StreamedHours(services, unique_name, kafka, tmp_path)) as hours:
            hours.replace(sales.source(), stage, tmp_path, sales.events)
        assert services.ended() == []
    finally:
        services.close()


@pytest.mark.parametrize(("time", "options"), [("at", READ_IN_PARTS), ("wall", {})])
def test_parts_of_a_batch_equal_a_recount_of_the_tables_rows(
    store: ObjectStore, sales: Sales, tmp_path: Path, time: str, options: dict[str, str]
) -> None:
    ended = staged(store, sales.source(time, **options), tmp_path)
    assert ended.code == 0, ended.output
    path = f"{spec_of(store, sales.source()).folder}/{BATCH_NAME}"
    parts = decode(store.read(path), BatchManifest, path).parts
    files = [
        file.path for each in parts for file in store.list(each.part.path) if file.path.endswith(".parquet")
    ]
    tables = [pq.read_table(store.absolute(file), partitioning=None) for file in files]
    assert from_table(pa.concat_tables(tables)) == recount(sales.events)


def refused(store: ObjectStore, ended: Ended, code: int, *said: str) -> None:
    assert (ended.code, ended.last["event"]) == (code, "failed"), ended.output
    error = ended.last["error"]
    for each in said:
        assert each in error
    assert "expected" in error
    assert "found" in error
    assert "\tat " not in error, "no stack trace"
    assert not store.exists(f"{spec_of(store, BatchSource(format='csv')).folder}/{BATCH_NAME}")


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({"dbtable": "nothing"}, {}, ("does not exist", "table nothing")),
        ({}, {"kind": "sort"}, ("lacks columns", "sort")),
        ({}, {"place": "few"}, ("place int", "few boolean", "tinyInt1isBit")),
        ({**READ_IN_PARTS, "partitionColumn": "nothing"}, {}, ("with these options", "nothing")),
        ({}, {"kind": "raw"}, (f"{ROWS} rows", "column kind")),
    ],
    ids=["table", "column", "type", "partition_column", "bytes"],
)
def test_a_source_that_does_not_fit_is_refused_by_name(
    store: ObjectStore,
    sales: Sales,
    tmp_path: Path,
    options: dict[str, str],
    columns: dict[str, str],
    said: tuple[str, ...],
) -> None:
    source = sales.source(**options)
    source = msgspec.structs.replace(source, columns={**source.columns, **columns})
    refused(store, staged(store, source, tmp_path), 3, *said)


def test_a_wrong_password_is_refused_and_not_shown(store: ObjectStore, sales: Sales, tmp_path: Path) -> None:
    ended = staged(store, sales.source(), tmp_path, password="another-Pässword")
    refused(store, ended, 3, "does not accept the user or the password", "SALES_PASSWORD")


def test_a_missing_jar_is_named(store: ObjectStore, sales: Sales, tmp_path: Path) -> None:
    ended = staged(store, sales.source(), tmp_path, jar=False)
    refused(store, ended, 3, "lacks a jar", "org.mariadb.jdbc.Driver", "--jars")


def test_a_server_that_is_away_is_tried_again(store: ObjectStore, sales: Sales, tmp_path: Path) -> None:
    ended = staged(store, sales.source(url=f"jdbc:mariadb://127.0.0.1:{free_port()}/d"), tmp_path)
    refused(store, ended, 4, "does not answer", "table sales")
    assert ended.last["retry"]


def test_rows_outside_of_the_range_refuse_the_batch(store: ObjectStore, sales: Sales, tmp_path: Path) -> None:
    sales.execute(
        "DROP VIEW IF EXISTS earlier",
        "CREATE VIEW earlier AS SELECT id, at - INTERVAL 1 YEAR AS at, kind, place, amount, price FROM sales",
    )
    ended = staged(store, sales.source(dbtable="earlier"), tmp_path)
    refused(store, ended, 3, f"{ROWS} rows", "event time", "leave_out")

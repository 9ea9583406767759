"""Spark stages a batch out of a real Iceberg table: as it is, and as an older snapshot was.

Iceberg's runtime has to fit Spark, and lags behind it: the job runs in another Spark than the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from rtolap.cubes.format.manifest import BATCH_NAME, BatchManifest, decode
from rtolap.model.batch import BatchSource
from rtolap.object_store.store import ObjectStore, open_store

from tests.support.batches.applied import StreamedHours
from tests.support.batches.iceberg_spark import iceberg_jars, iceberg_spark
from tests.support.cubes.builders import Event
from tests.support.cubes.recount import Answer, from_table, recount
from tests.support.cubes.services import Services
from tests.support.runs import spark_drivers

from .conftest import progress_lines, spark_submit
from .test_batches import STAGE_JOB, drawn_events, spec_of, table_of

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
]
COLUMNS = {"ts": "at"}


class Lake(NamedTuple):
    folder: Path
    first: list[Event]
    events: list[Event]
    snapshot_id: int


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A table whose column `kind` became `sort` after its first snapshot."""
    folder = tmp_path_factory.mktemp("lake")
    events = drawn_events(120)
    first = events[:50]
    warehouse = (folder / "warehouse").as_uri()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=warehouse)
    catalog.create_namespace("db")
    rows = table_of(events)
    rows = rows.set_column(0, "at", rows["at"].cast(pa.timestamp("us", "UTC")))
    table = catalog.create_table("db.sales", schema=rows.schema)
    table.append(rows.slice(0, 50))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    with table.update_schema() as update:
        update.rename_column("kind", "sort")
    names = ["sort" if name == "kind" else name for name in rows.column_names]
    table.append(rows.slice(50).rename_columns(names))
    return Lake(folder, first, events, snapshot.snapshot_id)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    made = open_store((tmp_path / "ein Stück 50%").as_uri())
    made.claim()
    return made


def staged(store: ObjectStore, lake: Lake, source: BatchSource) -> tuple[int, dict[str, Any], str]:
    file = lake.folder / "batch-spec.json"
    file.write_bytes(msgspec.json.encode(spec_of(store, source)))
    return submitted(lake, file)


def submitted(lake: Lake, file: Path) -> tuple[int, dict[str, Any], str]:
    """Run the job of a batch that stands in a file."""
    command, environment = spark_submit(str(file), job=STAGE_JOB)
    settings = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{lake.folder / 'catalog.db'}",
        "spark.sql.catalog.lake.warehouse": (lake.folder / "warehouse").as_uri(),
    }
    given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    spark = iceberg_spark()
    command[:1] = [f"{spark}/deps/bin/spark-submit", "--jars", iceberg_jars(), *given]
    path = f"{spark}{os.pathsep}{environment['PYTHONPATH']}"
    # an archive of classes belongs to another Spark
    ours = {"PYTHONPATH": path, "SPARK_HOME": f"{spark}/deps", "SPARK_SUBMIT_OPTS": ""}
    done = spark_drivers.run(command, {**environment, **ours})
    lines = progress_lines(done.stdout)
    return done.returncode, lines[-1] if lines else {}, (done.stdout + done.stderr)[-5000:]


def found_in(store: ObjectStore, source: BatchSource) -> Answer:
    path = f"{spec_of(store, source).folder}/{BATCH_NAME}"
    parts = decode(store.read(path), BatchManifest, path).parts
    files = [
        file.path for each in parts for file in store.list(each.part.path) if file.path.endswith(".parquet")
    ]
    return from_table(
        pa.concat_tables([pq.read_table(store.absolute(file), partitioning=None) for file in files])
    )


def test_the_table_and_its_older_snapshot_equal_recounts(store: ObjectStore, lake: Lake) -> None:
    now = BatchSource(format="iceberg", path="lake.db.sales", columns={**COLUMNS, "kind": "sort"})
    code, _, output = staged(store, lake, now)
    assert code == 0, output
    assert found_in(store, now) == recount(lake.events)
    store.delete_tree(spec_of(store, now).folder)
    older = msgspec.structs.replace(now, columns=COLUMNS, options={"snapshot-id": str(lake.snapshot_id)})
    code, _, output = staged(store, lake, older)
    assert code == 0, output
    assert found_in(store, older) == recount(lake.first)


def test_a_batch_of_a_table_takes_the_place_of_what_the_stream_had_said(
    lake: Lake,
    tmp_path: Path,
    zookeeper: str,
    kafka: str,
    unique_name: str,
    create_topic: Callable[..., str],
) -> None:
    create_topic(unique_name, 1)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)

    def stage(file: Path) -> None:
        code, _, output = submitted(lake, file)
        assert code == 0, output

    source = BatchSource(format="iceberg", path="lake.db.sales", columns={**COLUMNS, "kind": "sort"})
    try:
        with closing(StreamedHours(services, unique_name, kafka, tmp_path)) as hours:
            hours.replace(source, stage, tmp_path, lake.events)
        assert services.ended() == []
    finally:
        services.close()


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("lake.db.nothing", {}, ("does not exist", "table lake.db.nothing")),
        ("pond.db.sales", {}, ("does not exist", "spark.sql.catalog")),
        ("lake.db.sales", {"snapshot-id": "5"}, ("with these options", "snapshot-id '5'")),
        ("lake.db.sales", {}, ("lacks columns", "kind")),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_name(
    store: ObjectStore, lake: Lake, path: str, options: dict[str, str], said: tuple[str, ...]
) -> None:
    source = BatchSource(format="iceberg", path=path, columns=COLUMNS, options=options)
    code, last, output = staged(store, lake, source)
    assert (code, last["event"], last["retry"]) == (3, "failed", False), output
    for each in said:
        assert each in last["error"]
    assert not store.exists(f"{spec_of(store, source).folder}/{BATCH_NAME}")

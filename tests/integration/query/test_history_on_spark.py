"""Real processes: history larger than the query service's memory is answered by Spark, or refused."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from rtolap import dbapi
from rtolap.base.clock import SystemClock
from rtolap.base.errors import RtolapError
from rtolap.base.settings import Settings
from rtolap.metadata.cluster_store import open_cluster_store
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl
from rtolap.model.segment import segment_of
from rtolap.object_store.store import open_store
from rtolap.protocols.query.client import QueryClient
from rtolap.stack.ports import free_port
from rtolap.stack.probes import http2_missing

from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.query.on_spark.scanned_history import DAY_MS, SCHEMA, make_history

pytestmark = [pytest.mark.integration]
MEMORY_MB = 64
FILES, ROWS = 6, 1_200_000
SQL = "select kind, count(*), sum(bytes), max(bytes) from scanned group by kind"
FIRST_DAY = "select count(*) from scanned where day_start < '2020-09-14'"
TIMEOUT_MS = 300_000


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory, zookeeper: str) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("services")
    one = Services(folder, zookeeper=zookeeper, root=f"/scan-{uuid.uuid4().hex}", kafka="127.0.0.1:1")
    port = free_port()
    one.environment |= {
        "RTOLAP_HISTORY_SPARK_PORT": str(port),
        "RTOLAP_HISTORY_SPARK_BYTES_MIN": str(MEMORY_MB << 20),
        "RTOLAP_HISTORY_LOCAL_BYTES_MAX": str(MEMORY_MB << 20),
    }
    try:
        publish(one)
        one.start("spark", "spark", "serve", "--memory-mb", "700", "--master", "local-cluster[2,1,700]")
        one.start_query("--memory-mb", str(MEMORY_MB), "--threads", "1")
        one.environment["RTOLAP_HISTORY_SPARK"] = f"sc://localhost:{port}"
        one.start_further_query("on-spark", "--memory-mb", str(MEMORY_MB), "--threads", "1")
        wait_for("Spark answers", lambda: http2_missing("127.0.0.1", port) is None, 120)
        yield one
    finally:
        one.close()


def publish(services: Services) -> None:
    """Write the history, and records of it that say READY."""
    store = open_store(services.store)
    store.claim()
    records = make_history(store, FILES, ROWS)
    names = Settings.model_fields
    given = {
        key[7:].lower(): value for key, value in services.environment.items() if key.startswith("RTOLAP_")
    }
    settings = Settings(**{name: value for name, value in given.items() if name in names})
    with closing(open_cluster_store(settings)) as cluster:
        metadata = ClusterMetadata(cluster, SystemClock())
        metadata.create_table(SCHEMA.table)
        metadata.create_cube(SCHEMA.cube)
        metadata.update_control("scanned", lambda _: CubeControl(enabled=True, assignment_epoch=1))
        for record in records:
            ready = functools.partial(
                msgspec.structs.replace,
                state=record.state,
                version=record.version,
                location=record.location,
                covered={},
            )
            metadata.update_segment("scanned", segment_of(record.start_ms, DAY_MS), ready)


def recount(services: Services) -> set[tuple[object, ...]]:
    files = sorted(Path(services.folder / "store").glob("history/scanned/*/v1-*/base/part-0.parquet"))
    assert len(files) == FILES
    assert sum(file.stat().st_size for file in files) > MEMORY_MB << 20, "larger than the memory given"
    tables = [pq.read_table(file, columns=["kind", "__rows", "bytes__max"]) for file in files]
    groups: dict[str, list[int]] = {}
    for table in tables:
        whole = table.group_by("kind").aggregate(
            [("__rows", "sum"), ("bytes__max", "sum"), ("bytes__max", "max")]
        )
        for kind, rows, total, largest in zip(*(column.to_pylist() for column in whole.columns), strict=True):
            known = groups.setdefault(kind, [0, 0, 0])
            groups[kind] = [known[0] + rows, known[1] + total, max(known[2], largest)]
    return {(kind, *values) for kind, values in groups.items()}


def test_a_history_larger_than_the_memory_is_refused_by_name_without_spark(services: Services) -> None:
    with QueryClient(services.query_url, token=TOKEN, timeout_ms=TIMEOUT_MS) as client:
        with pytest.raises(
            RtolapError, match=r"at most 64\.0 MiB, RTOLAP_HISTORY_LOCAL_BYTES_MAX; found"
        ) as refused:
            client.query(SQL)
        assert refused.value.code == "too_large"
        assert "RTOLAP_HISTORY_SPARK" in str(refused.value)
        assert client.query(FIRST_DAY).rows == ((ROWS,),), "what is small enough is read"


def test_the_same_history_is_answered_by_spark_over_every_door(services: Services) -> None:
    wanted = recount(services)
    url = services.url("on-spark")
    with QueryClient(url, token=TOKEN, timeout_ms=TIMEOUT_MS) as client:
        said = dict(client.query(f"explain {SQL}").rows)
        assert said["history read by"].startswith("spark: "), said
        assert {tuple(row) for row in client.query(SQL).rows} == wanted
        done = dict(client.query(f"explain analyze {SQL}").rows)
        assert done["history read by"] == "nobody: the result is kept"
    with (
        closing(dbapi.connect(url, token=TOKEN, engine="local")) as connection,
        closing(connection.cursor()) as cursor,
        pytest.raises(dbapi.Error, match="LOCAL_BYTES_MAX"),
    ):
        cursor.execute("select host, count(*) from scanned group by host")
    with closing(services.mysql("on-spark")) as mysql, mysql.cursor() as cursor:
        cursor.execute(f"set max_execution_time = {TIMEOUT_MS}, rtolap_engine = spark")
        cursor.execute("select @@rtolap_engine")
        assert cursor.fetchall() == (("spark",),)
        cursor.execute(f"explain {FIRST_DAY}")
        assert dict(cursor.fetchall())["history read by"] == "spark: rtolap_engine is spark"
        cursor.execute(FIRST_DAY)
        assert cursor.fetchall() == ((ROWS,),)

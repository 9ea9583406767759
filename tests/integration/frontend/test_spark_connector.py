"""The public Spark connector of Doris, from Maven Central, writes frames: CSV and JSON, with and without two
phases, by the redirect and straight to where bodies are taken.

It was made for Spark 3.5, which is installed apart, in the cache of artefacts. Its Arrow format cannot work
with any server: the published jar has moved Arrow to another package than the one that Spark's writer is of.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.stack.artifacts import cache_dir, fetch_jars

from tests.support.commands import install_apart
from tests.support.stored.stream_load_cluster import PASSWORD, USER, StreamLoadCluster
from tests.support.waiting import patience_s

pytestmark = pytest.mark.skipif(
    os.environ.get("RTOLAP_TEST_SPARK_CONNECTOR") != "1",
    reason="fetches another Spark of 320 MB: set RTOLAP_TEST_SPARK_CONNECTOR=1",
)
SPARK = ("pyspark==3.5.6", "py4j==0.10.9.7")
IVY = (
    '<ivy-module version="2.0"><info organisation="local" module="connector"/>\n'
    '<configurations><conf name="connector"/></configurations>\n<dependencies>'
    '<dependency org="org.apache.doris" name="spark-doris-connector-spark-3.5" rev="25.1.0"'
    ' transitive="false" conf="connector-&gt;default"/></dependencies></ivy-module>\n'
)
ROWS = 5000
SCRIPT = """
import sys
from pyspark.sql import SparkSession
jars, nodes, user, password, table, rows, *options = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "700m").getOrCreate()
)
frame = spark.range(int(rows)).selectExpr(
    "cast(id as int) id",
    "if(id % 10 = 0, null, concat('h', id)) host",
    "cast(id / 4 as decimal(10,2)) amount",
    "timestamp'2026-11-21 12:00:00' at",
)
for chosen in options:
    name, *pairs = chosen.split(",")
    writer = frame.write.format("doris").mode("append")
    writer = writer.option("doris.fenodes", nodes).option("doris.table.identifier", f"{table}_{name}")
    writer = writer.option("user", user).option("password", password)
    for pair in pairs:
        key, _, value = pair.partition("=")
        writer = writer.option(key, value)
    writer.save()
"""
# name of the table -> options of the writer
WAYS = {
    "csv": ("doris.sink.enable-2pc=true", "sink.properties.format=csv"),
    "json": ("doris.sink.enable-2pc=true", "sink.properties.format=json", "doris.sink.batch.size=1000"),
    "direct": ("doris.sink.enable-2pc=false", "sink.properties.format=csv", "doris.sink.auto-redirect=false"),
}


@pytest.fixture(scope="module")
def old_spark() -> Path:
    """The folder of Spark 3.5, installed once; a test that is killed meanwhile leaves none."""
    folder = cache_dir() / "python" / SPARK[0].replace("==", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            growing = folder.with_suffix(".growing")
            shutil.rmtree(growing, ignore_errors=True)
            install_apart(growing, SPARK, timeout_s=600)
            growing.rename(folder)
    return folder


def test_frames_are_written(cluster: StreamLoadCluster, table: TableName, old_spark: Path) -> None:
    (jar,) = (fetch_jars(IVY, ("connector",), "the Spark connector of Doris") / "connector").glob("*.jar")
    definition = cluster.tables.table(table).definition
    written = {}
    for name in WAYS:
        written[name] = TableName(table.db, f"{table.name}_{name}")
        cluster.tables.create(msgspec.structs.replace(definition, name=written[name].name))
    where = urlsplit(cluster.urls[0]).netloc
    chosen = [",".join((name, *options)) for name, options in WAYS.items()]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT,
            str(jar),
            where,
            USER,
            PASSWORD,
            f"{table.db}.{table.name}",
            str(ROWS),
            *chosen,
        ],
        env={**_environment(), "PYTHONPATH": str(old_spark), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=patience_s(240),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    for name in WAYS:
        rows = cluster.rows(written[name])
        assert [row["id"] for row in rows] == list(range(ROWS)), name
        assert [row["host"] for row in rows[9:12]] == ["h9", None, "h11"], name
        assert sum(row["amount"] for row in rows) == sum(Decimal(n) / 4 for n in range(ROWS)), name


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}

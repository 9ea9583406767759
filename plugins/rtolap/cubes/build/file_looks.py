"""Looks at the files of a build: in the driver while they are few, by tasks of Spark where they are large.

Executors that run Python of ours look as the driver does. Others look by Spark's own operators: one statement
hashes whole files, another counts their rows and events. Such a look names no damage: where it fails, and for
files that are too large for one value of Spark, the driver looks itself, and says what is wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import unquote

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from rtolap.cubes.build.session import executors_run_python, looked_at_here_bytes_max
from rtolap.cubes.format.file_states import FileState, FileToLookAt, Looked, look_at_file, look_here
from rtolap.model.cube import ROWS
from rtolap.object_store.store import ObjectStore, open_store

log = logging.getLogger(__name__)

TASKS_PER_CORE = 4  # files differ in length: several shares a core end at about the same time
WHOLE_BYTES_MAX = 512 << 20  # of a file that Spark hashes: it holds all of its bytes as one value


class FilesOfBuild:
    """A `LookAtFiles` for a build whose inputs are `size_bytes` long.

    Tasks send back a state for each file, whatever the number of its rows.
    """

    def __init__(self, spark: SparkSession, size_bytes: int) -> None:
        self._spark = spark
        self._by_tasks = size_bytes > looked_at_here_bytes_max(spark)

    def __call__(self, object_store: str, files: Sequence[FileToLookAt]) -> list[Looked]:
        if not files or not self._by_tasks:
            return look_here(object_store, files)
        if not executors_run_python(self._spark):
            return look_by_operators(self._spark, object_store, files)
        look = partial(look_at_file, object_store)
        context = self._spark.sparkContext
        tasks = min(len(files), TASKS_PER_CORE * context.defaultParallelism)
        return context.parallelize(files, tasks).map(look).collect()


def look_by_operators(spark: SparkSession, object_store: str, files: Sequence[FileToLookAt]) -> list[Looked]:
    """Return the states of files, computed by executors without Python; by the driver where they cannot."""
    store = open_store(object_store)
    for key, value in store.spark_settings.items():
        spark.conf.set(key, value)
    uris = [store.spark_uri(file.path) for file in files]
    try:
        states = _states(spark, uris)
    except Exception as error:  # noqa: BLE001 - whatever Spark raises: one bad file fails the look at all
        log.warning("executors could not look at files, the driver does: %s", str(error)[:500])
        return look_here(object_store, files)
    left = [file for file in files if _found(states, store, file) is None]
    by_driver = dict(zip(left, look_here(object_store, left), strict=True))
    looked: list[Looked] = []
    for file in files:
        state = _found(states, store, file)
        if state is None:
            looked.append(by_driver[file])
        else:
            looked.append(state if file.counts_events else state._replace(events=None))
    return looked


def _states(spark: SparkSession, uris: Sequence[str]) -> dict[str, FileState]:
    """Return states by URI, as Spark spells it; of files that are too large to be one value there is none."""
    contents = spark.read.format("binaryFile").load(list(uris))
    hashed = contents.where(F.col("length") <= WHOLE_BYTES_MAX).select(
        "path", "length", F.sha2(F.col("content"), 256).alias("digest")
    )
    counted = (
        spark.read.schema(f"`{ROWS}` bigint")
        .parquet(*uris)
        .select(F.col("_metadata.file_path").alias("path"), F.col(f"`{ROWS}`").alias("events"))
        .groupBy("path")
        .agg(F.count(F.lit(1)).alias("rows"), F.sum("events").alias("events"))
    )
    counts = {_name(row): (row["rows"], row["events"] or 0) for row in counted.collect()}
    return {
        _name(row): FileState(row["length"], row["digest"], *counts.get(_name(row), (0, 0)))
        for row in hashed.collect()
    }


def _name(row: Row) -> str:
    """Return the file's path without its scheme, which Hadoop spells in several ways."""
    return unquote(row["path"]).partition(":")[2].lstrip("/")


def _found(states: Mapping[str, FileState], store: ObjectStore, file: FileToLookAt) -> FileState | None:
    return states.get(unquote(store.spark_uri(file.path)).partition(":")[2].lstrip("/"))

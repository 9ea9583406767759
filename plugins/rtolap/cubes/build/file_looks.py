"""Looks at the files of a build: in the driver while they are few, by tasks of Spark where they are large.

Executors that run Python of ours look as the driver does. Others look by Spark's own operators: one statement
hashes files and their ranges, another counts rows and events. Such a look names no damage: where it fails,
and for files that are too large for one value of Spark, the driver looks itself, and says what is wrong.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rtolap.base.ids import CarryingPool
from rtolap.cubes.build.job_ids import InTask
from rtolap.cubes.build.session import executors_run_python, looked_at_here_bytes_max
from rtolap.cubes.format.file_ranges import range_ends
from rtolap.cubes.format.file_states import FileState, FileToLookAt, Looked, look_at_file, look_here
from rtolap.cubes.format.manifest import FileRange
from rtolap.cubes.format.pages import SPARK_READS
from rtolap.model.cube import ROWS
from rtolap.object_store.store import ObjectStore, open_store

log = logging.getLogger(__name__)

TASKS_PER_CORE = 4  # files differ in length: several shares a core end at about the same time
_FOOTERS_AT_A_TIME = 8  # mostly waiting for a disk or a remote store
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")
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
        return context.parallelize(files, tasks).map(InTask(look)).collect()


def look_by_operators(spark: SparkSession, object_store: str, files: Sequence[FileToLookAt]) -> list[Looked]:
    """Return the states of files, computed by executors without Python; by the driver where they cannot.

    The driver reads footers: of these files' rows none, and none of their bytes, comes to it.
    """
    store = open_store(object_store)
    for key, value in store.spark_settings.items():
        spark.conf.set(key, value)
    try:
        with CarryingPool(_FOOTERS_AT_A_TIME) as pool:
            ends = list(pool.map(partial(_range_ends, store), files))
        states = _states(
            spark, {store.spark_uri(each.path): of for each, of in zip(files, ends, strict=True)}
        )
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


def _range_ends(store: ObjectStore, file: FileToLookAt) -> tuple[int, ...]:
    """Return the ends of the ranges that are to be hashed, out of the file's footer."""
    if not file.hashes_ranges:
        return ()
    with store.open(file.path) as source:
        return range_ends(pq.read_metadata(source), source.size())


def _states(spark: SparkSession, ends_by_uri: Mapping[str, tuple[int, ...]]) -> dict[str, FileState]:
    """Return states by URI, as Spark spells it; of files that are too large to be one value there is none."""
    uris = list(ends_by_uri)
    counted = (
        spark.read.options(**SPARK_READS)
        .schema(f"`{ROWS}` bigint")
        .parquet(*uris)
        .select(F.col("_metadata.file_path").alias("path"), F.col(f"`{ROWS}`").alias("events"))
        .groupBy("path")
        .agg(F.count(F.lit(1)).alias("rows"), F.sum("events").alias("events"))
    )
    counts = {_name(unquote(row["path"])): (row["rows"], row["events"] or 0) for row in counted.collect()}
    return {
        _name(row["path"]): FileState(
            row["length"],
            row["digest"],
            *counts.get(_name(row["path"]), (0, 0)),
            ranges=tuple(FileRange(each["bytes"], each["digest"]) for each in row["ranges"] or ()),
        )
        for row in _hashed(spark, ends_by_uri).collect()
    }


def _hashed(spark: SparkSession, ends_by_uri: Mapping[str, tuple[int, ...]]) -> DataFrame:
    """Return path, length and checksum of each file, with those of its ranges."""
    files = spark.read.format("binaryFile").load(list(ends_by_uri))
    files = files.where(F.col("length") <= WHOLE_BYTES_MAX)
    ranges_by_name = {
        _name(uri): [list(each) for each in pairwise((0, *ends))] for uri, ends in ends_by_uri.items() if ends
    }
    places = [(row["path"], ranges_by_name.get(_name(row["path"]))) for row in files.select("path").collect()]
    bounds = spark.createDataFrame(places, "path string, bounds array<array<bigint>>")
    content = "substring(content, CAST(each[0] + 1 AS INT), CAST(each[1] - each[0] AS INT))"
    ranges = f"transform(bounds, each -> struct(each[1] - each[0] AS bytes, sha2({content}, 256) AS digest))"
    return files.join(F.broadcast(bounds), "path").select(
        "path", "length", F.sha2(F.col("content"), 256).alias("digest"), F.expr(ranges).alias("ranges")
    )


def _name(uri: str) -> str:
    """Return the file's path without its scheme: a store in a local folder has none, Hadoop spells it in
    several ways. `_metadata.file_path` comes with escapes, other paths without.
    """
    return _SCHEME.sub("", uri).lstrip("/")


def _found(states: Mapping[str, FileState], store: ObjectStore, file: FileToLookAt) -> FileState | None:
    return states.get(_name(store.spark_uri(file.path)))

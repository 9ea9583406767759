"""Looks at the files of a build: in the driver while they are few, by tasks of Spark where they are large."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from rtolap.cubes.build.session import executors_run_python, looked_at_here_bytes_max
from rtolap.cubes.format.file_states import FileToLookAt, Looked, look_at_file, look_here

TASKS_PER_CORE = 4  # files differ in length: several shares a core end at about the same time


class FilesOfBuild:
    """A `LookAtFiles` for a build whose inputs are `size_bytes` long.

    Tasks send back a state for each file, whatever the number of its rows. Executors that run no Python of
    ours cannot look: then the driver reads the files, and reads all of them.
    """

    def __init__(self, spark: SparkSession, size_bytes: int) -> None:
        self._spark = spark
        self._by_tasks = size_bytes > looked_at_here_bytes_max(spark) and executors_run_python(spark)

    def __call__(self, object_store: str, files: Sequence[FileToLookAt]) -> list[Looked]:
        if not files or not self._by_tasks:
            return look_here(object_store, files)
        look = partial(look_at_file, object_store)
        context = self._spark.sparkContext
        tasks = min(len(files), TASKS_PER_CORE * context.defaultParallelism)
        return context.parallelize(files, tasks).map(look).collect()

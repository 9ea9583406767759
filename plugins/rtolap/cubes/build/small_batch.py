"""The cuboids of a batch of small segments: rows to Spark and back as Arrow, all of them grouped in one job.

What a small build costs is not its rows: it is jobs, files that are listed, opened and renamed, and stages
of many short tasks. Here Spark reads and writes no file, and makes one job with one shuffle.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from rtolap.cubes.build.grouping import GROUPED_DIMENSIONS_MAX, group, spark_schema
from rtolap.cubes.build.session import changed_settings, rows_in_memory_max
from rtolap.cubes.format.build_batch import SEGMENT_COLUMN
from rtolap.cubes.format.build_inputs import BuildInputs
from rtolap.model.cube import Schema
from rtolap.model.cuboids import Cuboid

BYTES_MAX = 32 << 20  # of input files, compressed: they are some 100 MB in memory, the result as much again
GROUPED_ROWS_MAX = 8_000_000  # rows times cuboids: each row is grouped once for each of them
_SKETCH_BYTES_MAX = 64 << 20  # in the groups of one task, before it goes on by sorting
_PLAIN_GROUP_BYTES = 256


def is_small(
    spark: SparkSession, schema: Schema, cuboids: Sequence[Cuboid], inputs: Sequence[BuildInputs]
) -> bool:
    """Tell whether a batch is grouped in memory; others go through files."""
    rows = sum(each.rows for each in inputs)
    return (
        rows <= rows_in_memory_max(spark)
        and rows * len(cuboids) <= GROUPED_ROWS_MAX
        and sum(each.bytes for each in inputs) <= BYTES_MAX
        and len(schema.cube.all_dimensions) <= GROUPED_DIMENSIONS_MAX
    )


def group_rows(spark: SparkSession, schema: Schema, cuboids: Sequence[Cuboid], rows: pa.Table) -> pa.Table:
    """Rows of all cuboids and segments, out of rows of the base cuboid with their place in the batch."""
    tasks = spark.sparkContext.defaultParallelism
    settings = {
        "spark.sql.adaptive.enabled": "false",  # it would run each stage as a job of its own
        "spark.sql.shuffle.partitions": str(tasks),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(max(1, -(-rows.num_rows // tasks))),
        "spark.sql.execution.arrow.localRelationThreshold": "0",  # rows would be decoded in the driver
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": str(_hashed_groups_max(schema)),
    }
    columns = spark_schema(schema, cuboids[0]).add(SEGMENT_COLUMN, T.IntegerType())
    with changed_settings(spark, settings):
        source = spark.createDataFrame(rows, columns)
        return group(source, schema, cuboids, range(len(cuboids))).toArrow()


def _hashed_groups_max(schema: Schema) -> int:
    """Groups with sketches that one task may hold in its hash table; Spark's own bound, 128, is for any."""
    sketches = sum(1 << lg_k for lg_k in schema.lg_k.values())
    return max(128, _SKETCH_BYTES_MAX // (_PLAIN_GROUP_BYTES + sketches))

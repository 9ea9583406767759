"""A cube's columns in Spark, and merging partial aggregates into cuboids, several in one pass.

A batch of small segments goes to Spark and back as Arrow, and all its cuboids are grouped in one job: what a
small build costs is not its rows, it is jobs, files that are listed, opened and renamed, and stages of many
short tasks. Spark then reads and writes no file, and makes one job with one shuffle.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rtolap.aggregates import spark_sql
from rtolap.aggregates.accumulator import Partial
from rtolap.column_types import ColumnType
from rtolap.cubes.build.session import changed_settings, rows_in_memory_max
from rtolap.cubes.format.build_batch import CUBOID_COLUMN, SEGMENT_COLUMN
from rtolap.cubes.format.build_inputs import BuildInputs
from rtolap.model.cube import Cuboid, Schema

GROUPED_DIMENSIONS_MAX = 63  # bits of Spark's `grouping_id`, less one of the segment

_SIMPLE_TYPES: dict[str, T.DataType] = {
    "string": T.StringType(),
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "double": T.DoubleType(),
    "date": T.DateType(),
    "timestamp": T.TimestampNTZType(),
    "binary": T.BinaryType(),
}

BYTES_MAX = 32 << 20  # of input files, compressed: they are some 100 MB in memory, the result as much again
GROUPED_ROWS_MAX = 8_000_000  # rows times cuboids: each row is grouped once for each of them
_SKETCH_BYTES_MAX = 64 << 20  # in the groups of one task, before it goes on by sorting
_PLAIN_GROUP_BYTES = 256


def spark_schema(schema: Schema, cuboid: Cuboid) -> T.StructType:
    fields = [T.StructField(name, spark_type(schema.dimension_type(name))) for name in cuboid.dimensions]
    fields += [T.StructField(partial.name, spark_type(partial.type)) for partial in schema.partials]
    return T.StructType(fields)


def spark_type(column_type: ColumnType) -> T.DataType:
    if column_type.kind == "decimal":
        return T.DecimalType(column_type.precision, column_type.scale)
    return _SIMPLE_TYPES[column_type.kind]


def group(source: DataFrame, schema: Schema, cuboids: Sequence[Cuboid], numbers: Sequence[int]) -> DataFrame:
    """Merge partial aggregates by segment and dimensions, into each of these cuboids in one pass.

    Rows carry their segment and the number of their cuboid; a dimension that a cuboid lacks is null in its
    rows. Nulls of the data are a group of their own, as in SQL: the cuboid's number tells them apart. More
    than one cuboid needs at most GROUPED_DIMENSIONS_MAX dimensions.
    """
    merged = [_merge(partial) for partial in schema.partials]
    if len(cuboids) == 1:
        keys = [SEGMENT_COLUMN, *cuboids[0].dimensions]
        return source.groupBy(*keys).agg(F.lit(numbers[0]).alias(CUBOID_COLUMN), *merged)
    wanted = {name for cuboid in cuboids for name in cuboid.dimensions}
    dimensions = [name for name in source.columns if name in wanted]
    sets = [[SEGMENT_COLUMN, *cuboid.dimensions] for cuboid in cuboids]
    grouped = source.groupingSets(sets, SEGMENT_COLUMN, *dimensions)
    number = F.lit(None).cast("int")
    for cuboid, of_cuboid in zip(cuboids, numbers, strict=True):
        lacking = _grouping_id(dimensions, cuboid)
        number = F.when(F.grouping_id() == F.lit(lacking), F.lit(of_cuboid)).otherwise(number)
    return grouped.agg(number.alias(CUBOID_COLUMN), *merged)


def _grouping_id(dimensions: Sequence[str], cuboid: Cuboid) -> int:
    """Return Spark's number of a grouping set: a bit for each dimension, the last one lowest, set where the
    dimension is grouped away. The segment is never grouped away."""
    bits = "".join("0" if name in cuboid.dimensions else "1" for name in dimensions)
    return int(bits or "0", 2)


def _merge(partial: Partial) -> Column:
    return F.expr(spark_sql.merged(partial)).alias(partial.name)


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
    """Return rows of all cuboids and segments, out of rows of the base cuboid with their place in the
    batch.
    """
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
    """Return groups with sketches that one task may hold in its hash table; Spark's own bound, 128, is for
    any.
    """
    sketches = sum(partial.accumulator.sketch_bytes for partial in schema.partials)
    return max(128, _SKETCH_BYTES_MAX // (_PLAIN_GROUP_BYTES + sketches))

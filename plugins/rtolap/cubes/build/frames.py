"""A cube's physical columns in Spark, and the merging of partial aggregates."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rtolap.cubes.format.build_batch import SEGMENT_COLUMN
from rtolap.model.cube import Partial, Schema
from rtolap.model.cuboids import Cuboid
from rtolap.model.types import ColumnType

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


def group(source: DataFrame, schema: Schema, cuboid: Cuboid) -> DataFrame:
    """Merge partial aggregates by segment and dimensions; nulls are a group of their own, as in SQL.

    Rebalanced, so that a segment is one file unless it is large: files of about `session.FILE_BYTES`,
    however many segments there are.
    """
    keys = [SEGMENT_COLUMN, *cuboid.dimensions]
    merged = source.groupBy(*keys).agg(*[_merge(partial) for partial in schema.partials])
    return merged.hint("rebalance", SEGMENT_COLUMN).sortWithinPartitions(*keys)


def _merge(partial: Partial) -> Column:
    column = F.col(partial.name)
    match partial.op:
        case "sum":
            merged = F.sum(column)
        case "min":
            merged = F.min(column)
        case "max":
            merged = F.max(column)
        case "hll":  # Spark would make an empty sketch of a default size out of nulls alone
            merged = F.when(F.count(column) > 0, F.hll_union_agg(column))
    return merged.cast(spark_type(partial.type)).alias(partial.name)


def spark_schema(schema: Schema, cuboid: Cuboid) -> T.StructType:
    fields = [T.StructField(name, spark_type(schema.dimension_type(name))) for name in cuboid.dimensions]
    fields += [T.StructField(partial.name, spark_type(partial.type)) for partial in schema.partials]
    return T.StructType(fields)


def spark_type(column_type: ColumnType) -> T.DataType:
    if column_type.kind == "decimal":
        return T.DecimalType(column_type.precision, column_type.scale)
    return _SIMPLE_TYPES[column_type.kind]

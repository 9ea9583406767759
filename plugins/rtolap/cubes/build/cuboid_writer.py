"""The cuboids of a batch of segments: one Spark job each, split by segment as they are written."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rtolap.cubes.build.job_progress import report
from rtolap.cubes.format import history
from rtolap.cubes.format.build_batch import SEGMENT_COLUMN, new_scratch
from rtolap.model.build_spec import BuildSpec
from rtolap.model.cube import Partial, Schema
from rtolap.model.cuboids import Cuboid, cuboids, smallest_parents
from rtolap.model.types import ColumnType
from rtolap.object_store.store import ObjectStore


class CuboidWriter:
    """Writes the cuboids of a batch into its scratch folder, one Spark job each, split by segment."""

    def __init__(self, spark: SparkSession, store: ObjectStore, specs: Sequence[BuildSpec]) -> None:
        self._spark = spark
        self._store = store
        self._specs = specs
        self._schema = specs[0].schema
        self.folder = new_scratch(specs)
        self.cuboids = cuboids(specs[0].cube_definition)

    def write_all(self, inputs: Sequence[Sequence[str]]) -> None:
        """Base first; each other cuboid out of the smallest one written so far that contains it.

        `inputs`: files of each segment of the batch, in its order.
        """
        base = self.cuboids[0]
        sizes = {base.name: self._write(self._inputs(base, inputs), base, 1)}
        for done, cuboid in enumerate(self.cuboids[1:], start=2):
            parent = smallest_parents(self.cuboids[:done], sizes)[cuboid.name]
            source = next(each for each in self.cuboids if each.name == parent)
            sizes[cuboid.name] = self._write(self._written(source), cuboid, done)

    def _inputs(self, base: Cuboid, inputs: Sequence[Sequence[str]]) -> DataFrame:
        """Rows of all segments, each with its place in the batch."""
        columns = spark_schema(self._schema, base)
        frames = [
            self._spark.read.schema(columns)
            .parquet(*(self._store.spark_uri(path) for path in paths))
            .withColumn(SEGMENT_COLUMN, F.lit(place))
            for place, paths in enumerate(inputs)
            if paths
        ]
        if not frames:
            return self._spark.createDataFrame([], columns.add(SEGMENT_COLUMN, T.IntegerType()))
        return functools.reduce(DataFrame.unionByName, frames)

    def _written(self, cuboid: Cuboid) -> DataFrame:
        """A cuboid of this batch; Spark finds the place in the batch in the folders' names."""
        columns = spark_schema(self._schema, cuboid).add(SEGMENT_COLUMN, T.IntegerType())
        folder = f"{self.folder}/{history.cuboid_folder(cuboid)}"
        if not self._store.exists(folder):  # nothing was written: there are no events
            return self._spark.createDataFrame([], columns)
        return self._spark.read.schema(columns).parquet(self._store.spark_uri(folder))

    def _write(self, source: DataFrame, cuboid: Cuboid, done: int) -> int:
        """Bytes of the cuboid, all segments together."""
        folder = f"{self.folder}/{history.cuboid_folder(cuboid)}"
        frame = group(source, self._schema, cuboid)
        frame.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").partitionBy(
            SEGMENT_COLUMN
        ).parquet(self._store.spark_uri(folder), compression="zstd")
        size = sum(file.bytes for file in self._store.list(folder))
        report("cuboid", self._specs[0], name=cuboid.name, bytes=size, done=done, total=len(self.cuboids))
        return size


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

"""A read becomes a data frame of Spark: files → rows that pass the filter → one row for each group."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.connect import functions as F  # noqa: N812 - as in its own pages
from pyspark.sql.connect.session import SparkSession

from rtolap.aggregates.spark_sql import merged, quoted, spark_type
from rtolap.columnar.schema import select_partials
from rtolap.cubes.format.pages import SPARK_READS
from rtolap.model.predicate import columns_of
from rtolap.query.plan import CubeRead
from rtolap.query.spark.filter import spark_filter
from rtolap.query.spark.wide_sums import wide_columns

PATH, LENGTH, DIGEST = "path", "length", "digest"


def read_frame(spark: SparkSession, read: CubeRead, uris: Sequence[str], *, wide: bool) -> DataFrame:
    """Return the partials of each group. A read without dimensions over no rows gives no row.

    Args:
        wide: True if sums may leave their types; see `wide_sums`.
    """
    rows: DataFrame = spark.read.options(**SPARK_READS).schema(_columns(read)).parquet(*uris)
    if read.filter is not None:
        rows = rows.where(spark_filter(read.filter, read.schema))
    columns = [
        column
        for partial in select_partials(read.schema, read.partials)
        for column in (wide_columns(partial) if wide else ((partial.name, merged(partial)),))
    ]
    groups = rows.groupBy(*(F.col(quoted(name)) for name in read.dimensions))
    grouped: DataFrame = groups.agg(
        *(F.expr(expression).alias(name) for name, expression in columns), F.count(F.lit(1)).alias(_ROWS)
    )
    if not read.dimensions:
        grouped = grouped.where(F.col(quoted(_ROWS)) > F.lit(0))
    return grouped.drop(_ROWS)


_ROWS = "__rows_of_group"


def digest_frame(spark: SparkSession, uris: Sequence[str]) -> DataFrame:
    """Return path, length and SHA-256 of each file, computed where the rows will be read."""
    files = spark.read.format("binaryFile").load(list(uris))
    return files.select(PATH, LENGTH, F.sha2(F.col("content"), 256).alias(DIGEST))


def _columns(read: CubeRead) -> str:
    """Return the columns of the files that the read needs, as Spark declares them."""
    needed = dict.fromkeys((*read.dimensions, *sorted(columns_of(read.filter))))
    columns = [(name, read.schema.dimension_type(name)) for name in needed]
    columns += [(partial.name, partial.type) for partial in select_partials(read.schema, read.partials)]
    return ", ".join(f"{quoted(name)} {spark_type(kind)}" for name, kind in columns)

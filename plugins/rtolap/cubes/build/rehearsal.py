"""A small build of made-up rows: it loads the classes that builds load, and an archive can be made of them.

A target of spark-submit, with the folder to write below: see `rtolap.stack.class_archives`.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rtolap.cubes.build.session import open_session

ROWS = 1_000


def rehearse(spark: SparkSession, folder: str) -> int:
    """Stage rows, group them twice as cuboids are, write them by segment. Returns how many rows are left."""
    staged, base = f"{folder}/staged", f"{folder}/base"
    rows = spark.range(ROWS).select(
        (F.col("id") % 7).cast("string").alias("text"),
        F.timestamp_seconds(F.col("id") * 60).cast("timestamp_ntz").alias("minute"),
        F.col("id").cast("decimal(20,2)").alias("amount"),
        F.col("id").alias("number"),
    )
    grouped = rows.groupBy("text", "minute").agg(
        F.sum("amount").alias("amount"),
        F.max("number").alias("number"),
        F.hll_sketch_agg("number").alias("sketch"),
    )
    grouped.write.parquet(staged, compression="zstd")
    read = spark.read.schema(grouped.schema).parquet(staged)
    both = read.withColumn("segment", F.lit(0)).unionByName(read.withColumn("segment", F.lit(1)))
    for source, keys in ((both, ["segment", "text", "minute"]), (None, ["segment", "text"])):
        frame = spark.read.parquet(base) if source is None else source
        merged = frame.groupBy(*keys).agg(
            F.sum("amount").cast("decimal(20,2)").alias("amount"),
            F.min("number").alias("number"),
            F.when(F.count("sketch") > 0, F.hll_union_agg("sketch")).alias("sketch"),
        )
        ordered = merged.hint("rebalance", "segment").sortWithinPartitions(*keys)
        ordered.write.partitionBy("segment").parquet(f"{folder}/{'last' if source is None else 'base'}")
    return spark.read.parquet(f"{folder}/last").count()


if __name__ == "__main__":
    rehearse(open_session(), sys.argv[1])

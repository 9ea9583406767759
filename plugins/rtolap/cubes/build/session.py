"""The session of spark-submit, with settings of builds where the caller made none."""

from __future__ import annotations

from pyspark.sql import SparkSession

FILE_BYTES = 128 << 20  # adaptive execution joins small partitions into files of about this size

# Set unless spark-submit set them: small shuffles, few files, decimals and overflows that fail loudly.
_DEFAULTS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(FILE_BYTES),
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def open_session() -> SparkSession:
    """The session of spark-submit, with its own settings where the caller made none."""
    spark = SparkSession.builder.appName("rtolap-build").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    given = spark.sparkContext.getConf()
    for key, value in _DEFAULTS.items():
        if not given.contains(key):
            spark.conf.set(key, value)
    if not given.contains("spark.sql.shuffle.partitions"):
        spark.conf.set("spark.sql.shuffle.partitions", str(2 * spark.sparkContext.defaultParallelism))
    return spark

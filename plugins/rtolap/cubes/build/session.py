"""The session of spark-submit, with settings of builds where the caller made none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from rtolap.cubes.build.jvm_ids import lay_out_lines

FILE_BYTES = 128 << 20  # adaptive execution joins small partitions into files of about this size
ROWS_IN_MEMORY_MAX = 1_000_000
ROWS_SETTING = "spark.rtolap.rowsInMemoryMax"  # batches of more rows go through files
LOOKED_AT_HERE_BYTES_MAX = 64 << 20
LOOKED_AT_HERE_SETTING = "spark.rtolap.lookedAtInDriverBytesMax"  # files of larger builds: read by tasks
PYTHON_SETTING = "spark.rtolap.executorsRunPython"  # they have rtolap and the driver's libraries

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
_LOCAL_LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def open_session() -> SparkSession:
    """Return the session of spark-submit, with its own settings where the caller made none.

    On a local master nobody watches the pages of a session that is over in seconds: they are not served.
    """
    SparkContext._ensure_initialized()
    conf = SparkConf()
    builder = SparkSession.builder.appName("rtolap-build")
    if conf.get("spark.master", "").startswith("local") and not conf.contains("spark.ui.enabled"):
        builder = builder.config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    lay_out_lines(spark.sparkContext)
    spark.sparkContext.setLogLevel("WARN")
    return with_defaults(spark)


def with_defaults(spark: SparkSession) -> SparkSession:
    """Return the session, with settings of builds where spark-submit made none."""
    given = spark.sparkContext.getConf()
    for key, value in _DEFAULTS.items():
        if not given.contains(key):
            spark.conf.set(key, value)
    if not given.contains("spark.sql.shuffle.partitions"):
        spark.conf.set("spark.sql.shuffle.partitions", str(2 * spark.sparkContext.defaultParallelism))
    return spark


def list_in_driver(spark: SparkSession) -> None:
    """Have the driver list folders itself: for a local disk, where a job of Spark's takes longer."""
    spark.conf.set(_LOCAL_LISTING, str(1 << 20))


def rows_in_memory_max(spark: SparkSession) -> int:
    """Return how many rows a batch may have that is grouped in memory."""
    return int(spark.conf.get(ROWS_SETTING, str(ROWS_IN_MEMORY_MAX)) or ROWS_IN_MEMORY_MAX)


def looked_at_here_bytes_max(spark: SparkSession) -> int:
    """Return how long the inputs of a batch may be whose files the driver reads itself to verify them."""
    return int(spark.conf.get(LOOKED_AT_HERE_SETTING, str(LOOKED_AT_HERE_BYTES_MAX)) or 0)


def executors_run_python(spark: SparkSession) -> bool:
    """Tell whether tasks may be Python of ours: on the driver's host, or where the caller says so."""
    local = (spark.conf.get("spark.master", "") or "").startswith("local")
    return spark.conf.get(PYTHON_SETTING, str(local).lower()) == "true"


@contextmanager
def changed_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session for the code that runs inside."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)

"""spark-submit target: build versions of segments out of staged parts.

    spark-submit --master local[2] build_segment.py SPEC [SPEC ...]

SPEC is a path or URI of JSON: one BuildSpec, or a list of them. Specs of one cube are built together, so
many segments cost one Spark job a cuboid. `rtolap` has to be importable in the driver (PYTHONPATH or
--py-files); executors run no Python.

One batch, and what a crash after each step leaves behind:

1. inputs are verified (ranges join, manifests, checksums)     nothing
2. leftovers of an earlier try are deleted                     nothing
3. base cuboid, then every cuboid from its smallest parent     files in a scratch folder, read by nobody
4. each segment's files move to its `location`                 folders without a manifest, read by nobody
5. events are counted again from the files                     the same
6. the manifests are written, each atomically, in order        versions that can be promoted

Running a finished build again verifies and reports it; nothing is written twice. A batch that fails is built
again segment by segment, so that a bad segment costs only itself.

Exit codes   0 everything was built
             2 no usable spec                        mend the call
             3 a build was refused, or corrupted     a retry cannot help: queue the segment again, or restore
             4 a build failed otherwise              retry
Progress goes to stdout, a line `rtolap-progress: {json}` per step; the last one of a build has "event":
"built" or "failed".
"""

from __future__ import annotations

import functools
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from rtolap.base.errors import Corrupted, DefinitionError, NotFound, Refused, RtolapError
from rtolap.format import history
from rtolap.format.build_batch import SEGMENT_COLUMN, adopt, batches, check_events, finish, scratch
from rtolap.format.build_inputs import BuildInputs, check_finished, read_specs, verify_inputs
from rtolap.format.manifest import HistoryManifest
from rtolap.format.object_store import ObjectStore, open_store
from rtolap.model.build_spec import BuildResult, BuildSpec
from rtolap.model.cube import Cuboid, Partial, Schema, cuboids, smallest_parents
from rtolap.model.types import ColumnType

EXIT_USAGE, EXIT_REFUSED, EXIT_FAILED = 2, 3, 4
ERROR_CHARS = 2000
FILE_BYTES = 128 << 20  # adaptive execution joins small partitions into files of about this size
SEGMENTS_MAX = 128  # in one job; a plan has one scan for each
_WORKERS = 8  # inputs verified at a time

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


def main(arguments: Sequence[str]) -> int:
    try:
        specs = [spec for argument in arguments for spec in read_specs(argument)]
    except RtolapError as error:
        print(f"build_segment: {error}", file=sys.stderr)
        return EXIT_USAGE
    if not specs:
        print(__doc__, file=sys.stderr)
        return EXIT_USAGE
    spark = open_session()
    try:
        return max([_attempt(spark, batch) for batch in batches(specs, SEGMENTS_MAX)])
    finally:
        spark.stop()


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


def _attempt(spark: SparkSession, batch: Sequence[BuildSpec]) -> int:
    """Build what has to be built of a batch; a failure is reported and does not stop the next batch."""
    started = time.monotonic()
    worst = 0
    wanted: list[Verified] = []
    with ThreadPoolExecutor(_WORKERS) as pool:
        for spec, found in zip(batch, pool.map(_verified, batch), strict=True):
            if isinstance(found, RtolapError):
                worst = max(worst, _failed(spec, found))
            elif isinstance(found, HistoryManifest):
                _report("built", spec, **msgspec.structs.asdict(_result(spec, found, started)))
            else:
                _report("verified", spec, files=len(found.inputs.files), events=found.inputs.events)
                wanted.append(found)
    if not wanted:
        return worst
    try:
        for spec, manifest in build(spark, wanted):
            _report("built", spec, **msgspec.structs.asdict(_result(spec, manifest, started)))
    except Exception as error:  # noqa: BLE001 - whatever Spark raises; reported here and by the exit code
        if len(wanted) == 1:
            return max(worst, _failed(wanted[0].spec, error))
        traceback.print_exc()
        _report("alone", wanted[0].spec, segments=len(wanted), error=str(error)[:ERROR_CHARS])
        return max([worst, *(_attempt(spark, [each.spec]) for each in wanted)])
    return worst


class Verified(NamedTuple):
    """A spec whose inputs may be built."""

    spec: BuildSpec
    inputs: BuildInputs


def _verified(spec: BuildSpec) -> Verified | HistoryManifest | RtolapError:
    """May it be built; or is it built already, and what by; or why not."""
    try:
        store = open_store(spec.object_store)
        if store.exists(history.manifest_path(spec.location)):
            finished = history.verify(store, spec.location, spec.schema)
            check_finished(spec, finished)
            return finished
        return Verified(spec, verify_inputs(store, spec))
    except RtolapError as error:
        return error


def _failed(spec: BuildSpec, error: Exception) -> int:
    if isinstance(error, (Refused, Corrupted, NotFound, DefinitionError)):
        _report("failed", spec, error=str(error), retry=False)
        return EXIT_REFUSED
    traceback.print_exception(error)
    _report("failed", spec, error=str(error)[:ERROR_CHARS], retry=True)
    return EXIT_FAILED


def build(spark: SparkSession, wanted: Sequence[Verified]) -> Iterator[tuple[BuildSpec, HistoryManifest]]:
    """Steps 2 to 6 of a batch; see the module's text. Each version as soon as it is whole, in order."""
    specs = [each.spec for each in wanted]
    events = [each.inputs.events for each in wanted]
    store = open_store(specs[0].object_store)
    for key, value in store.spark_settings.items():
        spark.conf.set(key, value)
    for spec in specs:
        store.delete_tree(spec.location)
    builder = Builder(spark, store, specs)
    builder.write_all([each.inputs.files for each in wanted])
    entries = adopt(store, scratch(specs), specs, builder.cuboids)
    _report("moved", specs[0], segments=len(specs), files=sum(len(e.files) for of in entries for e in of))
    check_events(store, specs, events, entries)
    _report("counted", specs[0], segments=len(specs), events=sum(events))
    for spec, held, of_spec in zip(specs, events, entries, strict=True):
        yield spec, finish(store, spec, held, of_spec)


class Builder:
    """Writes the cuboids of a batch into its scratch folder, one Spark job each, split by segment."""

    def __init__(self, spark: SparkSession, store: ObjectStore, specs: Sequence[BuildSpec]) -> None:
        self._spark = spark
        self._store = store
        self._specs = specs
        self._schema = specs[0].schema
        self._folder = scratch(specs)
        self.cuboids = cuboids(specs[0].cube_definition)

    def write_all(self, inputs: Sequence[Sequence[str]]) -> None:
        """Base first; each other cuboid out of the smallest one written so far that contains it.

        `inputs`: files of each segment of the batch, in its order.
        """
        base = self.cuboids[0]
        rows = {base.name: self._write(self._inputs(base, inputs), base, 1)}
        for done, cuboid in enumerate(self.cuboids[1:], start=2):
            parent = smallest_parents(self.cuboids[:done], rows)[cuboid.name]
            source = next(each for each in self.cuboids if each.name == parent)
            rows[cuboid.name] = self._write(self._written(source), cuboid, done)

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
        folder = f"{self._folder}/{history.cuboid_folder(cuboid)}"
        if not self._store.exists(folder):  # nothing was written: there are no events
            return self._spark.createDataFrame([], columns)
        return self._spark.read.schema(columns).parquet(self._store.spark_uri(folder))

    def _write(self, source: DataFrame, cuboid: Cuboid, done: int) -> int:
        """Rows of the cuboid, all segments together."""
        folder = f"{self._folder}/{history.cuboid_folder(cuboid)}"
        frame = group(source, self._schema, cuboid)
        observed = Observation()
        frame = frame.observe(observed, F.count(F.lit(1)).alias("rows"))
        frame.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").partitionBy(
            SEGMENT_COLUMN
        ).parquet(self._store.spark_uri(folder), compression="zstd")
        rows = int(observed.get["rows"])
        _report("cuboid", self._specs[0], name=cuboid.name, rows=rows, done=done, total=len(self.cuboids))
        return rows


def group(source: DataFrame, schema: Schema, cuboid: Cuboid) -> DataFrame:
    """Merge partial aggregates by segment and dimensions; nulls are a group of their own, as in SQL.

    Rebalanced, so that a segment is one file unless it is large: files of about FILE_BYTES, however many
    segments there are.
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


def _result(spec: BuildSpec, manifest: HistoryManifest, started: float) -> BuildResult:
    return BuildResult(
        build_id=spec.build_id,
        cube=spec.cube,
        segment=spec.segment,
        version=spec.version,
        location=spec.location,
        events=manifest.events,
        base_rows=manifest.cuboids[0].rows,
        cuboids=len(manifest.cuboids),
        bytes=sum(file.bytes for cuboid in manifest.cuboids for file in cuboid.files),
        duration_ms=int((time.monotonic() - started) * 1000),
    )


def _report(event: str, spec: BuildSpec, **fields: object) -> None:
    line = {"event": event, "cube": spec.cube, "segment": spec.segment, "build_id": spec.build_id, **fields}
    print(f"rtolap-progress: {msgspec.json.encode(line).decode()}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

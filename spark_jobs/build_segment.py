"""spark-submit target: build versions of segments out of staged parts.

    spark-submit --master local[2] build_segment.py SPEC [SPEC ...]

SPEC is a path or URI of JSON: one BuildSpec, or a list of them, built one after the other in one session.
`rtolap` has to be importable in the driver (PYTHONPATH or --py-files); executors run no Python.

One build, and what a crash after each step leaves behind:

1. inputs are verified (ranges join, manifests, checksums)     nothing
2. leftovers of an earlier try in `location` are deleted       nothing
3. base cuboid, then every cuboid from its smallest parent     a folder without a manifest, read by nobody
4. events are counted again from the files                     the same
5. the manifest is written, atomically                         a version that can be promoted

Running a finished build again verifies and reports it; nothing is written twice.

Exit codes   0 everything was built
             2 no usable spec                        mend the call
             3 a build was refused, or corrupted     a retry cannot help: queue the segment again, or restore
             4 a build failed otherwise              retry
Progress goes to stdout, a line `rtolap-progress: {json}` per step; the last one of a build has "event":
"built" or "failed".
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Sequence

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from rtolap.base.errors import Corrupted, DefinitionError, NotFound, Refused, RtolapError
from rtolap.format import history
from rtolap.format.build_inputs import check_finished, read_specs, verify_inputs
from rtolap.format.manifest import CuboidEntry, FileEntry, HistoryManifest
from rtolap.format.object_store import ObjectStore, open_store
from rtolap.model.build_spec import BuildResult, BuildSpec
from rtolap.model.cube import Cuboid, Partial, Schema, cuboids, smallest_parents
from rtolap.model.types import ColumnType

EXIT_USAGE, EXIT_REFUSED, EXIT_FAILED = 2, 3, 4
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
        return max([_attempt(spark, spec) for spec in specs])
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


def _attempt(spark: SparkSession, spec: BuildSpec) -> int:
    """One build of several: its failure is reported and does not stop the next."""
    try:
        result = build(spark, spec)
    except (Refused, Corrupted, NotFound, DefinitionError) as error:
        _report(spec, "failed", error=str(error), retry=False)
        return EXIT_REFUSED
    except Exception as error:  # noqa: BLE001 - whatever Spark raises; reported here and by the exit code
        traceback.print_exc()
        _report(spec, "failed", error=str(error)[:2000], retry=True)
        return EXIT_FAILED
    _report(spec, "built", **msgspec.structs.asdict(result))
    return 0


def build(spark: SparkSession, spec: BuildSpec) -> BuildResult:
    """All five steps of one build; see the module's text."""
    started = time.monotonic()
    store = open_store(spec.object_store)
    if store.exists(history.manifest_path(spec.location)):
        finished = history.verify(store, spec.location, spec.schema)
        check_finished(spec, finished)
        return _result(spec, finished, started)
    inputs = verify_inputs(store, spec)
    _report(spec, "verified", files=len(inputs.files), events=inputs.events)
    store.delete_tree(spec.location)
    entries = Builder(spark, store, spec).write_all(inputs.files)
    for entry in (entries[0], entries[-1]):
        found = history.count_events(store, spec.location, entry.files)
        if found != inputs.events:
            raise Corrupted(
                f"cuboid {entry.name} of {spec.location}", expected=f"{inputs.events} events", found=found
            )
    manifest = HistoryManifest(
        cube=spec.cube,
        segment=spec.segment,
        version=spec.version,
        build_id=spec.build_id,
        covered=spec.covered,
        events=inputs.events,
        cuboids=tuple(entries),
    )
    history.write_manifest(store, spec.location, manifest)
    return _result(spec, manifest, started)


class Builder:
    """Writes the cuboids of one build below its location."""

    def __init__(self, spark: SparkSession, store: ObjectStore, spec: BuildSpec) -> None:
        self._spark = spark
        self._store = store
        self._spec = spec
        self._schema = spec.schema
        self._cuboids = cuboids(spec.cube_definition)

    def write_all(self, inputs: Sequence[str]) -> list[CuboidEntry]:
        """Base first; each other cuboid out of the smallest one written so far that contains it."""
        base = self._cuboids[0]
        entries = {base.name: self._write(self._read(base, inputs), base, 1)}
        for done, cuboid in enumerate(self._cuboids[1:], start=2):
            rows = {name: entry.rows for name, entry in entries.items()}
            parent = entries[smallest_parents(self._cuboids[:done], rows)[cuboid.name]]
            paths = [f"{self._spec.location}/{file.name}" for file in parent.files]
            source = self._read(Cuboid(parent.dimensions), paths)
            entries[cuboid.name] = self._write(source, cuboid, done)
        return list(entries.values())

    def _read(self, cuboid: Cuboid, paths: Sequence[str]) -> DataFrame:
        columns = spark_schema(self._schema, cuboid)
        if not paths:
            return self._spark.createDataFrame([], columns)
        return self._spark.read.schema(columns).parquet(*(_uri(self._store, path) for path in paths))

    def _write(self, source: DataFrame, cuboid: Cuboid, done: int) -> CuboidEntry:
        folder = history.cuboid_folder(cuboid)
        frame = group(source, self._schema, cuboid)
        frame.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(
            _uri(self._store, f"{self._spec.location}/{folder}"), compression="zstd"
        )
        files = self._files(folder)
        rows = sum(file.rows for file in files)
        _report(self._spec, "cuboid", name=cuboid.name, rows=rows, done=done, total=len(self._cuboids))
        return CuboidEntry(folder, cuboid.dimensions, rows, files)

    def _files(self, folder: str) -> tuple[FileEntry, ...]:
        location = self._spec.location
        names = [file.path.removeprefix(f"{location}/") for file in self._store.list(f"{location}/{folder}")]
        for name in names:
            if not name.endswith(".parquet"):  # Hadoop's own checksums, on a local disk
                self._store.delete(f"{location}/{name}")
        parquet = [name for name in names if name.endswith(".parquet")]
        return tuple(history.describe_file(self._store, location, name) for name in parquet)


def group(source: DataFrame, schema: Schema, cuboid: Cuboid) -> DataFrame:
    """Merge partial aggregates by the cuboid's dimensions; nulls are a group of their own, as in SQL."""
    keys = list(cuboid.dimensions)
    merged = source.groupBy(*keys).agg(*[_merge(partial) for partial in schema.partials])
    if not keys:  # without keys Spark makes one row even out of none
        merged = merged.where(F.col("__rows").isNotNull())
    return merged.sortWithinPartitions(*keys) if keys else merged


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


def _uri(store: ObjectStore, path: str) -> str:
    """What Spark opens; Hadoop's name of the S3 file system is s3a."""
    uri = store.uri(path)
    return "s3a" + uri.removeprefix("s3") if uri.startswith("s3://") else uri


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


def _report(spec: BuildSpec, event: str, **fields: object) -> None:
    line = {"event": event, "cube": spec.cube, "segment": spec.segment, "build_id": spec.build_id, **fields}
    print(f"rtolap-progress: {msgspec.json.encode(line).decode()}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

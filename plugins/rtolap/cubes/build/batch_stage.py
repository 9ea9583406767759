"""Stages a batch: rows of a source that Spark reads become staged parts of segments.

Each row goes the way of an event: it is written as the JSON of a record, decoded and rolled up as receivers
do. So types, computed columns and refusals are those of the stream. What a receiver
would send to dead letters ends the batch, named, and nothing is changed.

1. delete what an earlier try has left            plan.json stays
2. read, roll up, merge, write by segment         files that no manifest names
3. look at the files, write a manifest a segment  the same
4. write batch.json                               a batch that can be applied
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from rtolap.base.errors import Corrupted, DefinitionError, NotFound, Refused, RtolapError
from rtolap.base.ids import bound, note
from rtolap.base.spans import span
from rtolap.columnar.schema import EVENT_MS, physical_schema
from rtolap.cubes.build.batch_errors import errors_of_source, failure_text, without_secrets
from rtolap.cubes.build.batch_source import as_records, read_source, schema_of_batch
from rtolap.cubes.build.file_looks import FilesOfBuild
from rtolap.cubes.build.grouping import group, spark_schema
from rtolap.cubes.build.job_ids import InTask
from rtolap.cubes.build.job_progress import EXIT_FAILED, EXIT_REFUSED, report_batch
from rtolap.cubes.build.jvm_ids import tell, told
from rtolap.cubes.build.session import executors_run_python
from rtolap.cubes.format.aggregate import aggregate_events, to_plain
from rtolap.cubes.format.build_batch import CUBOID_COLUMN, SEGMENT_COLUMN, make_durable
from rtolap.cubes.format.file_states import FileToLookAt, entry_of, events_of
from rtolap.cubes.format.manifest import (
    BATCH_NAME,
    MANIFEST_NAME,
    BatchManifest,
    BatchPart,
    FileEntry,
    StagedManifest,
    decode,
    encode,
)
from rtolap.cubes.format.tries import new_try
from rtolap.events.decode import EventDecoder
from rtolap.model.batch import BatchSegment, BatchSpec
from rtolap.model.cube import Cuboid, Schema
from rtolap.model.quantities import instant_text
from rtolap.model.segment import SegmentRange, StagedPart, parse_segment_name
from rtolap.object_store.store import ObjectStore, open_store

REPLICA_SET = "batch"  # in the place of who uploads a part
_ROWS = "rows"  # how the folder of the files of a try begins; they are there by segment
_EXAMPLES, _SHOWN_CHARS = 5, 300  # of refused rows
_ROWS_MAX = 1 << 16  # of a step: decoded and rolled up at once


class Staged(NamedTuple):
    segments: int
    rows: int
    events: int


def attempt(spark: SparkSession, spec: BatchSpec, environment: dict[str, str]) -> int:
    """Stage the batch and report how that ended. Returns 0, EXIT_REFUSED or EXIT_FAILED."""
    with bound(cube=spec.cube, batch=spec.batch), span("batch"), told(spark):
        return _attempt(spark, spec, environment)


def _attempt(spark: SparkSession, spec: BatchSpec, environment: dict[str, str]) -> int:
    started = time.monotonic()
    secrets = [environment.get(variable, "") for variable in spec.source.secrets.values()]

    def failed(text: str, *, retry: bool) -> None:
        report_batch("failed", spec.cube, spec.batch, error=without_secrets(text, secrets), retry=retry)

    try:
        staged = stage(spark, spec, environment)
    except (Refused, Corrupted, DefinitionError) as error:
        failed(str(error), retry=False)
        return EXIT_REFUSED
    except Exception as error:  # noqa: BLE001 - whatever Spark raises; reported here and by the exit code
        print(without_secrets(traceback.format_exc(), secrets), file=sys.stderr)
        failed(failure_text(error), retry=True)
        return EXIT_FAILED
    took_ms = int((time.monotonic() - started) * 1000)
    report_batch("staged", spec.cube, spec.batch, **staged._asdict(), duration_ms=took_ms)
    return 0


def stage(spark: SparkSession, spec: BatchSpec, environment: dict[str, str]) -> Staged:
    """Stage the batch, unless it is staged. `environment`: holds the secrets of the source's options.

    Raises Refused for a row that no event of the cube could be, and for one outside the range;
    DefinitionError for a source that cannot be read as it is named, Unavailable where its server does not
    answer.
    """
    store = open_store(spec.object_store)
    path = f"{spec.folder}/{BATCH_NAME}"
    try:
        return _staged(decode(store.read(path), BatchManifest, path))
    except NotFound:
        pass
    if not executors_run_python(spark):
        raise DefinitionError(
            "a batch cannot be staged here",
            expected="executors that run Python, which decode rows as receivers decode events",
            action="set spark.rtolap.executorsRunPython where rtolap and its libraries are on the executors",
        )
    for key, value in store.spark_settings.items():
        spark.conf.set(key, value)
    tried = new_try()
    note(**{"try": tried})
    tell(spark)
    folder = f"{spec.folder}/{_ROWS}-{tried}"  # another driver's may be what the manifest names
    try:
        _write(spark, store, spec, folder, environment)
        parts = tuple(_parts(spark, store, spec, folder))
    except Exception:
        _drop(store, folder)
        raise
    if store.exists(path):
        _drop(store, folder)
        return _staged(decode(store.read(path), BatchManifest, path))
    manifest = BatchManifest(cube=spec.cube, batch=spec.batch, parts=parts)
    store.write(path, encode(manifest))
    return _staged(manifest)


def _drop(store: ObjectStore, folder: str) -> None:
    """Delete what no manifest names. Where the store does not let it, the clean-up of the batch does."""
    try:
        store.delete_tree(folder)
    except RtolapError as error:
        traceback.print_exception(error)


def _staged(manifest: BatchManifest) -> Staged:
    parts = [each.part for each in manifest.parts]
    return Staged(len(parts), sum(part.rows for part in parts), sum(part.events for part in parts))


def _write(
    spark: SparkSession, store: ObjectStore, spec: BatchSpec, folder: str, environment: dict[str, str]
) -> None:
    with errors_of_source(spec.source, spark.version, opening=True):
        rows = read_source(spark, spec.source, environment)
        schema = schema_of_batch(rows, Schema(spec.table_definition, spec.cube_definition), spec.source)
        records = as_records(rows, schema, spec.source)
    base = Cuboid(spec.cube_definition.all_dimensions)
    columns = spark_schema(schema, base).add(SEGMENT_COLUMN, T.IntegerType())
    refusals = spark.sparkContext.accumulator(Refusals(), _RefusalsParam())
    roll_up = RollUp(schema, spec.start_ms, spec.end_ms, spec.source.outside, refusals)
    rolled = records.mapInArrow(InTask(roll_up), columns)
    frame = group(rolled, schema, [base], [0]).drop(CUBOID_COLUMN)
    frame = frame.hint("rebalance", SEGMENT_COLUMN).sortWithinPartitions(SEGMENT_COLUMN, *base.dimensions)
    writer = frame.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    with errors_of_source(spec.source, spark.version, opening=False):
        writer.partitionBy(SEGMENT_COLUMN).parquet(store.spark_uri(folder), compression="zstd")
    refused = refusals.value
    if refused.rows:
        raise Refused(
            f"{refused.rows} rows of batch {spec.batch} cannot be events of cube {spec.cube}",
            expected=f"rows of {SegmentRange(spec.start_ms, spec.end_ms).name} that a receiver would take",
            found="; ".join(refused.examples),
            action="mend the source, or choose another range; `outside: leave_out` keeps what is inside. "
            "Nothing was changed",
        )


class Refusals(NamedTuple):
    """Rows that no event could be. A task that is repeated counts its own again."""

    rows: int = 0
    examples: tuple[str, ...] = ()


class _RefusalsParam(AccumulatorParam[Refusals]):
    def zero(self, value: Refusals) -> Refusals:
        return Refusals()

    def addInPlace(self, value1: Refusals, value2: Refusals) -> Refusals:  # noqa: N802 - Spark's name
        return Refusals(value1.rows + value2.rows, (value1.examples + value2.examples)[:_EXAMPLES])


class RollUp:
    """Turns JSON records into rows of the base cuboid, each with its segment's place in the range.

    Rows that are refused are added to `refusals` and left out, so that one look at the source finds them all.
    """

    def __init__(
        self, schema: Schema, start_ms: int, end_ms: int, outside: str, refusals: Accumulator[Refusals]
    ) -> None:
        self._schema = schema
        self._start_ms, self._end_ms = start_ms, end_ms
        self._outside = outside
        self._refusals = refusals

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = EventDecoder(self._schema)
        expected = physical_schema(self._schema, plain=True)
        window_ms = self._schema.cube.segment.window_ms
        now_ms = time.time_ns() // 1_000_000
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS_MAX):
                events = self._events(decoder, batch.column(0).slice(start, _ROWS_MAX), now_ms)
                for segment_ms, table in aggregate_events(self._schema, events).items():
                    rows = to_plain(self._schema, table).select(expected.names).cast(expected)
                    place = (segment_ms - self._start_ms) // window_ms
                    places = pa.array(np.full(rows.num_rows, place, np.int32))
                    yield from rows.append_column(SEGMENT_COLUMN, places).combine_chunks().to_batches()

    def _events(self, decoder: EventDecoder, records: pa.Array, now_ms: int) -> pa.Table:
        values = [None if value is None else value.encode() for value in records.to_pylist()]
        nowhere = np.zeros(len(values), np.int32), np.zeros(len(values), np.int64)
        decoded = decoder.decode(values, *nowhere, now_ms=now_ms)
        rejects = decoded.rejects
        if len(rejects):
            examples = [
                f"{reason}: {detail}, in {records[place].as_py()[:_SHOWN_CHARS]}"
                for place, reason, detail in zip(
                    rejects.index[:_EXAMPLES].tolist(), rejects.reason, rejects.detail, strict=False
                )
            ]
            self._refusals.add(Refusals(len(rejects), tuple(examples)))
        event_ms = decoded.table.column(EVENT_MS).to_numpy()
        inside = (event_ms >= self._start_ms) & (event_ms < self._end_ms)
        if inside.all():
            return decoded.table
        if self._outside == "refuse":
            examples = [f"event time {instant_text(int(each))}" for each in event_ms[~inside][:_EXAMPLES]]
            self._refusals.add(Refusals(int((~inside).sum()), tuple(examples)))
        return decoded.table.filter(pa.array(inside))


def _parts(spark: SparkSession, store: ObjectStore, spec: BatchSpec, folder: str) -> Iterator[BatchPart]:
    """Yield the parts of all segments with rows, and of those without that have a record."""
    files: dict[str, list[str]] = {}
    size_bytes = 0
    for stored in store.list(folder):
        parent, _, name = stored.path.rpartition("/")
        if name.endswith(".parquet"):
            files.setdefault(parent, []).append(name)
            size_bytes += stored.bytes
    paths = [f"{parent}/{name}" for parent, names in files.items() for name in names]
    make_durable(store, paths)
    look = FilesOfBuild(spark, size_bytes)
    looked = look(spec.object_store, [FileToLookAt(path, counts_events=True) for path in paths])
    entries = {
        path: (entry_of(path.rpartition("/")[2], state), events_of(state))
        for path, state in zip(paths, looked, strict=True)
    }
    places = {f"{folder}/{SEGMENT_COLUMN}={place}": segment for place, segment in enumerate(_windows(spec))}
    foreign = sorted(set(files) - set(places))
    if foreign:
        raise Corrupted(f"files of batch {spec.batch}", expected="folders of its segments", found=foreign[0])
    for parent, segment in places.items():
        names = sorted(files.get(parent, ()))
        if names or segment.is_recorded:
            found = [entries[f"{parent}/{name}"] for name in names]
            yield _part(
                store, spec, parent, segment, [entry for entry, _ in found], sum(count for _, count in found)
            )


def _windows(spec: BatchSpec) -> Sequence[BatchSegment]:
    """Return the segments, after a look that they are the windows of the range."""
    window_ms = spec.cube_definition.segment.window_ms
    starts = [parse_segment_name(each.segment).start_ms for each in spec.segments]
    if starts != list(range(spec.start_ms, spec.end_ms, window_ms)):
        raise Corrupted(f"plan of batch {spec.batch}", expected="all segments of its range, by start")
    return spec.segments


def _part(
    store: ObjectStore,
    spec: BatchSpec,
    folder: str,
    segment: BatchSegment,
    files: Sequence[FileEntry],
    events: int,
) -> BatchPart:
    manifest = StagedManifest(
        cube=spec.cube,
        segment=segment.segment,
        version=segment.version,
        replica_set=REPLICA_SET,
        ranges=segment.ranges,
        files=tuple(files),
        events=events,
    )
    store.write(f"{folder}/{MANIFEST_NAME}", encode(manifest))
    part = StagedPart(
        replica_set=REPLICA_SET,
        path=folder,
        ranges=segment.ranges,
        rows=sum(entry.rows for entry in files),
        events=events,
        bytes=sum(entry.bytes for entry in files),
    )
    return BatchPart(segment.segment, segment.version, part)

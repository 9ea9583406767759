"""A batch of segments, from specs to versions that can be promoted: steps 1 to 6 of the Spark job."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from pyspark.sql import SparkSession

from rtolap.base.errors import Corrupted, DefinitionError, NotFound, Refused, RtolapError
from rtolap.base.ids import CarryingPool, note
from rtolap.base.spans import span
from rtolap.cubes.build.cuboid_writers import CuboidWriter, PieceWriter
from rtolap.cubes.build.file_looks import FilesOfBuild
from rtolap.cubes.build.grouping import group_rows, is_small
from rtolap.cubes.build.job_ids import builds
from rtolap.cubes.build.job_progress import EXIT_FAILED, EXIT_REFUSED, error_text, report, report_cuboid
from rtolap.cubes.build.jvm_ids import tell, told
from rtolap.cubes.build.session import executors_run_python, list_in_driver
from rtolap.cubes.build.stage_progress import reported_stages
from rtolap.cubes.format import history
from rtolap.cubes.format.build_batch import (
    Adopted,
    VersionWriter,
    adopt,
    batches,
    check_counted,
    check_events,
    finish,
    read_rows,
)
from rtolap.cubes.format.build_inputs import (
    BuildInputs,
    DeclaredInputs,
    check_finished,
    declared_inputs,
    read_specs,
)
from rtolap.cubes.format.file_states import FileToLookAt
from rtolap.cubes.format.manifest import CuboidEntry, HistoryManifest
from rtolap.cubes.format.tries import drop_try, new_try
from rtolap.model.build_spec import BuildResult, BuildSpec
from rtolap.model.cube import cuboids
from rtolap.object_store.store import ObjectStore, open_store

EXIT_USAGE = 2
SEGMENTS_MAX = 128  # in one job: a failure in one has all of them built again
_WORKERS = 8  # inputs verified at a time


def build_all(spark: SparkSession, specs: Sequence[BuildSpec]) -> int:
    """Build all, those of one cube together. Returns the exit code of `spark_jobs/build_segment.py`."""
    return max([attempt(spark, batch) for batch in batches(specs, SEGMENTS_MAX)])


def build_named(spark: SparkSession, arguments: Sequence[str]) -> int:
    """Build what the arguments of `spark_jobs/build_segment.py` name. Returns its exit code."""
    try:
        specs = [spec for argument in arguments for spec in read_specs(argument)]
    except RtolapError as error:
        print(f"build_segment: {error}", file=sys.stderr)
        return EXIT_USAGE
    return build_all(spark, specs) if specs else EXIT_USAGE


class Verified(NamedTuple):
    """A spec whose inputs may be built."""

    spec: BuildSpec
    inputs: BuildInputs


def attempt(spark: SparkSession, batch: Sequence[BuildSpec]) -> int:
    """Build what has to be built of a batch; a failure is reported and does not stop the next batch.

    Returns 0, EXIT_REFUSED or EXIT_FAILED, the worst of all.
    """
    with builds(batch), span("build"), told(spark):
        return _attempt(spark, batch)


def _attempt(spark: SparkSession, batch: Sequence[BuildSpec]) -> int:
    started = time.monotonic()
    worst = 0
    wanted: list[Verified] = []
    with span("verify"):
        looked = verify(spark, batch)
    for spec, verified in zip(batch, looked, strict=True):
        if isinstance(verified, RtolapError):
            worst = max(worst, failed(spec, verified))
        elif isinstance(verified, HistoryManifest):
            report("built", spec, **msgspec.structs.asdict(_result(spec, verified, started)))
        else:
            report("verified", spec, files=len(verified.inputs.files), events=verified.inputs.events)
            wanted.append(verified)
    if not wanted:
        return worst
    try:
        for spec, manifest in build(spark, wanted):
            report("built", spec, **msgspec.structs.asdict(_result(spec, manifest, started)))
    except Exception as error:  # noqa: BLE001 - whatever Spark raises; reported here and by the exit code
        if len(wanted) == 1:
            return max(worst, failed(wanted[0].spec, error))
        traceback.print_exc()
        report("alone", wanted[0].spec, segments=len(wanted), error=error_text(error))
        return max([worst, *(attempt(spark, [each.spec]) for each in wanted)])
    return worst


def build(spark: SparkSession, wanted: Sequence[Verified]) -> Iterator[tuple[BuildSpec, HistoryManifest]]:
    """Run steps 2 to 6 of a batch. Yields each version as soon as it is complete, in order."""
    specs = [each.spec for each in wanted]
    inputs = [each.inputs for each in wanted]
    store = open_store(specs[0].object_store)
    entries = write_cuboids(spark, store, specs, inputs)
    for spec, each, of_spec in zip(specs, inputs, entries, strict=True):
        yield spec, finish(store, spec, each.events, of_spec)


def write_cuboids(
    spark: SparkSession, store: ObjectStore, specs: Sequence[BuildSpec], inputs: Sequence[BuildInputs]
) -> list[list[CuboidEntry]]:
    """Run steps 2 to 5 of a batch: write the files of each spec, without a manifest, and count them again.

    Of the specs their locations, their definitions and their names for reports are used. What a failed try
    has written is deleted; what other tries have written there is left (see `tries`).
    """
    events = [each.events for each in inputs]
    tried = new_try()
    note(**{"try": tried})
    tell(spark)
    try:
        with span("write cuboids"), reported_stages(spark, specs[0]):
            if is_small(spark, specs[0].schema, cuboids(specs[0].cube_definition), inputs):
                entries = _in_memory(spark, store, tried, specs, inputs)
                check_events(store, specs, events, entries)
            else:
                adopted = _in_files(spark, store, tried, specs, inputs)
                entries = adopted.entries
                check_counted(specs, events, entries, adopted.events)
    except Exception:
        _drop(store, specs, tried)
        raise
    report("counted", specs[0], segments=len(specs), events=sum(events))
    return entries


def _drop(store: ObjectStore, specs: Sequence[BuildSpec], tried: str) -> None:
    """Delete what a try has written. Where the store does not let it, the clean-up of the folder does."""
    try:
        drop_try(store, [spec.location for spec in specs], tried)
    except RtolapError as error:
        traceback.print_exception(error)


def _in_memory(
    spark: SparkSession,
    store: ObjectStore,
    tried: str,
    specs: Sequence[BuildSpec],
    inputs: Sequence[BuildInputs],
) -> list[list[CuboidEntry]]:
    """Run steps 3 and 4 for small segments: files are written once, where they stay."""
    schema, of_cube = specs[0].schema, cuboids(specs[0].cube_definition)
    rows = read_rows(store, schema, [each.files for each in inputs])
    report("read", specs[0], segments=len(specs), rows=rows.num_rows)
    grouped = group_rows(spark, schema, of_cube, rows)
    report("grouped", specs[0], segments=len(specs), rows=grouped.num_rows)
    writer = VersionWriter(store, tried, specs, of_cube, grouped)
    by_cuboid = []
    for number, cuboid in enumerate(of_cube):
        by_cuboid.append(writer.write(number))
        size = sum(file.bytes for entry in by_cuboid[-1] for file in entry.files)
        report_cuboid(specs[0], cuboid, size, number + 1, len(of_cube))
    return [list(of_spec) for of_spec in zip(*by_cuboid, strict=True)]


def _in_files(
    spark: SparkSession,
    store: ObjectStore,
    tried: str,
    specs: Sequence[BuildSpec],
    inputs: Sequence[BuildInputs],
) -> Adopted:
    """Run steps 3 and 4 for large segments: tasks write below a scratch folder, and its files are moved."""
    writer: PieceWriter | CuboidWriter
    if executors_run_python(spark):
        writer = PieceWriter(spark, store, tried, specs)
    else:
        for key, value in store.spark_settings.items():
            spark.conf.set(key, value)
        if store.is_local:
            list_in_driver(spark)
        writer = CuboidWriter(spark, store, tried, specs)
    writer.write_all([each.files for each in inputs])
    look = FilesOfBuild(spark, sum(each.bytes for each in inputs))
    adopted = adopt(store, tried, specs, writer.cuboids, writer.folders, look)
    files = sum(len(entry.files) for of_spec in adopted.entries for entry in of_spec)
    report("moved", specs[0], segments=len(specs), files=files)
    return adopted


def verify(spark: SparkSession, batch: Sequence[BuildSpec]) -> list[Verified | HistoryManifest | RtolapError]:
    """Return for each spec its inputs if it may be built, the manifest if it is built already, or why it is
    not built."""
    with CarryingPool(_WORKERS) as pool:
        found = list(pool.map(_declared, batch))
    declared = [each for each in found if isinstance(each, DeclaredInputs)]
    files = [FileToLookAt(file.path) for each in declared for file in each.files]
    look = FilesOfBuild(spark, sum(each.bytes for each in declared))
    looked = iter(look(batch[0].object_store, files) if files else ())
    verified: list[Verified | HistoryManifest | RtolapError] = []
    for spec, each in zip(batch, found, strict=True):
        if not isinstance(each, DeclaredInputs):
            verified.append(each)
            continue
        states = [next(looked) for _ in each.files]
        try:
            verified.append(Verified(spec, each.verified(states)))
        except RtolapError as error:
            verified.append(error)
    return verified


def _declared(spec: BuildSpec) -> DeclaredInputs | HistoryManifest | RtolapError:
    try:
        store = open_store(spec.object_store)
        if store.exists(history.manifest_path(spec.location)):
            finished = history.verify(store, spec.location, spec.schema)
            check_finished(spec, finished)
            return finished
        return declared_inputs(store, spec)
    except RtolapError as error:
        return error


def failed(spec: BuildSpec, error: Exception) -> int:
    """Report a failure. Return EXIT_REFUSED for what another try cannot mend, else EXIT_FAILED."""
    if isinstance(error, (Refused, Corrupted, NotFound, DefinitionError)):
        report("failed", spec, error=str(error), retry=False)
        return EXIT_REFUSED
    traceback.print_exception(error)
    report("failed", spec, error=error_text(error), retry=True)
    return EXIT_FAILED


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

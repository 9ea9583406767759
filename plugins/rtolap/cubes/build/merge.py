"""Merges, from specs to sets that can be committed: step 2 of a merge, in a Spark driver.

1. verify the members' manifests, and their base cuboids as inputs of a build are
2. write all cuboids of all members' rows together, as builds do, and count their events again
3. write the manifest                                crash before: files that no manifest names, which go
                                                     with the folder; after: the repetition reports the set

Two drivers may write one set: neither deletes what the other has written (see `tries`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from pyspark.sql import SparkSession

from rtolap.base.errors import RtolapError
from rtolap.base.ids import bound
from rtolap.base.spans import span
from rtolap.cubes.build.build import EXIT_USAGE, failed, write_cuboids
from rtolap.cubes.build.file_looks import FilesOfBuild
from rtolap.cubes.build.job_progress import report
from rtolap.cubes.build.jvm_ids import told
from rtolap.cubes.format import history
from rtolap.cubes.format.file_states import FileToLookAt
from rtolap.cubes.format.manifest import MergedManifest
from rtolap.cubes.format.merge_inputs import declared_members, finish_set, read_merge_specs, verify_set
from rtolap.model.build_spec import BuildSpec
from rtolap.model.merging.specs import MergeSpec
from rtolap.object_store.store import open_store


def merge_named(spark: SparkSession, arguments: Sequence[str]) -> int:
    """Write the merges that the arguments of `spark_jobs/merge_segments.py` name. Returns its exit code."""
    try:
        specs = [spec for argument in arguments for spec in read_merge_specs(argument)]
    except RtolapError as error:
        print(f"merge_segments: {error}", file=sys.stderr)
        return EXIT_USAGE
    return max([_identified(spark, spec) for spec in specs], default=EXIT_USAGE)


def _identified(spark: SparkSession, spec: MergeSpec) -> int:
    of_merge = bound(cube=spec.cube, segment=spec.interval.name, merge=spec.merge)
    with of_merge, span("merge"), told(spark):
        return _attempt(spark, spec)


def merge(spark: SparkSession, spec: MergeSpec) -> MergedManifest:
    """Write one set. Raises Refused, Corrupted and NotFound for members that are not what the spec says."""
    store = open_store(spec.object_store)
    if store.exists(history.manifest_path(spec.location)):
        return verify_set(store, spec)
    declared = declared_members(store, spec)
    look = FilesOfBuild(spark, declared.bytes)
    files = [FileToLookAt(file.path) for file in declared.files]
    inputs = declared.verified(look(spec.object_store, files) if files else ())
    report("verified", _as_build(spec), files=len(inputs.files), events=inputs.events)
    (entries,) = write_cuboids(spark, store, [_as_build(spec)], [inputs])
    return finish_set(store, spec, entries)


def _attempt(spark: SparkSession, spec: MergeSpec) -> int:
    """Write one set; a failure is reported and does not stop the next one."""
    started = time.monotonic()
    try:
        manifest = merge(spark, spec)
    except Exception as error:  # noqa: BLE001 - whatever Spark raises; reported here and by the exit code
        return failed(_as_build(spec), error)
    report(
        "merged",
        _as_build(spec),
        segments=len(spec.members),
        events=manifest.events,
        files=sum(len(cuboid.files) for cuboid in manifest.cuboids),
        duration_ms=int((time.monotonic() - started) * 1000),
    )
    return 0


def _as_build(spec: MergeSpec) -> BuildSpec:
    """Return what `write_cuboids` takes: a set is written as a version of one segment is."""
    return BuildSpec(
        build_id=spec.merge,
        cube=spec.cube,
        segment=spec.interval.name,
        start_ms=spec.start_ms,
        end_ms=spec.end_ms,
        version=1,
        table_definition=spec.table_definition,
        cube_definition=spec.cube_definition,
        covered={},
        object_store=spec.object_store,
        location=spec.location,
    )

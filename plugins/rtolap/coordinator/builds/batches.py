"""Batches: a range of a cube's event time whose events another source than its topic says.

    plan     names segments, versions and vectors      a plan in the object store; nothing has changed
    (stage)  Spark reads the source and rolls it up    staged parts, which nobody reads
    apply    hands the parts over, one by one          segments are REMOTE_PERSISTED, and built as others are

A crash anywhere leaves what its step leaves; each may be repeated. A segment that has changed since the plan
is Refused: then a batch is planned again. One segment is replaced at once, by its promotion; a batch of many
is not: statements see some of them replaced before others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import msgspec

from rtolap.base.decoding import convert
from rtolap.base.errors import AlreadyExists, DefinitionError, NotFound, NotYet, Refused
from rtolap.base.undecodable import UNDECODABLE
from rtolap.coordinator.builds.replaceable import check_own_time, check_replaceable, check_settled
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.views import Views
from rtolap.cubes.format.folders import creation_folder
from rtolap.cubes.format.manifest import (
    BATCH_NAME,
    PLAN_NAME,
    BatchManifest,
    BatchPlan,
    decode,
    encode,
)
from rtolap.metadata import segment_batches
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.batch import (
    BatchSegment,
    BatchSource,
    BatchSpec,
    check_batch_id,
    check_source,
    windows_of,
)
from rtolap.model.cube import Cube
from rtolap.model.offsets import Offsets, PartRange
from rtolap.model.segment import SegmentRange, parse_segment_name
from rtolap.object_store.store import ObjectStore
from rtolap.protocols.coordinator import messages as wire

APPLIED_MAX = 256  # segments that one request hands over
PLANS_APPLIED_MS = 6 * 86_400_000  # a batch is staged and applied within this time, or planned again
PLANS_KEPT_MS = 7 * 86_400_000  # longer by more than a clean-up takes


class Batches:
    def __init__(
        self,
        metadata: ClusterMetadata,
        views: Views,
        heartbeats: Heartbeats,
        store: ObjectStore,
        object_store_uri: str,
    ) -> None:
        self._metadata = metadata
        self._views = views
        self._heartbeats = heartbeats
        self._store = store
        self._uri = object_store_uri

    def plan(self, cube: str, request: wire.BatchRequest) -> wire.BatchPlanMessage:
        """Return what is to be staged.

        Raises Refused where a segment of the range cannot be replaced now; NotYet while it is not known of
        which segments receivers hold events, as after a change of leader: the request is repeated then.
        """
        batch = check_batch_id(request.batch)
        cube_id, control, records = self._views.fresh_creation(cube)
        schema = self._metadata.schema(cube)
        if schema.cube.retention.policy == "PURGE":
            raise Refused(
                f"cube {cube} keeps no history that a batch could be part of",
                expected="retention: {policy: FULL_BUILD}",
                found="PURGE",
            )
        source = _source(request.source)
        check_source(source, schema.table, schema.read_columns)
        windows = windows_of(request.start_ms, request.end_ms, schema.cube.segment.window_ms)
        folder = f"{creation_folder('batches', cube, cube_id)}/{batch}"
        planned = self._planned(folder)
        if planned is not None:
            return self._as_message(self._same(planned, request, source))
        check_replaceable(
            cube,
            windows,
            records,
            control,
            held=self._heartbeats.active_segments(cube),
            unknown=self._heartbeats.unknown(cube, control, self._metadata.living_members()),
            until_ms=self._passed_ms(cube),
        )
        check_own_time(schema.cube, windows)
        filled = self._filled_vectors(schema.cube, windows)
        check_settled(cube, windows, records, filled)
        known = {
            window.name: self._metadata.whole_segment(records[window.name])
            for window in windows
            if window.name in records
        }
        spec = BatchSpec(
            batch=batch,
            cube=cube,
            table_definition=schema.table,
            cube_definition=schema.cube,
            object_store=self._uri,
            folder=folder,
            start_ms=request.start_ms,
            end_ms=request.end_ms,
            segments=tuple(
                _planned_segment(
                    cube, window, known.get(window.name), control, filled.get(window.start_ms, {})
                )
                for window in windows
            ),
            source=source,
        )
        self._store.claim()
        plan = BatchPlan(planned_ms=self._metadata.clock.now_ms(), spec=spec)
        self._store.write(f"{folder}/{PLAN_NAME}", encode(plan))
        return self._as_message(spec)

    def apply(self, cube: str, batch: str) -> wire.BatchProgress:
        """Hand over up to `APPLIED_MAX` staged segments, by start, and return how far the batch is.

        Raises NotYet while it is not staged, Refused where a segment has changed since the plan.
        """
        cube_id, control, records = self._views.fresh_creation(cube)
        staged = self._staged(cube, cube_id, batch)
        self._check_age(cube, cube_id, batch)
        left = [part for part in staged.parts if not _has(records.get(part.segment), batch)]
        left = left[:APPLIED_MAX]
        windows = [parse_segment_name(part.segment) for part in left]
        filled = self._filled_vectors(self._metadata.cube(cube), windows)
        for part, window in zip(left, windows, strict=True):
            replaced = functools.partial(
                segment_batches.replace_by_batch,
                batch=batch,
                part=part.part,
                version=part.version,
                first=_first(control),
                filled=filled.get(window.start_ms, {}),
                now_ms=self._metadata.clock.now_ms(),
                by="applied",
            )
            self._metadata.update_segment(cube, window, replaced, cube_id=cube_id)
        return self.progress(cube, batch)

    def progress(self, cube: str, batch: str) -> wire.BatchProgress:
        cube_id, _, records = self._views.fresh_creation(cube)
        staged = self._staged(cube, cube_id, batch)
        found = {part.segment: records.get(part.segment) for part in staged.parts}
        pending = {
            name: each for name, each in found.items() if each is not None and each.pending_batch == batch
        }
        return wire.BatchProgress(
            cube=cube,
            batch=batch,
            folder=f"{creation_folder('batches', cube, cube_id)}/{batch}",
            segments=tuple(found),
            left=sum(not _has(each, batch) for each in found.values()),
            building=tuple(pending),
            failed={
                name: each.build.error
                for name, each in pending.items()
                if each.build is not None and each.build.error is not None
            },
            ready=sum(
                each is not None and each.batch == batch and name not in pending
                for name, each in found.items()
            ),
            events=sum(part.part.events for part in staged.parts),
        )

    def _check_age(self, cube: str, cube_id: str, batch: str) -> None:
        """Raises Refused for a plan that is about to be cleaned up: a clean-up that began before the batch is
        handed over knows of no segment that waits for it."""
        planned = self._planned(f"{creation_folder('batches', cube, cube_id)}/{batch}")
        if planned is None or self._metadata.clock.now_ms() - planned.planned_ms >= PLANS_APPLIED_MS:
            raise Refused(
                f"batch {batch} of {cube} is too old to be applied",
                expected=f"a plan of the last {PLANS_APPLIED_MS // 86_400_000} days",
                action="plan and stage it again under another id",
            )

    def _filled_vectors(self, cube: Cube, windows: Iterable[SegmentRange]) -> dict[int, Offsets]:
        """Return, by start, the vectors of what a revision's segments of older events are filled with: a
        batch says what the older revision's history holds, and the revision reads what came after."""
        revision = cube.revision
        if revision is None or revision.since_ms is None or revision.fills_from_ms is None:
            return {}
        filling = [window for window in windows if window.start_ms < revision.since_ms]
        before = self._metadata.revision_before(cube)
        if not filling or before is None:
            return {}
        _, records = self._views.fresh(before.name)
        starts, ends = {each.start_ms for each in filling}, {each.end_ms for each in filling}
        whole = [
            self._metadata.whole_segment(record)
            for record in records.values()
            if record.version and record.start_ms < max(ends) and record.end_ms > min(starts)
        ]
        found = {
            each.start_ms: segment_batches.older_vector(whole, each.start_ms, each.end_ms) for each in filling
        }
        return {start_ms: vector for start_ms, vector in found.items() if vector}

    def _planned(self, folder: str) -> BatchPlan | None:
        path = f"{folder}/{PLAN_NAME}"
        try:
            return decode(self._store.read(path), BatchPlan, path)
        except NotFound:
            return None

    def _same(self, planned: BatchPlan, request: wire.BatchRequest, source: BatchSource) -> BatchSpec:
        spec = planned.spec
        if (spec.start_ms, spec.end_ms, spec.source) != (request.start_ms, request.end_ms, source):
            raise AlreadyExists(
                f"batch {request.batch} of {spec.cube} is planned otherwise",
                expected="the same range and source, or an id that is new",
                found=f"{SegmentRange(spec.start_ms, spec.end_ms).name} of {spec.source.format}",
            )
        return spec

    def _staged(self, cube: str, cube_id: str, batch: str) -> BatchManifest:
        folder = f"{creation_folder('batches', cube, cube_id)}/{check_batch_id(batch)}"
        path = f"{folder}/{BATCH_NAME}"
        try:
            return decode(self._store.read(path), BatchManifest, path)
        except NotFound:
            if self._planned(folder) is None:
                raise NotFound(f"cube {cube} has no batch {batch}", action="plan it first") from None
            raise NotYet(
                f"batch {batch} of {cube} is not staged", action="run stage_batch.py with its plan"
            ) from None

    def _passed_ms(self, cube: str) -> int:
        """Return the event time that the stream has passed."""
        published_ms = self._metadata.published_watermark_ms(cube)
        return self._metadata.clock.now_ms() if published_ms is None else published_ms

    def _as_message(self, spec: BatchSpec) -> wire.BatchPlanMessage:
        replaced = sum(each.is_recorded for each in spec.segments)
        return wire.BatchPlanMessage(
            cube=spec.cube,
            batch=spec.batch,
            spec=msgspec.to_builtins(spec),
            replaced=replaced,
            fresh=len(spec.segments) - replaced,
        )


def _source(definition: wire.Definition) -> BatchSource:
    try:
        return convert(definition, BatchSource)
    except UNDECODABLE as error:
        raise DefinitionError("not the source of a batch", found=str(error)) from error


def _first(control: CubeControl) -> dict[int, int]:
    """Return where the cube begins, by partition that it reads. One that has ended has read all."""
    if control.ended:
        return dict(control.first_offsets)
    read = {partition for of_set in control.assignment.values() for partition in of_set}
    return {partition: offset for partition, offset in control.first_offsets.items() if partition in read}


def _planned_segment(
    cube: str,
    window: SegmentRange,
    record: SegmentRecord | None,
    control: CubeControl,
    filled: Offsets,
) -> BatchSegment:
    known = record or SegmentRecord(cube=cube, start_ms=window.start_ms, end_ms=window.end_ms)
    first = _first(control)
    vector = segment_batches.vector_of_batch(known, first, filled)
    ranges = tuple(
        PartRange(partition, min(first.get(partition, 0), end), end)
        for partition, end in sorted(vector.items())
    )
    return BatchSegment(
        window.name, known.version + 1, ranges, is_recorded=record is not None or bool(filled)
    )


def _has(record: SegmentRecord | None, batch: str) -> bool:
    return record is not None and batch in (record.pending_batch, record.batch)

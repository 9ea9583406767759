"""Merges of a cube's segments: steps 1, 3 and 4 of `states`."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from rtolap.base.errors import Corrupted, DefinitionError, NotFound, NotYet, Refused
from rtolap.coordinator.merging.intervals import Interval, Verdict, intervals
from rtolap.coordinator.views import Views
from rtolap.cubes.format.folders import creation_folder
from rtolap.cubes.format.manifest import (
    MANIFEST_NAME,
    PLAN_NAME,
    MergedManifest,
    MergePlan,
    decode,
    encode,
)
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.merging.commit import commit_set
from rtolap.metadata.merging.units import location_of
from rtolap.metadata.publications import Publications
from rtolap.metadata.records import MergedSet
from rtolap.model.cube import Cube
from rtolap.model.merging.intervals import LEVELS, MergeLevel, levels_of
from rtolap.model.merging.specs import MERGE_ID, MergeMember, MergeSpec
from rtolap.model.validation.publication import published_cuboid
from rtolap.object_store.store import ObjectStore
from rtolap.protocols.coordinator import messages as wire

MERGES_MAX = 64  # that one request plans: Spark writes them in one job, and the next request plans others
PLANNED_MEMBERS_MAX = 4_000  # of these merges: some 250 bytes each in a request to an agent
COMMITTED_MS = 6 * 3_600_000  # a merge is written and committed within this time, or planned again
KEPT_MS = 8 * 3_600_000  # longer by more than a clean-up takes


class Merges:
    def __init__(
        self, metadata: ClusterMetadata, views: Views, store: ObjectStore, object_store_uri: str
    ) -> None:
        self._metadata = metadata
        self._views = views
        self._store = store
        self._uri = object_store_uri

    def plan(self, cube: str, request: wire.MergeRequest) -> wire.MergePlans:
        """Plan the oldest intervals of the cube and of its older revisions that can be merged now.

        Each call plans anew: what is merged already is left out, and a plan that is not carried out is
        cleaned up. Raises Refused for a cube that is not to be merged, or has a publication that stands in
        the way.
        """
        planned: list[wire.PlannedMerge] = []
        refused: list[wire.RefusedMerge] = []
        counts = dict.fromkeys(Verdict, 0)
        revisions = self._metadata.revisions(cube)
        newest = revisions[-1]
        levels = _levels(newest, request)
        watermark_ms = self._metadata.published_watermark_ms(newest.name)
        for revision in revisions:
            self._check_publications(revision)
            cube_id, control, records = self._views.fresh_creation(revision.name)
            for level in levels:
                for each in intervals(newest.merge, control, records, level, watermark_ms):
                    counts[each.verdict] += 1
                    if each.verdict is Verdict.REFUSED:
                        refused.append(_refused(revision.name, each))
                    elif each.verdict is Verdict.MERGE and _has_room(planned, each):
                        planned.append(self._planned(revision, cube_id, each, dry_run=request.dry_run))
        return wire.MergePlans(
            cube=cube,
            levels=levels,
            merges=tuple(planned),
            refused=tuple(refused),
            left=counts[Verdict.MERGE] - len(planned),
            merged=counts[Verdict.MERGED],
            too_new=counts[Verdict.TOO_NEW],
            dry_run=request.dry_run,
        )

    def commit(self, cube: str, merge: str) -> wire.CommittedMerge:
        """Have the members of a written set name it.

        Raises NotYet before it is written, Refused where a member has changed since the plan, or the plan is
        too old, and Corrupted for a set that does not hold its members' events.
        """
        cube_id = self._metadata.cube_id(cube)
        plan = self._plan(cube, cube_id, merge)
        spec = plan.spec
        if self._metadata.clock.now_ms() - plan.planned_ms >= COMMITTED_MS:
            raise Refused(
                f"merge {merge} of {cube} is too old to be committed",
                expected=f"a plan of the last {COMMITTED_MS // 3_600_000} hours",
                action="plan it again",
            )
        self._check_written(spec)
        merged = MergedSet(spec.level, spec.location, len(spec.members))
        committed = commit_set(self._metadata, cube, spec.members, merged, cube_id=cube_id)
        return wire.CommittedMerge(
            cube=cube,
            merge=merge,
            level=spec.level,
            interval=spec.interval.name,
            segments=len(spec.members),
            events=spec.events,
            committed=committed,
        )

    def _planned(self, cube: Cube, cube_id: str, interval: Interval, *, dry_run: bool) -> wire.PlannedMerge:
        merge = uuid.uuid4().hex
        schema = self._metadata.schema(cube.name)
        spec = MergeSpec(
            merge=merge,
            cube=cube.name,
            level=interval.level,
            start_ms=interval.range.start_ms,
            end_ms=interval.range.end_ms,
            members=tuple(
                MergeMember(each.name, each.version, location_of(each), each.events)
                for each in interval.members
            ),
            table_definition=schema.table,
            cube_definition=schema.cube,
            object_store=self._uri,
            folder=f"{creation_folder('merged', cube.name, cube_id)}/{interval.level}/{merge}",
        )
        if not dry_run:
            self._store.claim()
            plan = MergePlan(planned_ms=self._metadata.clock.now_ms(), spec=spec)
            self._store.write(f"{spec.folder}/{PLAN_NAME}", encode(plan))
        return wire.PlannedMerge(
            cube=cube.name,
            merge="" if dry_run else merge,
            level=spec.level,
            interval=spec.interval.name,
            segments=len(spec.members),
            events=spec.events,
            spec={} if dry_run else msgspec.to_builtins(spec),
        )

    def _plan(self, cube: str, cube_id: str, merge: str) -> MergePlan:
        if not MERGE_ID.fullmatch(merge):
            raise DefinitionError(
                "not the id of a merge", expected="32 hexadecimal digits", found=repr(merge)
            )
        for level in LEVELS:
            path = f"{creation_folder('merged', cube, cube_id)}/{level}/{merge}/{PLAN_NAME}"
            try:
                return decode(self._store.read(path), MergePlan, path)
            except NotFound:
                continue
        raise NotFound(f"cube {cube} has no merge {merge}", action="plan it first, or again")

    def _check_written(self, spec: MergeSpec) -> None:
        """Compare the manifest with the plan. Raises NotYet without one, Corrupted for another."""
        path = f"{spec.location}/{MANIFEST_NAME}"
        try:
            manifest = decode(self._store.read(path), MergedManifest, path)
        except NotFound:
            raise NotYet(
                f"merge {spec.merge} of {spec.cube} is not written",
                action="run merge_segments.py with its plan",
            ) from None
        expected = (spec.cube, spec.merge, spec.level, spec.members, spec.events)
        found = (manifest.cube, manifest.merge, manifest.level, manifest.members, manifest.events)
        if found != expected:
            raise Corrupted(
                f"manifest {path} is not of its plan",
                expected=f"{len(spec.members)} members with {spec.events} events",
                found=f"{len(manifest.members)} members with {manifest.events} events",
                action="plan the merge again",
            )
        dimensions = set(spec.cube_definition.all_dimensions)
        if not any(set(entry.dimensions) == dimensions for entry in manifest.cuboids):
            raise Corrupted(f"manifest {path} has no base cuboid", action="plan the merge again")

    def _check_publications(self, cube: Cube) -> None:
        """Raises Refused where files are published that a merge would delete."""
        in_the_way = publications_in_the_way(self._metadata, cube)
        if in_the_way:
            raise Refused(
                f"the segments of cube {cube.name} are not merged: publication {', '.join(in_the_way)} names "
                "files of cuboids that a merge would delete",
                expected="no publication, or one of the cuboid with all dimensions",
                action="drop the publication, or leave the segments apart",
            )


def publications_in_the_way(metadata: ClusterMetadata, cube: Cube) -> list[str]:
    """Return the names of publications of other cuboids than the base, which is what members keep."""
    declared = Publications(metadata.store).of_cube(cube.name)
    return sorted(
        name
        for name, each in declared.items()
        if set(published_cuboid(each.publication, cube).dimensions) != set(cube.all_dimensions)
    )


def _levels(cube: Cube, request: wire.MergeRequest) -> tuple[MergeLevel, ...]:
    """Return the levels that are asked for, or those that the cube declares. Raises Refused for none."""
    levels = tuple(request.to) or levels_of(cube.merge)
    if not levels:
        raise Refused(
            f"cube {cube.name} does not say to what its segments are merged",
            expected="`merge: {to: [day]}` in its definition, or a level in the request",
            found="none",
        )
    return tuple(level for level in LEVELS if level in levels)


def _has_room(planned: Sequence[wire.PlannedMerge], interval: Interval) -> bool:
    members = sum(each.segments for each in planned) + len(interval.members)
    return not planned or (len(planned) < MERGES_MAX and members <= PLANNED_MEMBERS_MAX)


def _refused(cube: str, interval: Interval) -> wire.RefusedMerge:
    return wire.RefusedMerge(
        cube=cube, level=interval.level, interval=interval.range.name, reason=interval.reason
    )

"""Changes of running cubes: planned, shown, and committed in one step.

1. compare the definition with the running one     what a running cube cannot change is refused
2. commit it in the other's place                  crash before: nothing has changed; repeat
3. receivers, builds, queries and retention read it when they next look; none needs the others to have
done so: rows, partials and windows are the same by both definitions
"""

from __future__ import annotations

from collections.abc import Mapping

from rtolap.base.errors import DefinitionError, Refused
from rtolap.coordinator.answers import parsed
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.views import Views
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.publications import Publications
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.cube import Cube, Schema
from rtolap.model.segment import SegmentState, parse_segment_name
from rtolap.model.validation.cube_changes import cube_changes, gone_cuboids, new_cuboids
from rtolap.model.validation.definition import validate_schema
from rtolap.model.validation.publication import published_cuboid
from rtolap.protocols.coordinator import messages as wire


class Alterations:
    """Plans and applies changes of cubes. `heartbeats`: of segments that have no record yet."""

    def __init__(self, metadata: ClusterMetadata, views: Views, heartbeats: Heartbeats) -> None:
        self._metadata = metadata
        self._views = views
        self._heartbeats = heartbeats

    def alter(self, name: str, request: wire.AlterRequest) -> wire.Alteration:
        """Return what the change means, and make it unless the request is a dry run.

        Raises NotFound without the cube, DefinitionError for a definition that is none, Refused for a change
        that cannot be, that drops segments without having been told to, or that a publication forbids.
        """
        after = parsed(request.definition, Cube)
        if after.name != name:
            raise DefinitionError("the definition is of another cube", expected=name, found=after.name)
        cube_id = self._metadata.cube_id(name)
        before = self._metadata.cube(name)
        changes = cube_changes(before, after)
        validate_schema(Schema(self._metadata.table(before.table), after))
        for publication in Publications(self._metadata.store).of_cube(name).values():
            published_cuboid(publication.publication, after)
        control, records = self._views.fresh(name)
        dropped = self._dropped(before, after, control, records)
        ready = sorted(key for key, each in records.items() if each.state is SegmentState.READY)
        added = new_cuboids(before, after)
        if not request.dry_run and changes:
            if dropped and not request.drop_segments:
                raise Refused(
                    f"the change of {name} drops {len(dropped)} segments for good",
                    expected="leave to drop them",
                    found=f"{dropped[0]} to {dropped[-1]}",
                    action="`--drop-segments` gives it",
                )
            self._metadata.change_cube(before, after, cube_id)
        return wire.Alteration(
            cube=name,
            changes=tuple(
                wire.SettingChange(
                    setting=each.setting, before=each.before, after=each.after, meaning=each.meaning
                )
                for each in changes
            ),
            new_cuboids=added,
            gone_cuboids=gone_cuboids(before, after),
            segments_without_new_cuboids=tuple(ready) if added else (),
            dropped_segments=dropped,
            applied=not request.dry_run and bool(changes),
        )

    def _dropped(
        self, before: Cube, after: Cube, control: CubeControl, records: Mapping[str, SegmentRecord]
    ) -> tuple[str, ...]:
        """Return the segments that the next retention drops by the new definition and not by the old one."""
        kept_ms, keeps_ms = before.retention.after_ms, after.retention.after_ms
        watermark_ms = self._metadata.published_watermark_ms(after.name)
        if keeps_ms is None or watermark_ms is None:
            return ()
        horizons = (control.horizon_ms, None if kept_ms is None else watermark_ms - kept_ms)
        gone_ms = max((each for each in horizons if each is not None), default=None)
        names = records.keys() | self._heartbeats.active_segments(after.name)

        def is_dropped(name: str) -> bool:
            end_ms = parse_segment_name(name).end_ms
            return end_ms <= watermark_ms - keeps_ms and (gone_ms is None or end_ms > gone_ms)

        return tuple(sorted(filter(is_dropped, names)))

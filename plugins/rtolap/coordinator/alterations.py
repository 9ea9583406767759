"""Changes of running cubes: planned, shown, and committed in one step.

1. compare the definition with the running one     what a running cube cannot change is refused
2. commit it in the other's place                  crash before: nothing has changed; repeat
3. receivers, builds, queries and retention read it when they next look; none needs the others to have
done so: rows, partials and windows are the same by both definitions
"""

from __future__ import annotations

import msgspec

from rtolap.base.decoding import convert
from rtolap.base.errors import DefinitionError, Refused
from rtolap.coordinator.views import Views
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.publications import Publications
from rtolap.metadata.records import SegmentRecord
from rtolap.model.cube import Cube, Schema
from rtolap.model.segment import SegmentState
from rtolap.model.validation.cube_changes import cube_changes, gone_cuboids, new_cuboids
from rtolap.model.validation.definition import validate_schema
from rtolap.model.validation.publication import published_cuboid
from rtolap.protocols.coordinator import messages as wire


class Alterations:
    """Plans and applies changes of cubes. `views`: of their segments."""

    def __init__(self, metadata: ClusterMetadata, views: Views) -> None:
        self._metadata = metadata
        self._views = views

    def alter(self, name: str, request: wire.AlterRequest) -> wire.Alteration:
        """Return what the change means, and make it unless the request is a dry run.

        Raises NotFound without the cube, DefinitionError for a definition that is none, Refused for a change
        that cannot be, that drops segments without having been told to, or that a publication forbids.
        """
        after = _parse(request.definition)
        if after.name != name:
            raise DefinitionError("the definition is of another cube", expected=name, found=after.name)
        cube_id = self._metadata.cube_id(name)
        before = self._metadata.cube(name)
        changes = cube_changes(before, after)
        validate_schema(Schema(self._metadata.table(before.table), after))
        for publication in Publications(self._metadata.store).of_cube(name).values():
            published_cuboid(publication.publication, after)
        dropped = self._dropped(name, after)
        ready = self._ready(name)
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
            segments_without_new_cuboids=ready if added else (),
            dropped_segments=dropped,
            applied=not request.dry_run and bool(changes),
        )

    def _ready(self, cube: str) -> tuple[str, ...]:
        _, records = self._views.fresh(cube)
        return tuple(sorted(name for name, each in records.items() if each.state is SegmentState.READY))

    def _dropped(self, cube: str, after: Cube) -> tuple[str, ...]:
        """Return the segments that the next retention drops by the new definition and not by the old one."""
        after_ms, before_ms = after.retention.after_ms, self._metadata.cube(cube).retention.after_ms
        watermark_ms = self._metadata.published_watermark_ms(cube)
        if after_ms is None or after_ms == before_ms or watermark_ms is None:
            return ()
        control, records = self._views.fresh(cube)

        def is_dropped(record: SegmentRecord) -> bool:
            beyond = control.horizon_ms is not None and record.end_ms <= control.horizon_ms
            return not beyond and record.end_ms <= watermark_ms - after_ms

        return tuple(sorted(name for name, record in records.items() if is_dropped(record)))


def _parse(definition: wire.Definition) -> Cube:
    try:
        return convert(definition, Cube)
    except msgspec.ValidationError as error:
        raise DefinitionError("not a cube definition", found=str(error)) from error

"""Changes of running cubes: planned, shown, and committed in one step.

1. compare the definition with the running one     what a running cube cannot change is refused
2. commit it in the other's place                  crash before: nothing has changed; repeat
3. receivers, builds, queries and retention read it when they next look; none needs the others to have
done so: rows, partials and windows are the same by both definitions
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rtolap.base.errors import NotYet
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.views import Views
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.publications import Publications
from rtolap.metadata.records import CubeControl
from rtolap.model.cube import Cube
from rtolap.model.evolution.cube_changes import CubeChange, cube_changes, gone_cuboids, new_cuboids
from rtolap.model.evolution.revisions import declared
from rtolap.model.instants import utc_text
from rtolap.model.segment import SegmentState, parse_segment_name
from rtolap.model.validation.publication import published_cuboid
from rtolap.protocols.coordinator import messages as wire


class SettingChanges:
    """Plans and applies changes in place. `heartbeats`: of segments that have no record yet."""

    def __init__(self, metadata: ClusterMetadata, views: Views, heartbeats: Heartbeats) -> None:
        self._metadata = metadata
        self._views = views
        self._heartbeats = heartbeats

    def change(self, revisions: Sequence[Cube], after: Cube, *, dry_run: bool) -> wire.Alteration:
        """Plan or make a change of the newest revision; older ones follow its retention.

        Raises Refused for a change that cannot be, or that a publication forbids.
        """
        *older, newest = revisions
        ids = {each.name: self._metadata.cube_id(each.name) for each in revisions}
        changes = cube_changes(declared(newest), after)
        wanted = msgspec.structs.replace(after, name=newest.name, revision=newest.revision)
        for publication in Publications(self._metadata.store).of_cube(newest.name).values():
            published_cuboid(publication.publication, after)
        pairs = [(before, _with_retention(before, after)) for before in older] + [(newest, wanted)]
        dropped = tuple(sorted({name for before, then in pairs for name in self._dropped(before, then)}))
        ready = self._ready(newest.name)
        added = new_cuboids(newest, after)
        if not dry_run and changes:
            for before, then in pairs:  # the newest last: its repetition finds what a crash has left
                if before != then:
                    self._metadata.change_cube(before, then, ids[before.name])
        return wire.Alteration(
            cube=after.name,
            changes=shown(changes),
            new_cuboids=added,
            gone_cuboids=gone_cuboids(newest, after),
            segments_without_new_cuboids=tuple(ready) if added else (),
            dropped_segments=dropped,
            applied=not dry_run and bool(changes),
        )

    def _ready(self, cube: str) -> list[str]:
        _, records = self._views.fresh(cube)
        return sorted(name for name, each in records.items() if each.state is SegmentState.READY)

    def _dropped(self, before: Cube, after: Cube) -> tuple[str, ...]:
        """Return the segments that the next retention drops by the new definition and not by the old one."""
        control, records = self._views.fresh(after.name)
        kept_ms, keeps_ms = before.retention.after_ms, after.retention.after_ms
        watermark_ms = self._metadata.published_watermark_ms(after.name)
        if keeps_ms is None or watermark_ms is None:
            return ()
        horizons = (control.horizon_ms, None if kept_ms is None else watermark_ms - kept_ms)
        gone_ms = max((each for each in horizons if each is not None), default=None)
        until_ms = watermark_ms - keeps_ms
        if gone_ms is not None and gone_ms >= until_ms:
            return ()
        names = records.keys() | open_segments(self._metadata, self._heartbeats, after.name, control)
        named_before_ms = self._heartbeats.named_before_ms(after.name)
        if named_before_ms is not None and named_before_ms < until_ms:
            raise NotYet(
                f"it is not known yet which segments of {after.name} the change drops",
                expected=f"receivers that name each open segment before {utc_text(until_ms)}",
                found=f"each one before {utc_text(named_before_ms)}: they hold events of more than they name",
                action="ask again when history has more of them: `rtolap segments` lists them",
            )

        def is_dropped(name: str) -> bool:
            end_ms = parse_segment_name(name).end_ms
            return end_ms <= until_ms and (gone_ms is None or end_ms > gone_ms)

        return tuple(sorted(filter(is_dropped, names)))


def open_segments(
    metadata: ClusterMetadata, heartbeats: Heartbeats, cube: str, control: CubeControl
) -> set[str]:
    """Return the segments without a record whose events receivers hold.

    Raises NotYet while a living one has not said which, as after a change of leader: a change would be shown
    for fewer than it drops.
    """
    unknown = f"of which segments of {cube} receivers hold events"
    heartbeats.check_heard(cube, control, metadata.living_members(), unknown)
    return heartbeats.active_segments(cube)


def shown(changes: Iterable[CubeChange]) -> tuple[wire.SettingChange, ...]:
    return tuple(
        wire.SettingChange(setting=each.setting, before=each.before, after=each.after, meaning=each.meaning)
        for each in changes
    )


def _with_retention(cube: Cube, other: Cube) -> Cube:
    retention = msgspec.structs.replace(cube.retention, after_ms=other.retention.after_ms)
    return msgspec.structs.replace(cube, retention=retention)

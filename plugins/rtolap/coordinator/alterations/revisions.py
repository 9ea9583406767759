"""A revision that follows the newest one of a cube: planned, shown, and committed in one step.

1. read the change log, then records, control and offsets   a crash has changed nothing
2. choose the moment                                        segments that there are end before it
3. one commit: the newest one gets its end, the next is     crash before: nothing; after: it stands, and a
   made with the same assignment                            repetition finds nothing to do
4. receivers find both, and begin: the old one's again from their checkpoints, the new one's from the offsets

The new revision reads from the offsets below which history holds everything. No segment of history has an
event of its time, or the commit does not pass: so it reads every one of them, whatever receivers held.

One that older events are filled into takes events of their time from its beginning on. Where the topic has
all of them, it begins at the offsets at which the older one began; `filling` moves the moment back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from rtolap.base.complete import complete
from rtolap.base.errors import Refused
from rtolap.coordinator.alterations.settings import open_segments, shown
from rtolap.coordinator.assignment import TopicsOf
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.views import Views
from rtolap.metadata import codec, paths
from rtolap.metadata.change_log import change_log
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.metadata.updates import retried
from rtolap.model.cube import Cube, Schema
from rtolap.model.evolution.cube_changes import CubeChange, changed_settings, cube_changes
from rtolap.model.evolution.older_columns import older_columns
from rtolap.model.evolution.revisions import (
    REVISED,
    check_renamed,
    common_window_ms,
    declared,
    ended,
    first_start_ms,
    following,
)
from rtolap.model.instants import utc_text
from rtolap.model.segment import SegmentState, parse_segment_name
from rtolap.protocols.coordinator import messages as wire

_MEANING = "events from the moment on have it; older ones stay as they are"


class Fill(NamedTuple):
    """The older events that a revision is filled with: see `Revision`."""

    fills_from_ms: int | None = None
    filled_by: Literal["topic", "batch"] = "batch"

    @property
    def reads_again(self) -> bool:
        return self.fills_from_ms is not None and self.filled_by == "topic"


class FollowingRevisions:
    """`heartbeats`: of segments that have no record yet; `topics`: what may be read again."""

    def __init__(
        self, metadata: ClusterMetadata, views: Views, heartbeats: Heartbeats, topics: TopicsOf
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._views = views
        self._heartbeats = heartbeats

    def follow(self, newest: Cube, wanted: Schema, request: wire.AlterRequest) -> wire.Alteration:
        """Plan or make the revision that follows `newest`. `wanted`: as it is declared.

        Raises Refused for a change that cannot be.
        """
        after, table = wanted.cube, wanted.table
        _check(newest, after)
        check_renamed(Schema(table, newest), wanted, request.renamed)

        made = self._followed(newest, after, request)
        revision = made.revision
        assert revision is not None, "it follows another one"
        series = (Schema(table, newest), Schema(table, made))
        goes_on = older_columns(series, 0)
        return wire.Alteration(
            cube=after.name,
            changes=shown(_changes(newest, after)),
            revision=made.name,
            since_ms=revision.since_ms,
            fills_from_ms=revision.fills_from_ms,
            filled_by=revision.filled_by,
            added_columns=tuple(name for name in _columns(series[1]) if name not in goes_on),
            gone_columns=tuple(name for name in _columns(series[0]) if name not in goes_on.values()),
            applied=not request.dry_run,
        )

    @retried
    def _followed(self, newest: Cube, after: Cube, request: wire.AlterRequest) -> Cube:
        """Return the revision, made unless it is a dry run. Raises CommitConflict where something changed."""
        store, name = self._metadata.store, newest.name
        _, changes = change_log(store, name, None)
        node = store.get(paths.cube_definition(name))
        present = None if node is None else codec.decode(node.data, Cube, paths.cube_definition(name))
        if present is None or node is None:
            raise Refused(f"cube {name} was dropped by somebody else meanwhile", action="look, and repeat")
        if present != newest:
            made = self._metadata.revisions(name)[1:]
            if made and declared(made[-1]) == after:
                return made[-1]  # an attempt whose answer was lost
            raise Refused(
                f"cube {name} was changed by somebody else meanwhile", action="look at it, and repeat"
            )
        assigned = store.get(paths.cube_control(name))
        if assigned is None:
            raise Refused(f"cube {name} was dropped by somebody else meanwhile", action="look, and repeat")
        control = codec.decode(assigned.data, CubeControl, paths.cube_control(name))
        _, records = self._views.fresh(name)
        if not control.assignment:
            raise Refused(
                f"cube {name} was never enabled, and holds no event",
                expected="a cube that has events",
                action="drop it, and create it with the other definition",
            )
        ends_ms = [each.end_ms for each in records.values()]
        if newest.revision is not None and newest.revision.since_ms is not None:
            ends_ms.append(newest.revision.since_ms + newest.segment.window_ms)
        if control.horizon_ms is not None:  # what was purged is not read again
            ends_ms.append(control.horizon_ms)
        if request.older == "fill":
            since_ms = self._since_ms(newest, after, control, None, ends_ms)
            fill = self._fill(newest, after, request, since_ms, control, records)
        else:
            since_ms = self._since_ms(newest, after, control, request.since_ms, ends_ms)
            fill = Fill()
        revision = following(
            newest,
            after,
            since_ms,
            renamed=dict(request.renamed),
            older=request.older,
            **fill._asdict(),
        )
        if store.get(paths.cube_definition(revision.name)) is not None:
            raise Refused(
                f"there is a cube {revision.name} already",
                expected="a free name for the revision",
                action="drop that cube, or declare it by another name",
            )
        if not request.dry_run:
            own = self._control(name, control, reads_again=fill.reads_again)
            self._metadata.follow_cube(
                ended(newest, since_ms), revision, own, definition=node, changes=changes, assigned=assigned
            )
        return revision

    def _since_ms(
        self, newest: Cube, after: Cube, control: CubeControl, wanted_ms: int | None, ends_ms: list[int]
    ) -> int:
        """Return the moment. Raises Refused for one that was asked for and cannot be; NotYet while it is not
        known of which segments receivers hold events."""
        earliest_ms = first_start_ms(newest, after, ends_ms)
        if wanted_ms is None:
            active = open_segments(self._metadata, self._heartbeats, newest.name, control)
            open_ms = [parse_segment_name(segment).end_ms for segment in active]
            return first_start_ms(newest, after, [*ends_ms, *open_ms])
        step_ms = common_window_ms(newest, after)
        if wanted_ms < earliest_ms or wanted_ms % step_ms:
            raise Refused(
                f"a revision of {after.name} cannot begin at {utc_text(wanted_ms)}",
                expected=f"a start of segments of both definitions, {utc_text(earliest_ms)} or later",
                action="leave `--since` out: it begins behind all segments that there are; or fill older "
                "events in: `--older fill`",
            )
        return wanted_ms

    def _fill(
        self,
        newest: Cube,
        after: Cube,
        request: wire.AlterRequest,
        since_ms: int,
        control: CubeControl,
        records: Mapping[str, SegmentRecord],
    ) -> Fill:
        """Return what is filled in before the moment. Raises Refused for what cannot be."""
        if after.retention.policy == "PURGE":
            raise Refused(
                f"older events of {after.name} cannot be filled in",
                expected="retention: {policy: FULL_BUILD}: a revision is filled by its history",
                found="PURGE",
            )
        step_ms = common_window_ms(newest, after)
        bounds_ms = [0 if control.horizon_ms is None else control.horizon_ms]
        if newest.revision is not None and newest.revision.since_ms is not None:
            bounds_ms.append(newest.revision.since_ms)
        earliest_ms = -(-max(bounds_ms) // step_ms) * step_ms
        starts_ms = [each.start_ms for each in records.values() if each.state is not SegmentState.PURGED]
        from_ms = request.since_ms
        if from_ms is None:
            from_ms = max(min(starts_ms, default=since_ms) // step_ms * step_ms, earliest_ms)
        elif not earliest_ms <= from_ms <= since_ms or from_ms % step_ms:
            raise Refused(
                f"older events of {after.name} cannot be filled in from {utc_text(from_ms)} on",
                expected="a start of segments of both definitions from "
                f"{utc_text(earliest_ms)} to {utc_text(since_ms)}",
                action="leave `--since` out: all is filled in that there are segments of",
            )
        if from_ms >= since_ms:
            return Fill()
        within = [each for each in records.values() if each.end_ms > from_ms]
        again = self._topic_has_all(newest, control) and not any(
            each.batch or each.pending_batch for each in within
        )
        return Fill(from_ms, "topic" if again else "batch")

    def _topic_has_all(self, newest: Cube, control: CubeControl) -> bool:
        """Return True if the topic surely has the events that the newest revision has, and no others.

        Which late events are dropped depends on when segments close: read again, that is another choice. Of
        what a log has lost, history may hold a part.
        """
        is_another_choice = newest.late.policy == "drop" or newest.truncation == "drop"
        if is_another_choice or control.losses or control.version_losses:
            return False
        table = self._metadata.table(newest.table)
        starts = self._topics(table.kafka_cluster).offsets(table.topic, "earliest")
        read = [partition for partitions in control.assignment.values() for partition in partitions]
        return all(
            partition in starts and starts[partition] <= control.first_offsets.get(partition, 0)
            for partition in read
        )

    def _control(self, cube: str, control: CubeControl, *, reads_again: bool) -> CubeControl:
        assigned = {
            replica_set: partitions for replica_set, partitions in control.assignment.items() if partitions
        }
        offsets = control.first_offsets if reads_again else self._metadata.replay_from(cube)
        partitions = {partition for each in assigned.values() for partition in each}
        return CubeControl(
            enabled=control.enabled,
            paused=control.paused,
            switched=control.switched,
            first_offsets={partition: offsets[partition] for partition in sorted(partitions)},
            assignment=assigned,
            assignment_epoch=1,
            topic_id=control.topic_id,
            losses=control.losses,
        )


def _check(newest: Cube, after: Cube) -> None:
    """Raise Refused for what no revision can change, and for settings that change in place."""
    if newest.watermark is not None:
        raise Refused(
            f"cube {after.name} closes by the application {newest.watermark.application}",
            expected="a cube that closes by its own events: of two revisions each would report as the source",
            action="declare another cube with a source of its own",
        )
    rest = [
        name
        for name in changed_settings(declared(newest), after)
        if name not in REVISED and name != "aggregation_groups"
    ]
    if rest:
        same = msgspec.structs.replace(
            after,
            **{name: getattr(newest, name) for name in ("dimensions", "time_dimensions", "measures")},
            segment=msgspec.structs.replace(after.segment, window_ms=newest.segment.window_ms),
        )
        cube_changes(declared(newest), same)  # names what cannot change at all
        raise Refused(
            f"{', '.join(rest)} of {after.name} change in place, and columns by a revision",
            expected="one change after the other",
            action="change the settings first, with the columns as they are",
        )


def _changes(newest: Cube, after: Cube) -> list[CubeChange]:
    before = declared(newest)
    found = []
    for name in changed_settings(before, after):
        values = [
            cube.segment.window_ms if name == "segment.window_ms" else complete(getattr(cube, name))
            for cube in (before, after)
        ]
        found.append(CubeChange(name, values[0], values[1], _MEANING))
    return found


def _columns(schema: Schema) -> tuple[str, ...]:
    return (*schema.cube.all_dimensions, *(partial.name for partial in schema.partials))

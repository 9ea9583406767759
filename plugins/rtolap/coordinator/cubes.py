"""Definitions and the switches of a cube: create, enable, pause, close, drop, and its status."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Literal

import msgspec

from rtolap.base.complete import complete
from rtolap.base.errors import Corrupted, DefinitionError, NotFound, Refused, Unauthorized, Unavailable
from rtolap.coordinator.answers import as_message, is_noted, parsed, segment_columns, segment_info
from rtolap.coordinator.assignment import Assignments
from rtolap.coordinator.checks import Checks
from rtolap.coordinator.closable import Closable
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.losses import Losses
from rtolap.coordinator.moves import Moves
from rtolap.coordinator.other_owners import OtherOwners
from rtolap.coordinator.purge import Purge
from rtolap.coordinator.retirement.relief import Relief
from rtolap.coordinator.views import Views
from rtolap.coordinator.watermarks import Watermarks
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, SegmentRecord, Switched
from rtolap.metadata.requests import Note
from rtolap.metadata.segment_format.pages import is_settled
from rtolap.model.completeness import Completeness
from rtolap.model.cube import Cube, Schema
from rtolap.model.evolution.revisions import declared, numbered
from rtolap.model.problems import raise_all
from rtolap.model.segment import SegmentRange, SegmentState, parse_segment_name
from rtolap.model.table import Lookup, Table
from rtolap.model.validation.application import cube_watermark_problems
from rtolap.model.validation.definition import validate_lookup, validate_schema, validate_table
from rtolap.protocols.coordinator import messages as wire

_GENERATION_BITS = 32  # of a generation's lower part, the reader's; the upper one counts assignments

log = logging.getLogger(__name__)


def _check_application(metadata: ClusterMetadata, schema: Schema) -> int:
    """Check the cube's application, and return the base of the cube's generations (`records.CubeControl`).
    Raises DefinitionError.

    One cube reports as a source: of two, each would be taken for the other's next reader, and windows would
    close by what the other has read.
    """
    mark = schema.cube.watermark
    if mark is None:
        return 0
    records = ApplicationRecords(metadata.store)
    applications = {name: records.definition(name) for name in records.names()}
    raise_all(f"cube {schema.cube.name}", cube_watermark_problems(schema, applications))
    for name in metadata.cubes():
        other = metadata.cube(name).watermark
        if (
            name != schema.cube.name
            and other is not None
            and (other.application, other.source) == (mark.application, mark.source)
        ):
            raise DefinitionError(
                f"cube {schema.cube.name}: source {mark.source} of application {mark.application} is taken",
                expected="a source of its own",
                found=f"cube {name} reports as it",
                action="declare one source per cube in the application",
            )
    state = records.state(mark.application)
    known = state.generations.get(mark.source, {}) if state is not None else {}
    return max((generation >> _GENERATION_BITS for generation in known.values()), default=0)


class Cubes:
    def __init__(
        self,
        metadata: ClusterMetadata,
        views: Views,
        assignments: Assignments,
        checks: Checks,
        heartbeats: Heartbeats,
        watermarks: Watermarks,
        purge: Purge,
        closable: Closable,
        owners: OtherOwners,
        losses: Losses,
        moves: Moves,
        relief: Relief,
    ) -> None:
        self._metadata = metadata
        self._relief = relief
        self._moves = moves
        self._views = views
        self._assignments = assignments
        self._checks = checks
        self._heartbeats = heartbeats
        self._watermarks = watermarks
        self._purge = purge
        self._closable = closable
        self._owners = owners
        self._losses = losses

    def create_table(self, definition: wire.Definition) -> None:
        table = parsed(definition, Table)
        validate_table(table)
        self._metadata.create_table(table)

    def create_lookup(self, definition: wire.Definition) -> None:
        lookup = parsed(definition, Lookup)
        validate_lookup(lookup)
        self._metadata.create_lookup(lookup)

    def create_cube(self, definition: wire.Definition) -> None:
        cube = parsed(definition, Cube)
        try:
            table = self._metadata.table(cube.table)
        except NotFound as error:
            raise DefinitionError(
                f"cube {cube.name} reads table {cube.table}, which does not exist",
                expected=f"one of {', '.join(self._metadata.tables()) or 'none yet'}",
                action="create the table first",
            ) from error
        schema = Schema(table, cube)
        validate_schema(schema)
        definitions, unreadable = self._metadata.cube_definitions()
        for name, damage in unreadable.items():
            if cube.name in (name, numbered(name)[0]):
                raise damage  # it is there, or a revision of an earlier cube of that name
        left = sorted(n for n, each in definitions.items() if each.revision and each.revision.of == cube.name)
        stands = cube.name in definitions or bool(left)
        if stands and cube == declared(self._metadata.revisions(cube.name)[-1]):
            return
        if left and cube.name not in definitions:
            raise Refused(
                f"cube {cube.name} cannot be created",
                expected="no revision of an earlier cube of that name",
                found=", ".join(left),
                action=f"drop it first: `rtolap drop {left[0]} --disable`",
            )
        base = _check_application(self._metadata, schema)
        self._metadata.create_cube(cube, generation_base=base)

    def table_definition(self, name: str) -> wire.Definition:
        definition: wire.Definition = complete(self._metadata.table(name))
        return definition

    def lookup_definition(self, name: str) -> wire.Definition:
        definition: wire.Definition = complete(self._metadata.lookup(name))
        return definition

    def drop_cube(self, name: str, note: Note | None = None) -> None:
        """Drop this creation of the cube, and nothing of one that is made of the name meanwhile, however long
        a step takes, and whoever leads by then.

        1. note the creation's id and its folders     crash: nothing has happened
        2. remove records, then all that is left      crash: a cube that is dropped by the repetition
        3. forget what this leader knows by name      crash: its successor knows nothing of the cube
        4. delete the folders of 1                    crash: files that no record names, which `Purge.cleanup`
                                                      of a later creation deletes. A repeat that the `note`
                                                      answers leaves them too.
        """
        *_, newest = revisions = self._metadata.revisions(name)
        first = newest.revision.of if newest.revision is not None else name
        if name not in (first, self._metadata.revisions(first)[0].name):
            raise Refused(
                f"{name} is a revision of cube {first}",
                expected="the name of the cube",
                action=f"`rtolap drop {first}` drops all of its revisions",
            )
        for revision in revisions:
            self._metadata.check_droppable(revision.name)
        for revision in reversed(revisions[1:]):
            self._drop(revision.name, None)
        self._drop(revisions[0].name, note)

    def drop_revision(self, name: str) -> None:
        """Drop one revision that nothing needs any more. It is disabled. Repeat it after a crash."""
        self._metadata.check_droppable(name)
        self._drop(name, None)

    def _drop(self, name: str, note: Note | None) -> None:
        left = self._purge.folders_of(name)
        self._metadata.drop_cube(name, left.cube_id, note)
        self._views.forget(name)
        self._watermarks.forget(name)
        self._heartbeats.forget(name)
        self._purge.delete_all(left)

    def enable(self, name: str, request: wire.EnableRequest) -> wire.CubeStatus:
        noted = self._switched("enable", request)
        for revision in self._metadata.revisions(name):
            self._assignments.enable(revision.name, request.assigner, noted)
            self._checks.run(revision.name)
        return self.status(name)

    def switch(
        self, name: str, to: Literal["disable", "pause", "resume"], request: wire.SwitchRequest
    ) -> wire.CubeStatus:
        """Turn a switch of a cube. One that stands so already keeps the name of who turned it first."""
        noted = self._switched(to, request)

        def switched(control: CubeControl) -> CubeControl:
            enabled = control.enabled and to != "disable"
            paused = control.paused if to == "disable" else to == "pause"
            if (enabled, paused) == (control.enabled, control.paused):
                return control
            return msgspec.structs.replace(control, enabled=enabled, paused=paused, switched=noted)

        for revision in self._metadata.revisions(name):
            self._metadata.update_control(revision.name, switched)
        return self.status(name)

    def _switched(self, to: str, request: wire.SwitchRequest) -> Switched:
        at_ms = self._metadata.clock.now_ms()
        return Switched(to=to, by=request.by, reason=request.reason, at_ms=at_ms)

    def close_before(self, cube: str, segment: str) -> wire.SegmentInfo:
        """Ask the leaders to close this segment and those before it; see `records.CubeControl`."""
        self.segment(cube, segment)  # raises if it is none of this cube
        window = parse_segment_name(segment)
        known = self._known_now(self._metadata.cube(cube), window.end_ms)

        def requested(control: CubeControl) -> CubeControl:
            before = control.close_before_ms
            further = before is None or window.end_ms > before
            return msgspec.structs.replace(
                control,
                close_before_ms=window.end_ms if further else before,
                close_completeness=known if further else control.close_completeness,
                close_epoch=control.close_epoch + 1,
            )

        self._metadata.update_control(cube, requested)
        return self.segment(cube, segment)

    def _known_now(self, cube: Cube, window_end_ms: int) -> Completeness | None:
        """Return the completeness of a window whose closing is requested; None without an application."""
        mark = cube.watermark
        if mark is None:
            return None
        nothing = Completeness(application=mark.application, window_end_ms=window_end_ms, closed_by="forced")
        try:
            running = self._closable.owned(mark)
            if running is not None:
                return self._closable.forced(cube, running, window_end_ms)
        except (NotFound, Corrupted):
            return nothing  # a command works where an application is gone or cannot be read, too
        try:
            return self._owners.completeness(mark.application, cube.name, window_end_ms)
        except (NotFound, Unauthorized, Unavailable) as error:  # nor for want of an owner's answer
            log.warning("cube %s: nothing is known of the window that is closed: %s", cube.name, error)
            return nothing

    def status(self, name: str) -> wire.CubeStatus:
        name = self._metadata.standing_revision(name)  # of a cube whose first ones have aged out
        self._metadata.store.sync()
        return self._status(self._metadata.cube(name))

    def _status(self, definition: Cube) -> wire.CubeStatus:
        """Return the status that is not older than the last `sync` of the store. Raises NotFound."""
        name = definition.name
        control, records = self._views.fresh(name, is_synced=True)
        counts = Counter(record.state.value for record in records.values())
        unrecorded = self._heartbeats.active_segments(name) - set(records)
        if unrecorded:
            counts[SegmentState.ACTIVE.value] += len(unrecorded)
        checked = self._checks.problem(name)
        waits = self._watermarks.problem(name)
        if waits is None and definition.watermark is not None:
            waits = self._owners.problem(definition.watermark.application)
        lost = self._losses.problem(name, control, records.values())
        problems = [problem for problem in (checked, waits, lost) if problem]
        owners = sorted(owner for owner, partitions in control.assignment.items() if partitions)
        problems += [problem for owner in owners if (problem := self._relief.problem(owner)) is not None]
        problems += self._heartbeats.failures(name) + self._heartbeats.blocked(name, control)
        refused, example = self._heartbeats.refused(name)
        return wire.CubeStatus(
            name=name,
            definition=complete(definition),
            enabled=control.enabled,
            paused=control.paused,
            switched=None if control.switched is None else as_message(wire.SwitchedInfo, control.switched),
            horizon_ms=control.horizon_ms,
            first_offsets=control.first_offsets,
            topic_id=control.topic_id,
            assignment=control.assignment,
            assignment_epoch=control.assignment_epoch,
            next_assignment=control.next.assignment if control.next else {},
            next_epoch=control.next.epoch if control.next else None,
            move_waits=self._moves.waits(name, control),
            move_reason=control.next.reason if control.next else "",
            assigned_because=control.assigned_because,
            catching_up=self._heartbeats.catching_up(name, control),
            replay_from=self._metadata.replay_from(name, control),
            low_watermark_ms=self._watermarks.published_ms(name),
            segments={state.value: counts[state.value] for state in SegmentState},
            problem="; ".join(problems) or None,
            refused=refused,
            refused_example=example,
            ended=control.ended,
            revisions=()
            if definition.revision is None
            else tuple(each.name for each in self._metadata.revisions(name)[1:]),
        )

    def statuses(self) -> list[wire.CubeStatus]:
        """Return the status of each cube that is there, by name."""
        return self._views.of_all(lambda name: self._status(self._metadata.cube(name)))

    def segment(self, cube: str, segment: str) -> wire.SegmentInfo:
        """Return the record, or an ACTIVE one without history while there is none."""
        window = parse_segment_name(segment)
        record = self._metadata.segment(cube, segment)
        if record is None:
            window_ms = self._metadata.cube(cube).segment.window_ms
            if window.start_ms % window_ms or window.end_ms - window.start_ms != window_ms:
                raise NotFound(
                    f"{segment} is not a segment of cube {cube}", expected=f"{window_ms} ms windows"
                )
            record = _fresh(cube, window)
        return self._info(record, self._metadata.control(cube))

    def segments(
        self, cube: str, *, state: str | None, start_ms: int | None, end_ms: int | None
    ) -> list[wire.SegmentInfo]:
        if state is not None and state not in SegmentState.__members__:
            raise DefinitionError("no such state", expected=", ".join(SegmentState), found=state)
        control, known = self._known(cube)
        return [
            self._listed(record, control)
            for record in known
            if (state is None or record.state == state)
            and (end_ms is None or record.start_ms < end_ms)
            and (start_ms is None or record.end_ms > start_ms)
        ]

    def segment_columns(self, cube: str) -> wire.SegmentColumns:
        control, known = self._known(cube)
        losses = (*control.losses, *control.version_losses)
        noted = tuple(
            self._listed(record, control)
            for record in known
            if not is_settled(record)
            or is_noted(record)
            or any(loss.overlaps(record.start_ms, record.end_ms) for loss in losses)
        )
        return segment_columns(known, noted)

    def _known(self, cube: str) -> tuple[CubeControl, list[SegmentRecord]]:
        """Return the records in the order of their starts, with those that only receivers know yet."""
        control, records = self._views.fresh(cube)
        known = dict(records)
        for name in self._heartbeats.active_segments(cube) - set(records):
            known[name] = _fresh(cube, parse_segment_name(name))
        return control, [record for _, record in sorted(known.items())]

    def accept_loss(self, cube: str, segment: str, request: wire.AcceptLossRequest) -> wire.SegmentInfo:
        record = self._losses.accept(cube, segment, by=request.by, reason=request.reason)
        return self._info(record, self._metadata.control(cube))

    def _listed(self, record: SegmentRecord, control: CubeControl) -> wire.SegmentInfo:
        """Return what a list shows. The vectors of a settled segment are read for its losses only."""
        if not is_settled(record):
            return self._info(record, control)
        losses = (*control.losses, *control.version_losses)
        if any(loss.overlaps(record.start_ms, record.end_ms) for loss in losses):
            return self._info(record, control).model_copy(update={"covered": {}})
        return segment_info(msgspec.structs.replace(record, covered={}))

    def _info(self, record: SegmentRecord, control: CubeControl) -> wire.SegmentInfo:
        record = self._metadata.whole_segment(record)
        return segment_info(
            record,
            losses=self._losses.known(record, control),
            lost=self._losses.lost_of(record, control),
        )

    def watermark(self, cube: str) -> wire.WatermarkInfo:
        self._metadata.cube(cube)
        return wire.WatermarkInfo(
            cube=cube,
            low_watermark_ms=self._watermarks.published_ms(cube),
            partitions=self._heartbeats.partitions(cube),
        )


def _fresh(cube: str, window: SegmentRange) -> SegmentRecord:
    return SegmentRecord(cube=cube, start_ms=window.start_ms, end_ms=window.end_ms)

"""A change of a cube, planned or made: in place, or by a revision that follows; and columns for its table."""

from __future__ import annotations

from rtolap.base.errors import DefinitionError, Refused
from rtolap.coordinator.alterations.revisions import FollowingRevisions
from rtolap.coordinator.alterations.settings import SettingChanges
from rtolap.coordinator.answers import parsed
from rtolap.coordinator.assignment import TopicsOf
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.views import Views
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.model.cube import Cube, Schema
from rtolap.model.evolution.revisions import declared, takes_revision
from rtolap.model.evolution.table_changes import added_columns
from rtolap.model.table import Table
from rtolap.model.validation.definition import validate_schema
from rtolap.protocols.coordinator import messages as wire


class Alterations:
    """Plans and applies changes. `heartbeats`: of segments that have no record yet; `topics`: what may be
    read again."""

    def __init__(
        self, metadata: ClusterMetadata, views: Views, heartbeats: Heartbeats, topics: TopicsOf
    ) -> None:
        self._metadata = metadata
        self._settings = SettingChanges(metadata, views, heartbeats)
        self._revisions = FollowingRevisions(metadata, views, heartbeats, topics)

    def alter(self, name: str, request: wire.AlterRequest) -> wire.Alteration:
        """Return what the change means, and make it unless the request is a dry run.

        The table gets its columns first: a crash leaves columns that no cube reads, and a repetition goes on.

        Raises NotFound without the cube, DefinitionError for a definition that is none, Refused for a change
        that cannot be, or that takes leave which the request does not give.
        """
        after = parsed(request.definition, Cube)
        if after.name != name:
            raise DefinitionError("the definition is of another cube", expected=name, found=after.name)
        revisions = self._metadata.revisions(name)
        first, newest = revisions[0], revisions[-1]
        if first.revision is not None and first.revision.of != name:
            raise Refused(
                f"{name} is a revision of cube {first.revision.of}",
                expected="the name of the cube",
                action=f"change {first.revision.of}",
            )
        running = self._metadata.table(newest.table)
        table = running if request.table is None else parsed(request.table, Table)
        columns = added_columns(running, table)
        validate_schema(Schema(table, after))
        planned = self._change(revisions, Schema(table, after), request.model_copy(update={"dry_run": True}))
        if request.dry_run:
            return planned.model_copy(update={"table_columns": columns})
        _check_leave(planned, request)
        if columns:
            self._metadata.change_table(running, table)
        done = self._change(revisions, Schema(table, after), request)
        return done.model_copy(update={"table_columns": columns, "applied": done.applied or bool(columns)})

    def _change(
        self, revisions: tuple[Cube, ...], after: Schema, request: wire.AlterRequest
    ) -> wire.Alteration:
        if takes_revision(declared(revisions[-1]), after.cube):
            return self._revisions.follow(revisions[-1], after, request)
        return self._settings.change(revisions, after.cube, dry_run=request.dry_run)


def _check_leave(planned: wire.Alteration, request: wire.AlterRequest) -> None:
    dropped = planned.dropped_segments
    if dropped and not request.drop_segments:
        raise Refused(
            f"the change of {planned.cube} drops {len(dropped)} segments for good",
            expected="leave to drop them",
            found=f"{dropped[0]} to {dropped[-1]}",
            action="`--drop-segments` gives it",
        )
    if planned.revision is not None and not request.new_revision:
        raise Refused(
            f"the change of {planned.cube} takes a revision, which holds the events from a moment on",
            expected="leave to make it",
            found=f"other {', '.join(each.setting for each in planned.changes)}",
            action="look at `--plan`; `--new-revision` gives it",
        )

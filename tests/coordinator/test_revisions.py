"""A revision follows the newest one in one commit, from a moment that no segment of history has reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import pytest
from rtolap.base.errors import DefinitionError, NotFound, Refused
from rtolap.coordinator.purge import Left, Purge
from rtolap.metadata.store import Operation
from rtolap.model.cube import Cube
from rtolap.model.evolution.revisions import declared
from rtolap.protocols.coordinator.messages import Alteration, AlterRequest

from tests.support.cubes.coordinator_harness import CUBE, HOUR_MS, NAME, TABLE, Cluster

SECOND = f"{NAME}_r2"
PAGES = {"dimensions": ["page", "country"]}
COUNTRY = {**TABLE, "columns": [*TABLE["columns"], {"name": "country", "type": "string"}]}


def alter(cluster: Cluster, changes: dict[str, Any], **options: Any) -> Alteration:
    request = AlterRequest(definition={**CUBE, **changes}, table=COUNTRY, **options)
    return cluster.alter(NAME, request)


def cube(cluster: Cluster, name: str) -> Cube:
    return msgspec.convert(cluster.client.cube(name).definition, Cube)


def test_a_plan_says_what_a_revision_means_and_changes_nothing(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.closed(3)
    plan = alter(cluster, PAGES, dry_run=True)
    assert (plan.revision, plan.since_ms) == (SECOND, 4 * HOUR_MS)
    assert plan.added_columns == ("country",)
    assert (plan.table_columns, plan.gone_columns, plan.applied) == (("country",), (), False)
    assert [change.setting for change in plan.changes] == ["dimensions"]
    assert cluster.metadata.cubes() == (NAME,)
    assert len(cluster.metadata.table("clicks").columns) == 3


def test_a_revision_takes_leave(cluster: Cluster) -> None:
    cluster.enabled()
    with pytest.raises(Refused, match="takes a revision"):
        alter(cluster, PAGES)
    assert cluster.metadata.cubes() == (NAME,)
    assert len(cluster.metadata.table("clicks").columns) == 3


def test_a_revision_begins_behind_all_segments_at_the_offsets_that_history_has_everything_below(
    cluster: Cluster,
) -> None:
    cluster.enabled()
    cluster.closed(3)
    cluster.metadata.set_replay_from(NAME, "rs1", {0: 70, 2: 5})
    done = alter(cluster, PAGES, new_revision=True)
    assert done.applied
    first, second = cube(cluster, NAME), cube(cluster, SECOND)
    assert first.revision is not None
    assert second.revision is not None
    assert first.revision.bounds_ms == (None, 4 * HOUR_MS)
    assert second.revision.bounds_ms == (4 * HOUR_MS, None)
    assert declared(first).dimensions == ("page",)
    assert declared(second).dimensions == ("page", "country")
    old, new = cluster.metadata.control(NAME), cluster.metadata.control(SECOND)
    assert new.first_offsets == {0: 70, 1: 10, 2: 20, 3: 30}
    assert (new.enabled, new.assignment, new.topic_id) == (True, old.assignment, old.topic_id)
    assert new.assignment_epoch == 1
    again = alter(cluster, PAGES, new_revision=True)
    assert (again.applied, again.changes) == (False, ())
    cluster.client.create_cube({**CUBE, **PAGES})  # as its file declares it now
    assert cluster.client.cube(NAME).revisions == (SECOND,)


def test_revisions_follow_each_other(cluster: Cluster) -> None:
    cluster.enabled()
    assert alter(cluster, PAGES, new_revision=True, since_ms=5 * HOUR_MS).since_ms == 5 * HOUR_MS
    wider = {**PAGES, "segment": {"window_ms": 2 * HOUR_MS}}
    with pytest.raises(Refused, match="cannot begin at") as caught:
        alter(cluster, wider, new_revision=True, since_ms=7 * HOUR_MS)
    assert "1970-01-01T06:00:00" in str(caught.value)
    done = alter(cluster, wider, new_revision=True, since_ms=8 * HOUR_MS)
    assert done.revision == f"{NAME}_r3"
    second, third = cube(cluster, SECOND), cube(cluster, f"{NAME}_r3")
    assert second.revision is not None
    assert third.revision is not None
    assert second.revision.bounds_ms == (5 * HOUR_MS, 8 * HOUR_MS)
    assert third.revision.bounds_ms == (8 * HOUR_MS, None)
    assert cluster.client.cube(NAME).revisions == (SECOND, f"{NAME}_r3")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_makes_one_revision(cluster: Cluster, when: Literal["before", "after"]) -> None:
    cluster.enabled()
    lost = [when]

    def fault(operations: Sequence[Operation]) -> Literal["before", "after"] | None:
        ours = any(SECOND in str(getattr(each, "path", "")) for each in operations)
        return lost.pop() if ours and lost else None

    cluster.ensemble.fault = fault
    assert alter(cluster, PAGES, new_revision=True).revision == SECOND
    cluster.ensemble.fault = None
    assert not lost
    assert cluster.metadata.cubes() == (NAME, SECOND)


def test_a_segment_that_closes_meanwhile_moves_the_moment(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.enabled()
    commits, closing = cluster.store.commit, [7]

    def commit(operations: Sequence[Operation]) -> None:
        if closing and any(SECOND in str(getattr(each, "path", "")) for each in operations):
            cluster.closed(closing.pop())
        commits(operations)

    monkeypatch.setattr(cluster.store, "commit", commit)
    assert alter(cluster, PAGES, new_revision=True).since_ms == 8 * HOUR_MS


def test_an_assignment_that_changes_meanwhile_is_the_revisions_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.enabled()
    commits, moving = cluster.store.commit, [{"rs2": (0, 1, 2, 3)}]

    def commit(operations: Sequence[Operation]) -> None:
        if moving and any(SECOND in str(getattr(each, "path", "")) for each in operations):
            after = moving.pop()
            cluster.metadata.update_control(
                NAME, lambda control: msgspec.structs.replace(control, assignment=after)
            )
        commits(operations)

    monkeypatch.setattr(cluster.store, "commit", commit)
    alter(cluster, PAGES, new_revision=True)
    assert cluster.metadata.control(SECOND).assignment == {"rs2": (0, 1, 2, 3)}


def test_switches_of_a_cube_are_those_of_all_its_revisions(cluster: Cluster) -> None:
    cluster.enabled()
    alter(cluster, PAGES, new_revision=True)
    for switch, enabled, paused in (
        (cluster.client.pause_cube, True, True),
        (cluster.client.resume_cube, True, False),
        (cluster.client.disable_cube, False, False),
        (cluster.client.enable_cube, True, False),
    ):
        switch(NAME)
        for name in (NAME, SECOND):
            control = cluster.metadata.control(name)
            assert (control.enabled, control.paused) == (enabled, paused), (switch, name)
    cluster.client.purge(NAME, 2 * HOUR_MS)
    assert {cluster.metadata.control(name).horizon_ms for name in (NAME, SECOND)} == {2 * HOUR_MS}


def test_a_cube_is_dropped_with_its_revisions_and_none_of_them_alone(cluster: Cluster) -> None:
    cluster.enabled()
    alter(cluster, PAGES, new_revision=True)
    with pytest.raises(Refused, match=f"is a revision of cube {NAME}"):
        cluster.client.drop_cube(SECOND)
    with pytest.raises(Refused, match="is enabled"):
        cluster.client.drop_cube(NAME)
    cluster.client.disable_cube(NAME)
    cluster.client.drop_cube(NAME)
    assert cluster.metadata.cubes() == ()
    with pytest.raises(NotFound):
        cluster.client.cube(SECOND)


def test_a_shorter_retention_is_that_of_all_revisions(cluster: Cluster) -> None:
    cluster.enabled()
    alter(cluster, PAGES, new_revision=True)
    alter(cluster, {**PAGES, "retention": {"after_ms": 5 * HOUR_MS}})
    assert {cube(cluster, name).retention.after_ms for name in (NAME, SECOND)} == {5 * HOUR_MS}
    assert cube(cluster, NAME).dimensions == ("page",)


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({**PAGES, "late": {"policy": "drop"}}, {}, r"cannot change late\.policy"),
        ({**PAGES, "truncation": "drop"}, {}, "truncation of .* change in place"),
        (PAGES, {"renamed": {"country": "page"}}, "page is in both"),
        ({"dimensions": ["country"]}, {"renamed": {"country": "price"}}, "price is in both"),
        ({"dimensions": ["country"]}, {"renamed": {"nothing": "page"}}, "no column nothing"),
        ({"measures": [{"function": "count"}]}, {"since_ms": 1}, "cannot begin at"),
    ],
)
def test_what_no_revision_can_be_is_refused_and_changes_nothing(
    cluster: Cluster, changes: dict[str, Any], options: dict[str, Any], says: str
) -> None:
    cluster.enabled()
    with pytest.raises(Refused, match=says):
        alter(cluster, changes, new_revision=True, **options)
    assert cluster.metadata.cubes() == (NAME,)
    assert len(cluster.metadata.table("clicks").columns) == 3


def test_a_cube_without_events_is_declared_again(cluster: Cluster) -> None:
    cluster.receiver("r1", "rs1")
    cluster.define()
    with pytest.raises(Refused, match="was never enabled"):
        alter(cluster, PAGES, new_revision=True)


def test_a_taken_name_is_refused(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.client.create_cube({**CUBE, "name": SECOND})
    with pytest.raises(Refused, match="there is a cube"):
        alter(cluster, PAGES, new_revision=True)


def test_nobody_declares_a_revision(cluster: Cluster) -> None:
    cluster.client.create_table(TABLE)
    with pytest.raises(DefinitionError, match="nobody declares it"):
        cluster.client.create_cube({**CUBE, "revision": {"of": NAME, "number": 1}})


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({**COUNTRY, "topic": "other"}, "topic"),
        ({**COUNTRY, "columns": COUNTRY["columns"][1:]}, "at"),
        ({**COUNTRY, "columns": [{"name": "at", "type": "string"}, *COUNTRY["columns"][1:]]}, "at"),
        ({**COUNTRY, "unknown_columns": "reject"}, "unknown_columns"),
    ],
)
def test_a_table_changes_nothing_that_cubes_read(cluster: Cluster, table: dict[str, Any], says: str) -> None:
    cluster.enabled()
    request = AlterRequest(definition={**CUBE, "dimensions": ["page"]}, table=table)
    with pytest.raises(Refused, match=f"a table that cubes read cannot change .*{says}"):
        cluster.alter(NAME, request)


@pytest.mark.parametrize("enabled", [NAME, SECOND])
def test_a_drop_that_is_refused_for_one_revision_drops_none(cluster: Cluster, enabled: str) -> None:
    cluster.enabled()
    alter(cluster, PAGES, new_revision=True)
    cluster.client.disable_cube(NAME)
    cluster.metadata.update_control(enabled, lambda control: msgspec.structs.replace(control, enabled=True))
    with pytest.raises(Refused, match=f"cube {enabled} is enabled"):
        cluster.client.drop_cube(NAME)
    assert cluster.metadata.cubes() == (NAME, SECOND)


def test_what_was_purged_is_not_read_again_by_a_revision(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.closed(3)
    cluster.client.purge(NAME, 10 * HOUR_MS)
    assert alter(cluster, PAGES, new_revision=True).since_ms == 10 * HOUR_MS


def test_a_revision_that_outlives_its_cube_is_dropped_before_the_name_is_used_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cube was altered between the look at its revisions and its drop."""
    cluster.enabled()
    cluster.client.disable_cube(NAME)
    folders, altering = Purge.folders_of, [True]

    def folders_of(self: Purge, cube: str) -> Left:
        if altering:
            altering.clear()
            alter(cluster, PAGES, new_revision=True)
        return folders(self, cube)

    monkeypatch.setattr(Purge, "folders_of", folders_of)
    cluster.client.drop_cube(NAME)
    assert cluster.metadata.cubes() == (SECOND,)
    with pytest.raises(Refused, match=f"no revision of an earlier cube.*{SECOND}"):
        cluster.client.create_cube(CUBE)
    cluster.client.drop_cube(SECOND)
    cluster.client.create_cube(CUBE)
    assert cluster.metadata.cubes() == (NAME,)

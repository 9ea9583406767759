"""Running cubes are changed in one step: what it means is said before, and what cannot be is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rtolap.base.errors import CommitUnknown, DefinitionError, NotFound, NotYet, Refused
from rtolap.metadata.publications import Publications
from rtolap.metadata.records import WatermarkRecord
from rtolap.model.cube import Cube
from rtolap.model.publication import IcebergCatalog, Publication
from rtolap.model.segment import segment_of
from rtolap.protocols.coordinator.messages import AlterRequest

from tests.support.cubes.coordinator_harness import CUBE, HOUR_MS, NAME, TABLE, Cluster

GROUPS = {"aggregation_groups": [{"include": ["page"], "mandatory": ["page"]}]}


def altered(changes: dict[str, Any], **options: bool) -> AlterRequest:
    return AlterRequest(definition={**CUBE, **changes}, **options)


def running(cluster: Cluster) -> Cube:
    return msgspec.convert(cluster.client.cube(NAME).definition, Cube)


def test_a_dry_run_says_what_a_change_means_and_changes_nothing(cluster: Cluster) -> None:
    cluster.define()
    before = running(cluster)
    plan = cluster.alter(NAME, altered(GROUPS, dry_run=True))
    assert [change.setting for change in plan.changes] == ["aggregation_groups"]
    assert plan.new_cuboids == ("page",)
    assert (plan.applied, plan.dropped_segments) == (False, ())
    assert running(cluster) == before


def test_a_change_is_made_once_and_its_repetition_finds_nothing_to_do(cluster: Cluster) -> None:
    cluster.define()
    done = cluster.alter(NAME, altered({**GROUPS, "late": {"merge_after_ms": 5}}))
    assert {change.setting for change in done.changes} == {"aggregation_groups", "late.merge_after_ms"}
    assert done.applied
    assert running(cluster).late.merge_after_ms == 5
    assert running(cluster).aggregation_groups[0].include == ("page",)
    again = cluster.alter(NAME, altered({**GROUPS, "late": {"merge_after_ms": 5}}))
    assert (again.changes, again.applied) == ((), False)
    back = cluster.alter(NAME, altered({}))
    assert back.gone_cuboids == ("page",)
    assert running(cluster) == msgspec.convert(CUBE, Cube)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"week_starts_on": "sunday"}, "cannot change week_starts_on"),
        ({"retention": {"policy": "PURGE", "after_ms": 10 * HOUR_MS}}, r"cannot change retention\.policy"),
        ({"late": {"policy": "drop"}}, r"cannot change late\.policy"),
    ],
)
def test_what_stored_rows_depend_on_is_refused_by_name(
    cluster: Cluster, changes: dict[str, Any], says: str
) -> None:
    cluster.define()
    with pytest.raises(Refused, match=says):
        cluster.alter(NAME, altered(changes))
    assert running(cluster) == msgspec.convert(CUBE, Cube)


def test_a_wrong_definition_is_told_why(cluster: Cluster) -> None:
    cluster.define()
    for changes, says in (
        ({"aggregation_groups": [{"include": ["colour"]}]}, "colour"),
        ({"unknown_key": 1}, "unknown"),
        ({"name": "other"}, "another cube"),
        ({"segment": {"window_ms": HOUR_MS, "sliding_window_ms": -1}}, "sliding_window"),
    ):
        with pytest.raises(DefinitionError, match=says):
            cluster.alter(NAME, altered(changes))
    with pytest.raises(NotFound):
        cluster.alter("nowhere", AlterRequest(definition={**CUBE, "name": "nowhere"}))


def test_a_shorter_retention_names_the_segments_that_it_drops_and_takes_leave(cluster: Cluster) -> None:
    cluster.receiver("r1", "rs1")
    cluster.define()
    cluster.client.enable_cube(NAME)
    names = [cluster.closed(at).name for at in range(4)]
    cluster.metadata.publish_watermark(NAME, WatermarkRecord(8 * HOUR_MS))
    shorter = {"retention": {"after_ms": 5 * HOUR_MS}}
    plan = cluster.alter(NAME, altered(shorter, dry_run=True))
    assert plan.dropped_segments == tuple(names[:3])
    with pytest.raises(Refused, match="drops 3 segments for good"):
        cluster.alter(NAME, altered(shorter))
    assert running(cluster).retention.after_ms == 10 * HOUR_MS
    assert cluster.alter(NAME, altered(shorter, drop_segments=True)).applied
    assert cluster.client.retention(NAME).segments == tuple(names[:3])
    longer = cluster.alter(NAME, altered({"retention": {"after_ms": 50 * HOUR_MS}}))
    assert (longer.dropped_segments, longer.applied) == ((), True)


def test_what_is_overdue_by_the_running_retention_is_not_dropped_by_the_change(cluster: Cluster) -> None:
    cluster.enabled()
    names = [cluster.closed(at).name for at in range(4)]
    cluster.metadata.publish_watermark(NAME, WatermarkRecord(13 * HOUR_MS))  # the first three are overdue
    for after_h, dropped in ((12, []), (11, []), (10, []), (9, names[3:])):
        plan = cluster.alter(NAME, altered({"retention": {"after_ms": after_h * HOUR_MS}}, dry_run=True))
        assert plan.dropped_segments == tuple(dropped), after_h


def test_segments_that_only_receivers_know_are_named_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.enabled()
    active = segment_of(2 * HOUR_MS, HOUR_MS).name
    monkeypatch.setattr(cluster.coordinator.heartbeats, "active_segments", lambda cube: {active})
    cluster.metadata.publish_watermark(NAME, WatermarkRecord(6 * HOUR_MS))
    plan = cluster.alter(NAME, altered({"retention": {"after_ms": 3 * HOUR_MS}}, dry_run=True))
    assert plan.dropped_segments == (active,)


def test_a_retention_that_may_drop_what_no_report_names_waits_for_a_report_that_does(
    cluster: Cluster,
) -> None:
    """A report names the oldest of its open segments, and the newest."""
    cluster.enabled()
    names = [segment_of(hour * HOUR_MS, HOUR_MS).name for hour in (1, 2, 7)]
    cluster.report(held=names, more_active=True)
    cluster.metadata.publish_watermark(NAME, WatermarkRecord(8 * HOUR_MS))
    for after_h, dropped in ((10, []), (6, names[:1]), (5, names[:2])):
        request = altered({"retention": {"after_ms": after_h * HOUR_MS}}, dry_run=True)
        assert cluster.client.alter_cube(NAME, request).dropped_segments == tuple(dropped), after_h
    shorter = altered({"retention": {"after_ms": 4 * HOUR_MS}}, dry_run=True)
    with pytest.raises(NotYet, match=r"not known yet which segments of .* the change drops"):
        cluster.client.alter_cube(NAME, shorter)
    cluster.report(held=names[:2])
    assert cluster.client.alter_cube(NAME, shorter).dropped_segments == tuple(names[:2])


def test_a_cuboid_that_a_publication_follows_stays(cluster: Cluster) -> None:
    cluster.define(**GROUPS)
    Publications(cluster.metadata.store).declare(
        Publication(
            name="pages",
            cube=NAME,
            cuboid=("page",),
            table="lake.pages",
            catalog=IcebergCatalog(kind="sqlite", address="/tmp/catalog", warehouse="file:///tmp/lake"),
        )
    )
    with pytest.raises(DefinitionError, match="publication pages"):
        cluster.alter(NAME, altered({}))
    assert len(running(cluster).aggregation_groups) == 1


def test_a_lost_answer_and_somebody_elses_change_are_told_apart(cluster: Cluster) -> None:
    cluster.define()
    before, store = running(cluster), cluster.metadata.store
    commits = store.commit
    lost = [CommitUnknown("the answer was lost")]

    def commit_and_lose(operations: Any) -> None:
        commits(operations)
        if lost:
            raise lost.pop()

    store.commit = commit_and_lose  # type: ignore[method-assign]
    after = msgspec.structs.replace(before, consumer_tasks_max=9)
    cube_id = cluster.metadata.cube_id(NAME)
    cluster.metadata.change_cube(before, after, cube_id)
    assert not lost
    assert running(cluster) == after
    with pytest.raises(Refused, match="changed by somebody else"):
        cluster.metadata.change_cube(before, msgspec.structs.replace(before, truncation="drop"), cube_id)
    assert running(cluster) == after


def test_a_cube_that_was_dropped_and_made_again_meanwhile_is_another_one(cluster: Cluster) -> None:
    cluster.define()
    before, cube_id = running(cluster), cluster.metadata.cube_id(NAME)
    cluster.client.drop_cube(NAME)
    cluster.client.create_cube(CUBE)
    with pytest.raises(NotFound, match="dropped by somebody else"):
        cluster.metadata.change_cube(before, msgspec.structs.replace(before, truncation="drop"), cube_id)
    assert running(cluster) == before


def test_creating_what_was_altered_says_how_to_change_it(cluster: Cluster) -> None:
    cluster.client.create_table(TABLE)
    cluster.client.create_cube(CUBE)
    cluster.alter(NAME, altered(GROUPS))
    cluster.client.create_cube({**CUBE, **GROUPS})
    with pytest.raises(Refused, match="rtolap alter"):
        cluster.client.create_cube(CUBE)

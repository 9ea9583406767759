"""Batches at the coordinator: what may be replaced, what a hand-over changes, and what is cleaned up."""

from __future__ import annotations

import random
from typing import Any

import pytest
from rtolap.base.errors import AlreadyExists, DefinitionError, NotFound, NotYet, Refused
from rtolap.coordinator.builds.batches import PLANS_APPLIED_MS, PLANS_KEPT_MS
from rtolap.model.segment import segment_of
from rtolap.protocols.coordinator.messages import BatchPlanMessage

from tests.support.batches.by_hand import stage_empty
from tests.support.batches.drawn import spec_of
from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster, assert_columns_as_listed

SOURCE: dict[str, Any] = {"format": "parquet", "path": "file:///exports/"}


def plan(cluster: Cluster, batch: str, first: int, last: int, **source: Any) -> BatchPlanMessage:
    """Plan hours, the last one included, once all receivers were heard."""
    cluster.report()
    return cluster.client.plan_batch(NAME, batch, first * HOUR_MS, (last + 1) * HOUR_MS, {**SOURCE, **source})


def staged(cluster: Cluster, batch: str, first: int, last: int, events: int = 3) -> None:
    stage_empty(cluster.files, spec_of(plan(cluster, batch, first, last).spec), events)


def ready(cluster: Cluster, hour: int, events: int = 5) -> str:
    record = cluster.closed(hour, events=events)
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    return record.name


def test_a_plan_says_which_vectors_the_batch_speaks_for(cluster: Cluster) -> None:
    cluster.enabled()
    name = ready(cluster, 2)
    planned = plan(cluster, "b1", 1, 3)
    assert (planned.replaced, planned.fresh) == (1, 2)
    by_name = {each.segment: each for each in spec_of(planned.spec).segments}
    assert {piece.partition: (piece.start, piece.end) for piece in by_name[name].ranges} == {
        0: (0, 100),
        1: (10, 110),
        2: (20, 120),
        3: (30, 130),
    }
    assert by_name[name].version == 2
    (first, *_) = spec_of(planned.spec).segments
    assert [(piece.start, piece.end) for piece in first.ranges] == [(0, 0), (10, 10), (20, 20), (30, 30)]
    assert plan(cluster, "b1", 1, 3) == planned, "the same request is the same plan"
    with pytest.raises(AlreadyExists, match="planned otherwise"):
        plan(cluster, "b1", 1, 2)


def test_a_handed_over_segment_is_built_without_its_version_and_keeps_its_vector(cluster: Cluster) -> None:
    cluster.enabled()
    name = ready(cluster, 2)
    before = cluster.client.segment(NAME, name)
    staged(cluster, "b1", 2, 2)
    progress = cluster.client.apply_batch(NAME, "b1")
    assert (progress.left, progress.building, progress.ready) == (0, (name,), 0)
    assert cluster.client.apply_batch(NAME, "b1") == progress, "again changes nothing"
    spec = cluster.client.start_build(NAME, name)
    assert (spec.version, spec.previous_location, spec.batch) == (2, None, "b1")
    assert spec.covered == before.covered
    done = cluster.client.promote(NAME, name, cluster.build(name))
    assert (done.state, done.version, done.events, done.batch, done.pending_batch) == (
        "READY",
        2,
        3,
        "b1",
        "",
    )
    assert done.covered == before.covered
    assert cluster.client.batch_progress(NAME, "b1").ready == 1
    assert_columns_as_listed(cluster.client, NAME)
    assert done.late_events is None, "what came late to the topic is unknown now"


def test_a_late_delta_goes_on_top_of_what_the_batch_says(cluster: Cluster) -> None:
    cluster.enabled()
    name = ready(cluster, 2)
    staged(cluster, "b1", 2, 2)
    cluster.client.apply_batch(NAME, "b1")
    cluster.client.promote(NAME, name, cluster.build(name))
    cluster.closed(2, by=50, events=4)
    done = cluster.client.promote(NAME, name, cluster.build(name))
    assert (done.version, done.events, done.batch) == (3, 7, "b1")


def test_a_segment_that_has_changed_since_the_plan_is_refused_and_left(cluster: Cluster) -> None:
    cluster.enabled()
    name = ready(cluster, 2)
    staged(cluster, "b1", 2, 2)
    cluster.closed(2, by=50, events=4)
    cluster.client.promote(NAME, name, cluster.build(name))
    before = cluster.client.segment(NAME, name)
    with pytest.raises(Refused, match="has changed since batch b1 was planned"):
        cluster.client.apply_batch(NAME, "b1")
    assert cluster.client.segment(NAME, name) == before


def test_segments_that_the_stream_has_not_finished_are_named_and_nothing_is_planned(cluster: Cluster) -> None:
    cluster.enabled()
    closed = cluster.closed(2, events=1)
    now_hour = cluster.clock.now_ms() // HOUR_MS
    held = segment_of(HOUR_MS, HOUR_MS).name
    cluster.report(held=[held])
    with pytest.raises(Refused, match=f"{held}: receivers hold events of it"):
        cluster.client.plan_batch(NAME, "b1", 0, 2 * HOUR_MS, SOURCE)
    with pytest.raises(Refused, match=f"{closed.name}: REMOTE_PERSISTED, without history"):
        plan(cluster, "b1", 1, 3)
    with pytest.raises(Refused, match="the stream has not passed it"):
        plan(cluster, "b1", now_hour, now_hour)
    with pytest.raises(NotFound, match="no batch b1"):
        cluster.client.apply_batch(NAME, "b1")


def test_a_batch_of_a_cube_that_never_read_its_topic_is_refused(cluster: Cluster) -> None:
    cluster.define()
    with pytest.raises(Refused, match="has no place in its topic yet"):
        plan(cluster, "b1", 1, 1)


def test_purged_segments_stay_purged(cluster: Cluster) -> None:
    cluster.enabled()
    ready(cluster, 2)
    cluster.client.purge(NAME, 3 * HOUR_MS)
    with pytest.raises(Refused, match="purged"):
        plan(cluster, "b1", 1, 2)


def test_a_batch_that_is_not_staged_cannot_be_applied_yet(cluster: Cluster) -> None:
    cluster.enabled()
    ready(cluster, 2)
    plan(cluster, "b1", 2, 2)
    with pytest.raises(NotYet, match="is not staged"):
        cluster.client.apply_batch(NAME, "b1")


def test_a_first_version_of_a_batch_holds_up_no_segment_of_the_stream(cluster: Cluster) -> None:
    cluster.enabled()
    later = cluster.closed(5, events=2)
    staged(cluster, "b1", 1, 1)
    cluster.client.apply_batch(NAME, "b1")
    assert [entry.waits_for for entry in cluster.client.queue().entries] == [None, None]
    cluster.client.promote(NAME, later.name, cluster.build(later.name))


def test_a_requeue_withdraws_a_batch_that_is_not_history_yet(cluster: Cluster) -> None:
    cluster.enabled()
    name = ready(cluster, 2)
    before = cluster.client.segment(NAME, name)
    staged(cluster, "b1", 2, 2)
    cluster.client.apply_batch(NAME, "b1")
    assert cluster.client.requeue(NAME, name).pending_batch == ""
    again = cluster.client.promote(NAME, name, cluster.build(name))
    assert (again.events, again.covered, again.batch) == (before.events, before.covered, "")
    assert cluster.client.batch_progress(NAME, "b1").left == 1


def test_a_build_that_fails_of_a_batch_asks_no_receiver_for_its_events(cluster: Cluster) -> None:
    cluster.enabled()
    name = ready(cluster, 2)
    staged(cluster, "b1", 2, 2)
    cluster.client.apply_batch(NAME, "b1")
    spec = cluster.client.start_build(NAME, name)
    cluster.files.delete_tree(spec.parts[0].path)
    failed = cluster.client.fail_build(NAME, name, spec.build_id, "a part is gone")
    assert (failed.state, failed.pending_batch) == ("REMOTE_PERSISTED", "b1")
    assert cluster.client.batch_progress(NAME, "b1").failed == {name: "a part is gone"}


def test_a_version_that_a_batch_brought_is_not_read_again_from_the_topic(cluster: Cluster) -> None:
    cluster.enabled()
    name = ready(cluster, 2)
    staged(cluster, "b1", 2, 2)
    cluster.client.apply_batch(NAME, "b1")
    done = cluster.client.promote(NAME, name, cluster.build(name))
    assert done.location is not None
    cluster.files.delete_tree(done.location)
    with pytest.raises(Refused, match="which batch b1 brought"):
        cluster.client.requeue(NAME, name)
    assert cluster.client.segment(NAME, name).state == "READY"


def test_a_batch_is_cleaned_up_when_nobody_waits_for_it_and_it_is_old(cluster: Cluster) -> None:
    cluster.enabled()
    ready(cluster, 2)
    staged(cluster, "waits", 2, 2)
    cluster.client.apply_batch(NAME, "waits")
    plan(cluster, "old", 1, 1)
    cluster.clock.advance_ms(PLANS_KEPT_MS)
    plan(cluster, "new", 1, 1)
    half = spec_of(plan(cluster, "half", 1, 1).spec).folder
    cluster.files.write(f"{half}/rows/part-0.parquet", b"left by a deletion that was killed")
    cluster.files.delete(f"{half}/plan.json")
    folders = [each for each in cluster.client.cleanup(NAME).folders if each.startswith("batches/")]
    assert [folder.rpartition("/")[2] for folder in folders] == ["half", "old"]


def test_a_damaged_plan_stops_no_clean_up(cluster: Cluster) -> None:
    cluster.enabled()
    damaged = spec_of(plan(cluster, "damaged", 1, 1).spec).folder
    plan(cluster, "old", 1, 1)
    cluster.files.write(f"{damaged}/plan.json", b"?")
    cluster.clock.advance_ms(PLANS_KEPT_MS)
    folders = [each for each in cluster.client.cleanup(NAME).folders if each.startswith("batches/")]
    assert [folder.rpartition("/")[2] for folder in folders] == ["old"]
    assert cluster.files.exists(f"{damaged}/plan.json")


def test_a_batch_that_may_be_cleaned_up_soon_is_not_handed_over(cluster: Cluster) -> None:
    cluster.enabled()
    name = ready(cluster, 2)
    staged(cluster, "b1", 2, 2)
    cluster.clock.advance_ms(PLANS_APPLIED_MS - 1)
    assert PLANS_APPLIED_MS < PLANS_KEPT_MS
    cluster.clock.advance_ms(1)
    with pytest.raises(Refused, match="too old to be applied"):
        cluster.client.apply_batch(NAME, "b1")
    assert cluster.client.segment(NAME, name).pending_batch == ""


def test_a_cube_without_history_takes_no_batch(cluster: Cluster) -> None:
    cluster.receiver("r1", "rs1")
    cluster.define(retention={"policy": "PURGE", "after_ms": HOUR_MS})
    cluster.client.enable_cube(NAME)
    with pytest.raises(Refused, match="keeps no history"):
        plan(cluster, "b1", 1, 1)


def test_a_range_of_too_many_segments_is_refused_before_they_are_named(cluster: Cluster) -> None:
    cluster.enabled()
    with pytest.raises(DefinitionError, match="at most 20000 segments; found 1000000000"):
        cluster.client.plan_batch(NAME, "b1", 0, 1_000_000_000 * HOUR_MS, SOURCE)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"format": "excel"}, "not the source of a batch"),
        ({"path": None}, "expected a path"),
        ({"options": {"password": "x"}}, "options of a batch source"),
        ({"secrets": {"password": "PATH"}}, "takes no secret"),
        ({"columns": {"colour": "c"}}, "columns of a batch source that table clicks has not"),
        ({"columns": {"page": "upper(page)`"}}, "no expression"),
        ({"path": "file:///x y;z"}, "path of a batch source"),
    ],
)
def test_a_source_that_cannot_be_is_refused_by_name(
    cluster: Cluster, source: dict[str, Any], said: str
) -> None:
    cluster.enabled()
    with pytest.raises(DefinitionError, match=said):
        plan(cluster, "b1", 1, 1, **source)


@pytest.mark.parametrize(
    ("start_ms", "end_ms"), [(1, HOUR_MS), (0, HOUR_MS + 1), (HOUR_MS, HOUR_MS), (HOUR_MS, 0)]
)
def test_a_range_that_cuts_a_segment_is_refused(cluster: Cluster, start_ms: int, end_ms: int) -> None:
    cluster.enabled()
    with pytest.raises(DefinitionError, match="begin and end at segments"):
        cluster.client.plan_batch(NAME, "b1", start_ms, end_ms, SOURCE)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_id_is_given_no_folder_of_others_is_touched(cluster: Cluster, seed: int) -> None:
    cluster.enabled()
    rng = random.Random(seed)
    for _ in range(20):
        batch = "".join(rng.choice("ab/._-~%\\ ü") for _ in range(rng.randrange(1, 8)))
        try:
            plan(cluster, batch, 1, 1)
        except DefinitionError:
            continue
        except NotFound:  # of the route: an id with a slash
            continue
    parent = f"batches/{NAME}/{cluster.metadata.cube_id(NAME)}"
    folders = {stored.path.rpartition("/")[0] for stored in cluster.files.list("batches")}
    assert {folder.rpartition("/")[0] for folder in folders} <= {parent}

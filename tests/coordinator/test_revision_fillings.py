"""Older events are filled into a revision: its moment moves back as far as its history holds what that of the
older one holds, by one commit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import pytest
from rtolap.base.errors import Refused
from rtolap.coordinator.purge import GRACE_MS
from rtolap.metadata import segments
from rtolap.metadata.records import BuildAttempt, SegmentRecord, WatermarkRecord
from rtolap.metadata.store import Operation
from rtolap.model.batch import BatchSpec
from rtolap.model.cube import Cube, Revision
from rtolap.model.evolution.cube_changes import begins_again
from rtolap.model.evolution.revision_life import RevisionState
from rtolap.model.offsets import Offsets
from rtolap.model.segment import SegmentRange, SegmentState
from rtolap.protocols.coordinator.messages import (
    Alteration,
    AlterRequest,
    CubeReport,
    HeartbeatRequest,
    PartitionReport,
)

from tests.support.batches.by_hand import stage_empty
from tests.support.cubes.coordinator_harness import CUBE, HOUR_MS, NAME, TABLE, Cluster

SECOND = f"{NAME}_r2"
PAGES = {"dimensions": ["page", "country"]}
COUNTRY = {**TABLE, "columns": [*TABLE["columns"], {"name": "country", "type": "string"}]}
FIRST = {0: 0, 1: 10, 2: 20, 3: 30}


def built(cluster: Cluster, *hours: int) -> None:
    """READY segments of the cube at these hours, each 100 offsets beyond where the cube begins."""
    for hour in hours:
        record = cluster.closed(hour)
        cluster.client.promote(NAME, record.name, cluster.build(record.name))


def filled(cluster: Cluster, *, since: int | None = None, dry_run: bool = False, **cube: Any) -> Alteration:
    request = AlterRequest(
        definition={**CUBE, **cube, **PAGES},
        table=COUNTRY,
        new_revision=True,
        older="fill",
        since_ms=None if since is None else since * HOUR_MS,
        dry_run=dry_run,
    )
    return cluster.alter(NAME, request)


def revision(cluster: Cluster, name: str = SECOND) -> Revision:
    found = msgspec.convert(cluster.client.cube(name).definition, Cube).revision
    assert found is not None
    return found


def look(cluster: Cluster, name: str = SECOND) -> int | None:
    """Have the leader look; return the hour from which on statements read the revision."""
    moment_ms = cluster.coordinator._filling.run(name)
    return None if moment_ms is None else moment_ms // HOUR_MS


def reads(cluster: Cluster, offsets: Offsets, cube: str = SECOND, *, held: Sequence[int] = ()) -> None:
    """A receiver has read the revision up to these offsets; of the older one it holds these hours."""
    read = {p: PartitionReport(watermark_ms=0, idle=False, position=at) for p, at in offsets.items()}
    report = CubeReport(state="CONSUMING", assignment_epoch=1, partitions=read)
    active = tuple(SegmentRange(hour * HOUR_MS, (hour + 1) * HOUR_MS).name for hour in held)
    cubes = {NAME: report.model_copy(update={"active": active}), SECOND: report, cube: report}
    cluster.client.heartbeat(HeartbeatRequest(receiver_id="r1", replica_set="rs1", cubes=cubes))


def has_history(cluster: Cluster, *hours: int, cube: str = SECOND) -> None:
    """The revision has built what it has read of these hours."""

    def ready(record: SegmentRecord) -> SegmentRecord:
        return msgspec.structs.replace(
            record, state=SegmentState.READY, version=1, location="somewhere", covered=FIRST
        )

    for hour in hours:
        window = SegmentRange(hour * HOUR_MS, (hour + 1) * HOUR_MS)
        cluster.metadata.update_segment(cube, window, ready)


def test_one_whose_topic_has_everything_reads_it_again(cluster: Cluster) -> None:
    cluster.enabled()
    built(cluster, 3, 4, 6)
    cluster.metadata.set_replay_from(NAME, "rs1", {0: 70})
    plan = filled(cluster, dry_run=True)
    assert (plan.since_ms, plan.fills_from_ms, plan.filled_by) == (7 * HOUR_MS, 3 * HOUR_MS, "topic")
    assert cluster.metadata.cubes() == (NAME,)
    assert filled(cluster).revision == SECOND
    assert cluster.metadata.control(SECOND).first_offsets == FIRST
    found = revision(cluster)
    assert (found.bounds_ms, found.reads_from_ms) == ((7 * HOUR_MS, None), 3 * HOUR_MS)
    assert revision(cluster, NAME).until_ms == 7 * HOUR_MS


def test_the_moment_moves_once_history_holds_what_the_older_ones_holds(cluster: Cluster) -> None:
    cluster.enabled()
    built(cluster, 3, 4, 6)
    filled(cluster)
    before = cluster.metadata.cube(SECOND)
    assert look(cluster) == 7
    reads(cluster, {0: 99, 1: 110, 2: 120, 3: 130})
    has_history(cluster, 3, 4, 6)
    assert look(cluster) == 7, "an event of partition 0 may be missing"
    assert cluster.metadata.cube(SECOND) == before
    reads(cluster, {0: 100, 1: 110, 2: 130, 3: 130})
    assert look(cluster) == 3
    after = cluster.metadata.cube(SECOND)
    assert after.revision is not None
    assert dict(after.revision.filled_at) == {0: 100, 1: 110, 2: 120, 3: 130}
    assert after.revision.bounds_ms == (3 * HOUR_MS, None)
    assert not begins_again(before, after), "receivers have taken these events all the time"
    assert revision(cluster, NAME).until_ms == 7 * HOUR_MS, "a statement with an earlier look reads it on"
    assert look(cluster) == 3
    assert look(cluster, NAME) is None


def test_a_range_in_which_the_older_one_is_not_ready_waits(cluster: Cluster) -> None:
    cluster.enabled()
    built(cluster, 3, 5)
    staged = cluster.closed(4)
    filled(cluster)
    reads(cluster, dict.fromkeys(FIRST, 1000))
    has_history(cluster, 3, 4, 5)
    assert look(cluster) == 5
    cluster.client.promote(NAME, staged.name, cluster.build(staged.name))
    assert look(cluster) == 3


def test_a_range_of_which_receivers_hold_events_waits_until_it_is_history(cluster: Cluster) -> None:
    cluster.enabled()
    built(cluster, 3, 4)
    reads(cluster, dict.fromkeys(FIRST, 1000), held=[5])
    assert filled(cluster).since_ms == 6 * HOUR_MS
    has_history(cluster, 3, 4)
    assert look(cluster) == 6, "the revision's receivers may not have read what is in the hour"
    reads(cluster, dict.fromkeys(FIRST, 1000), held=[5])
    assert look(cluster) == 6
    cluster.coordinator.heartbeats.clear()
    assert look(cluster) == 6, "a fresh leader has heard of nobody"
    built(cluster, 5)
    has_history(cluster, 5)
    reads(cluster, dict.fromkeys(FIRST, 1000), held=[5])
    assert look(cluster) == 3, "late events of an hour that is history"


def test_late_events_that_the_older_one_is_merging_hold_nothing_back(cluster: Cluster) -> None:
    """With some that come again and again, its segments are hardly ever READY."""
    cluster.enabled()
    built(cluster, 3)
    filled(cluster)
    has_history(cluster, 3)
    cluster.closed(3)  # up to 200 and more
    reads(cluster, {0: 199, 1: 210, 2: 220, 3: 230})
    assert look(cluster) == 4, "an event that is being merged may be missing"
    reads(cluster, {0: 200, 1: 210, 2: 220, 3: 230})
    assert look(cluster) == 3
    assert dict(revision(cluster).filled_at) == {0: 200, 1: 210, 2: 220, 3: 230}


def test_a_batch_that_replaces_the_older_history_meanwhile_is_not_the_topics(cluster: Cluster) -> None:
    cluster.enabled()
    built(cluster, 3)
    filled(cluster)
    has_history(cluster, 3)
    reads(cluster, dict.fromkeys(FIRST, 1000))
    cluster.metadata.update_segment(
        NAME,
        SegmentRange(3 * HOUR_MS, 4 * HOUR_MS),
        lambda record: msgspec.structs.replace(record, batch="b1"),
    )
    assert look(cluster) == 4


def test_a_range_without_history_of_the_revision_waits(cluster: Cluster) -> None:
    cluster.enabled()
    built(cluster, 3, 4)
    filled(cluster)
    reads(cluster, dict.fromkeys(FIRST, 1000))
    has_history(cluster, 3)
    assert look(cluster) == 5
    has_history(cluster, 4)
    assert look(cluster) == 3


def test_what_only_the_older_one_has_purged_does_not_come_back(cluster: Cluster) -> None:
    cluster.enabled()
    built(cluster, 3, 4, 5)
    filled(cluster)
    reads(cluster, dict.fromkeys(FIRST, 1000))
    has_history(cluster, 3, 4, 5)
    cluster.coordinator.purge.purge(NAME, 5 * HOUR_MS)
    assert look(cluster) == 5
    cluster.coordinator.purge.purge(SECOND, 4 * HOUR_MS)
    assert look(cluster) == 5
    cluster.coordinator.purge.purge(SECOND, 5 * HOUR_MS)
    assert look(cluster) == 3


@pytest.mark.parametrize("lacks", ["offsets", "late", "truncation", "batch"])
def test_one_whose_topic_has_not_everything_waits_for_batches(cluster: Cluster, lacks: str) -> None:
    policy = {"late": {"policy": "drop"}} if lacks == "late" else {}
    if lacks == "truncation":
        policy = {"truncation": "drop"}
    cluster.receiver("r1", "rs1")
    cluster.define(**policy)
    cluster.client.enable_cube(NAME)
    built(cluster, 3)
    if lacks == "offsets":
        cluster.topics.logs["clicks"][2] = (21, 1000)
    if lacks == "batch":
        cluster.metadata.update_segment(
            NAME,
            SegmentRange(3 * HOUR_MS, 4 * HOUR_MS),
            lambda record: msgspec.structs.replace(record, batch="b1"),
        )
    cluster.metadata.set_replay_from(NAME, "rs1", {0: 70})
    done = filled(cluster, **policy)
    assert (done.fills_from_ms, done.filled_by) == (3 * HOUR_MS, "batch")
    assert cluster.metadata.control(SECOND).first_offsets == {**FIRST, 0: 70}
    reads(cluster, dict.fromkeys(FIRST, 1000))
    has_history(cluster, 3)
    assert look(cluster) == 4


def test_batches_fill_and_what_comes_behind_them_counts_beside_them(cluster: Cluster) -> None:
    cluster.enabled()
    built(cluster, 3, 5)
    cluster.topics.logs["clicks"][2] = (21, 1000)
    cluster.metadata.set_replay_from(NAME, "rs1", {0: 70})
    filled(cluster)
    reads(cluster, dict.fromkeys(FIRST, 1000))
    cluster.metadata.publish_watermark(SECOND, WatermarkRecord(10 * HOUR_MS))
    apply(cluster, "later", 5, 6)
    assert look(cluster) == 4, "there is nothing at four"
    cluster.closed(3, by=50)  # late events of the older one's: the batch has to say more
    plan = planned(cluster, "earlier", 3, 4)
    record = cluster.metadata.segment(NAME, "19700101030000_19700101040000")
    assert record is not None
    (segment,) = plan.segments
    assert segment.is_recorded, "it gets a record, even if the batch has no row of it"
    assert {piece.partition: piece.end for piece in segment.ranges} == record.covered
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    stage_empty(cluster.files, plan, 0)
    with pytest.raises(Refused, match="has changed since batch earlier was planned"):
        cluster.client.apply_batch(SECOND, "earlier")
    assert look(cluster) == 4
    apply(cluster, "again", 3, 4)
    assert look(cluster) == 3


def test_a_batch_stands_for_the_older_history_though_the_revision_has_some(cluster: Cluster) -> None:
    """Of late events that both have merged: those of the older one's history are in the batch already."""
    cluster.enabled()
    built(cluster, 3)
    cluster.topics.logs["clicks"][2] = (21, 1000)
    filled(cluster)
    reads(cluster, dict.fromkeys(FIRST, 1000))
    cluster.metadata.publish_watermark(SECOND, WatermarkRecord(10 * HOUR_MS))
    has_history(cluster, 3)  # up to less than the older one's
    own = cluster.metadata.segment(SECOND, "19700101030000_19700101040000")
    older = cluster.metadata.segment(NAME, "19700101030000_19700101040000")
    assert own is not None
    assert older is not None
    plan = planned(cluster, "b", 3, 4)
    assert {piece.partition: piece.end for piece in plan.segments[0].ranges} == older.covered
    cluster.metadata.update_segment(
        SECOND,
        own.range,
        lambda record: segments.close(record, {p: 50 + p for p in FIRST}, now_ms=0, by="rs1"),
    )
    with pytest.raises(Refused, match="cannot be filled now"):
        planned(cluster, "c", 3, 4)


def planned(cluster: Cluster, batch: str, start: int, end: int) -> BatchSpec:
    source = {"format": "parquet", "path": "of-that-time"}
    plan = cluster.client.plan_batch(
        SECOND, batch, start_ms=start * HOUR_MS, end_ms=end * HOUR_MS, source=source
    )
    return msgspec.json.decode(json.dumps(plan.spec), type=BatchSpec)


def apply(cluster: Cluster, batch: str, start: int, end: int) -> None:
    """Plan a batch, stage and apply it, and build what it says."""
    spec = planned(cluster, batch, start, end)
    stage_empty(cluster.files, spec, 0)
    cluster.client.apply_batch(SECOND, batch)
    for segment in spec.segments:
        record = cluster.metadata.segment(SECOND, segment.segment)
        assert record is not None
        moment = look(cluster)
        assert moment is not None
        assert moment * HOUR_MS >= record.end_ms, "it is not built"
        cluster.metadata.update_segment(SECOND, record.range, _ready)


def _ready(record: SegmentRecord) -> SegmentRecord:
    attempt = BuildAttempt("b", record.version + 1, started_ms=0, location="somewhere")
    return segments.promote(segments.start_build(record, attempt), "b", events=0, now_ms=0)


def test_a_batch_is_of_the_revisions_own_time(cluster: Cluster) -> None:
    cluster.enabled()
    built(cluster, 3)
    filled(cluster)
    cluster.report()
    cluster.metadata.publish_watermark(SECOND, WatermarkRecord(10 * HOUR_MS))
    with pytest.raises(Refused, match="are not of clicks_by_page_r2, but of another revision"):
        planned(cluster, "b", 2, 4)
    assert planned(cluster, "b", 3, 5).start_ms == 3 * HOUR_MS


@pytest.mark.parametrize(
    ("since", "says"), [(-1, "cannot be filled in from"), (9, "cannot be filled in from")]
)
def test_what_cannot_be_filled_is_refused(cluster: Cluster, since: int, says: str) -> None:
    cluster.enabled()
    built(cluster, 3)
    with pytest.raises(Refused, match=says):
        filled(cluster, since=since)
    assert cluster.metadata.cubes() == (NAME,)


def test_a_range_is_chosen_and_ends_with_what_is_purged(cluster: Cluster) -> None:
    cluster.enabled()
    built(cluster, 3, 4, 5)
    assert filled(cluster, since=4, dry_run=True).fills_from_ms == 4 * HOUR_MS
    cluster.client.purge(NAME, 5 * HOUR_MS)
    assert filled(cluster, dry_run=True).fills_from_ms == 5 * HOUR_MS
    with pytest.raises(Refused, match="cannot be filled in from"):
        filled(cluster, since=4)
    cluster.client.purge(NAME, 6 * HOUR_MS)
    nothing = filled(cluster)
    assert (nothing.since_ms, nothing.fills_from_ms) == (6 * HOUR_MS, None)
    assert look(cluster) is None


def test_a_cube_without_history_fills_nothing(cluster: Cluster) -> None:
    policy = {"retention": {"policy": "PURGE", "after_ms": 10 * HOUR_MS}}
    cluster.receiver("r1", "rs1")
    cluster.define(**policy)
    cluster.client.enable_cube(NAME)
    with pytest.raises(Refused, match="cannot be filled in"):
        filled(cluster, **policy)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_broken_commit_moves_the_moment_once(cluster: Cluster, when: Literal["before", "after"]) -> None:
    cluster.enabled()
    built(cluster, 3, 4)
    filled(cluster)
    reads(cluster, dict.fromkeys(FIRST, 1000))
    has_history(cluster, 3, 4)
    left = [when]

    def fault(operations: Sequence[Operation]) -> Literal["before", "after"] | None:
        return left.pop() if left else None

    cluster.ensemble.fault = fault
    assert look(cluster) == 3
    assert not left


def test_a_segment_that_changes_meanwhile_is_looked_at_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is requeued: what its next version holds is not known."""
    cluster.enabled()
    built(cluster, 3, 4)
    filled(cluster)
    reads(cluster, dict.fromkeys(FIRST, 130))
    has_history(cluster, 3, 4)
    commits, changing = cluster.coordinator.metadata.store.commit, [True]

    def commit(operations: Sequence[Operation]) -> None:
        if changing and any(SECOND in str(getattr(each, "path", "")) for each in operations):
            changing.clear()
            cluster.closed(3)
        commits(operations)

    monkeypatch.setattr(cluster.coordinator.metadata.store, "commit", commit)
    assert look(cluster) == 4


def test_the_older_one_ends_where_it_is_read_no_more(cluster: Cluster) -> None:
    cluster.enabled()
    built(cluster, 3, 4)
    filled(cluster)
    reads(cluster, dict.fromkeys(FIRST, 1000))
    has_history(cluster, 3, 4)
    assert look(cluster) == 3
    cluster.client.purge(NAME, 3 * HOUR_MS)
    cluster.coordinator._endings.run(NAME)
    assert cluster.client.cube(NAME).ended
    cluster.coordinator._check((NAME, SECOND))
    assert look(cluster) == 3


def test_one_that_another_follows_reads_on_until_it_is_filled(cluster: Cluster) -> None:
    """It drops late events, and all of its segments behind its moment stand: what fills it is to come."""
    drops = {"late": {"policy": "drop"}}
    cluster.receiver("r1", "rs1")
    cluster.define(**drops)
    cluster.client.enable_cube(NAME)
    built(cluster, 3, 4)
    assert filled(cluster, **drops).filled_by == "batch"
    assert revision(cluster).bounds_ms == (5 * HOUR_MS, None)
    has_history(cluster, 5)
    another = {
        **CUBE,
        **drops,
        **PAGES,
        "measures": [*CUBE["measures"], {"function": "max", "column": "price"}],
    }
    request = AlterRequest(definition=another, table=COUNTRY, new_revision=True)
    assert cluster.alter(NAME, request).since_ms == 6 * HOUR_MS
    endings = cluster.coordinator._endings
    assert endings.run(SECOND) is RevisionState.READING
    assert cluster.metadata.control(SECOND).assignment, "somebody reads what fills it"
    reads(cluster, dict.fromkeys(FIRST, 1000))
    cluster.metadata.publish_watermark(SECOND, WatermarkRecord(10 * HOUR_MS))
    apply(cluster, "four", 4, 5)
    assert look(cluster) == 4
    assert endings.run(SECOND) is RevisionState.READING
    apply(cluster, "three", 3, 4)
    assert look(cluster) == 3
    assert endings.run(SECOND) is RevisionState.ENDED


def test_a_third_revision_is_filled_past_none_and_the_older_ones_are_dropped_in_turn(
    cluster: Cluster,
) -> None:
    third = f"{NAME}_r3"
    cluster.enabled()
    built(cluster, 3, 4)
    filled(cluster)
    reads(cluster, dict.fromkeys(FIRST, 1000))
    has_history(cluster, 3, 4)
    assert look(cluster) == 3
    for hour in (3, 4, 5):
        record = cluster.closed(hour, cube=SECOND)
        cluster.client.promote(SECOND, record.name, cluster.build(record.name, of=SECOND))
    measures = [*CUBE["measures"], {"function": "max", "column": "price"}]
    plan = filled(cluster, measures=measures, dry_run=True)
    assert (plan.since_ms, plan.fills_from_ms, plan.filled_by) == (6 * HOUR_MS, 3 * HOUR_MS, "topic")
    assert filled(cluster, measures=measures).revision == third
    assert look(cluster, third) == 6
    reads(cluster, dict.fromkeys(FIRST, 1000), third)
    has_history(cluster, 4, 5, cube=third)
    assert look(cluster, third) == 4
    assert (look(cluster), revision(cluster).bounds_ms) == (3, (3 * HOUR_MS, 6 * HOUR_MS)), "others stay"
    has_history(cluster, 3, cube=third)
    assert look(cluster, third) == 3

    ends = cluster.coordinator._endings
    assert ends.run(SECOND) is RevisionState.READING, "an event of its time may still come"
    cluster.coordinator.purge.purge(NAME, 3 * HOUR_MS)
    assert ends.run(NAME) is RevisionState.RETIRED
    cluster.clock.advance_ms(GRACE_MS)
    assert cluster.client.retention(NAME).dropped == NAME
    assert cluster.metadata.cubes() == (SECOND, third)

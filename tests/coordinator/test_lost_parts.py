"""Staged parts that are lost or damaged before they are history: uploaded again, and then built."""

from __future__ import annotations

import pytest
from rtolap.base.errors import NotYet, Refused
from rtolap.cubes.format.manifest import MANIFEST_NAME
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.segments import close, lose_parts
from rtolap.model.segment import SegmentRange, SegmentState

from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster


def damage(cluster: Cluster, record: SegmentRecord, how: str) -> None:
    path = record.parts[0].path
    if how == "missing":
        cluster.files.delete_tree(path)
    else:
        data = cluster.files.read(f"{path}/{MANIFEST_NAME}")
        cluster.files.write(f"{path}/{MANIFEST_NAME}", data[:-9])


def stored(cluster: Cluster, record: SegmentRecord) -> SegmentRecord:
    found = cluster.metadata.segment(NAME, record.name)
    assert found is not None
    return found


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_build_that_fails_for_a_lost_part_has_it_uploaded_again(cluster: Cluster, how: str) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    spec = cluster.client.start_build(NAME, record.name)
    damage(cluster, record, how)
    cluster.client.fail_build(NAME, record.name, spec.build_id, "its part cannot be read")
    lost = stored(cluster, record)
    assert (lost.state, lost.parts, lost.build, lost.target) == (
        SegmentState.IMMUTABLE,
        (),
        None,
        record.target,
    )
    assert record.parts[0].path in lost.state_history[-1].note
    with pytest.raises(Refused):
        cluster.client.promote(NAME, record.name, spec.build_id)


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_segment_that_is_requeued_looks_at_its_parts(cluster: Cluster, how: str) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    assert cluster.client.requeue(NAME, record.name).state == "REMOTE_PERSISTED"
    damage(cluster, record, how)
    assert cluster.client.requeue(NAME, record.name).state == "IMMUTABLE"
    assert stored(cluster, record).parts == ()
    assert cluster.client.requeue(NAME, record.name).state == "IMMUTABLE", "a repetition changes nothing"


def test_a_segment_that_was_never_uploaded_has_nothing_to_be_built_from(cluster: Cluster) -> None:
    cluster.enabled()
    window = SegmentRange(2 * HOUR_MS, 3 * HOUR_MS)
    cluster.metadata.update_segment(
        NAME, window, lambda record: close(record, {0: 5, 1: 15, 2: 25, 3: 35}, now_ms=1, by="rs1")
    )
    with pytest.raises(NotYet, match="not uploaded yet"):
        cluster.client.requeue(NAME, window.name)


def test_a_build_that_fails_for_another_reason_keeps_its_parts(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    spec = cluster.client.start_build(NAME, record.name)
    cluster.client.fail_build(NAME, record.name, spec.build_id, "out of memory")
    kept = stored(cluster, record)
    assert (kept.state, kept.parts) == (SegmentState.REMOTE_PERSISTED, record.parts)
    assert kept.build is not None
    cluster.client.requeue(NAME, record.name)
    assert stored(cluster, record).build is None, "requeued: the failed attempt is forgotten"


def test_an_older_attempt_that_fails_takes_no_parts_away(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    older = cluster.client.start_build(NAME, record.name)
    cluster.client.start_build(NAME, record.name)
    damage(cluster, record, "missing")
    cluster.client.fail_build(NAME, record.name, older.build_id, "killed")
    assert stored(cluster, record).state is SegmentState.REMOTE_PERSISTED


def test_parts_that_were_uploaded_again_meanwhile_stay(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    assert lose_parts(record, {"staged/another": "missing"}, now_ms=1, by="a build failed") is record

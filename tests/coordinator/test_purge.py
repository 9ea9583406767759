from __future__ import annotations

import msgspec
import pytest
from rtolap.base.errors import Refused
from rtolap.coordinator.purge import GRACE_MS
from rtolap.metadata import segments
from rtolap.metadata.records import WatermarkRecord
from rtolap.model.segment import SegmentRange

from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster


def folders(cluster: Cluster, root: str) -> list[str]:
    """Of all creations of the cube."""
    found = []
    for cube_id in cluster.files.folders(f"{root}/{NAME}"):
        for name in cluster.files.folders(f"{root}/{NAME}/{cube_id}"):
            of_segment = cluster.files.folders(f"{root}/{NAME}/{cube_id}/{name}")
            found += [f"{name}/{folder}" for folder in of_segment]
    return found


def test_purging_raises_the_horizon_and_never_lowers_it(cluster: Cluster) -> None:
    cluster.enabled()
    old, new = cluster.closed(1), cluster.closed(5)
    result = cluster.client.purge(NAME, 2 * HOUR_MS)
    assert (result.horizon_ms, result.segments) == (2 * HOUR_MS, (old.name,))
    assert cluster.client.purge(NAME, HOUR_MS).horizon_ms == 2 * HOUR_MS
    assert cluster.client.segment(NAME, old.name).state == "PURGED"
    assert cluster.client.segment(NAME, new.name).state == "REMOTE_PERSISTED"


def test_a_purge_whose_leader_was_killed_half_way_is_ended_by_the_next(cluster: Cluster) -> None:
    """Else what it left closed and unbuilt would keep the segments after it waiting."""
    cluster.enabled()
    old, new = cluster.closed(1), cluster.closed(5)
    horizon_ms = 2 * HOUR_MS
    cluster.metadata.update_control(
        NAME, lambda control: msgspec.structs.replace(control, horizon_ms=horizon_ms)
    )
    assert cluster.client.queue().entries[-1].waits_for == old.name
    cluster.coordinator._check((NAME, "dropped_meanwhile"))
    assert cluster.client.segment(NAME, old.name).state == "PURGED"
    [entry] = cluster.client.queue().entries
    assert (entry.segment, entry.waits_for) == (new.name, None)


def test_a_purged_segment_does_not_come_back(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.client.purge(NAME, 2 * HOUR_MS)
    with pytest.raises(Refused, match="purged for ever"):
        cluster.metadata.update_segment(
            NAME,
            SegmentRange(HOUR_MS, 2 * HOUR_MS),
            lambda record: segments.close(record, {0: 5}, now_ms=1, by="rs1"),
        )


def test_retention_goes_by_the_low_watermark(cluster: Cluster) -> None:
    cluster.enabled()
    old = cluster.closed(1)
    assert cluster.client.retention(NAME).segments == ()
    cluster.metadata.publish_watermark(NAME, WatermarkRecord(12 * HOUR_MS - 1))
    assert cluster.client.retention(NAME).segments == ()
    cluster.metadata.publish_watermark(NAME, WatermarkRecord(12 * HOUR_MS))
    assert cluster.client.retention(NAME).segments == (old.name,)


def test_staged_files_go_after_promotion_and_superseded_history_after_the_grace_time(
    cluster: Cluster,
) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    lost = cluster.build(record.name)
    first = cluster.build(record.name)
    of_cube = f"{NAME}/{cluster.metadata.cube_id(NAME)}/{record.name}"
    assert cluster.client.cleanup(NAME).folders == (f"history/{of_cube}/v1-{lost}",)
    assert folders(cluster, "staged") == [f"{record.name}/v1"]
    cluster.client.promote(NAME, record.name, first)
    assert cluster.client.cleanup(NAME).folders == (f"staged/{of_cube}/v1",)
    cluster.closed(2, by=1)
    second = cluster.build(record.name)
    assert cluster.client.cleanup(NAME).folders == ()
    cluster.client.promote(NAME, record.name, second)
    cluster.client.cleanup(NAME)
    old, new = (
        [f"{record.name}/{version}", f"{record.name}/{version}-vectors"]
        for version in (f"v1-{first}", f"v2-{second}")
    )
    assert folders(cluster, "history") == [*old, *new]
    cluster.clock.advance_ms(GRACE_MS)
    cluster.client.cleanup(NAME)
    assert folders(cluster, "history") == new
    assert folders(cluster, "staged") == []


def test_parts_that_are_uploaded_but_not_yet_recorded_stay(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    of_cube = f"{NAME}/{cluster.metadata.cube_id(NAME)}/{record.name}"
    cluster.files.write(f"staged/{of_cube}/v2/rs1-late/manifest.json", b"x")
    cluster.client.cleanup(NAME)
    assert folders(cluster, "staged") == [f"{record.name}/v2"]


def test_a_purged_segment_loses_its_files_and_then_its_record(cluster: Cluster) -> None:
    cluster.enabled()
    record, kept = cluster.closed(2), cluster.closed(5)
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    cluster.client.purge(NAME, 3 * HOUR_MS)
    assert cluster.client.cleanup(NAME).records == ()
    assert len(folders(cluster, "history")) == 2, "a query may still read it: its data and its vectors"
    cluster.clock.advance_ms(GRACE_MS)
    assert cluster.client.cleanup(NAME).records == (record.name,)
    assert folders(cluster, "history") == []
    assert [segment.segment for segment in cluster.client.segments(NAME)] == [kept.name]


def test_a_dropped_cube_leaves_no_files(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    cluster.build(record.name)
    cluster.client.disable_cube(NAME)
    cluster.client.drop_cube(NAME)
    assert folders(cluster, "staged") == folders(cluster, "history") == []
    cluster.define()
    assert cluster.client.segments(NAME) == []

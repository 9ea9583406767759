"""The purge leaves files that snapshots of publications may name, and says what it waits for."""

from __future__ import annotations

import pytest
from rtolap.base.errors import Refused
from rtolap.coordinator.purge import GRACE_MS
from rtolap.metadata.publications import (
    HeldRange,
    PublicationHolds,
    Publications,
    PublicationStatus,
)
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.segment_format.vectors import version_of_folder
from rtolap.model.publication import IcebergCatalog, Publication

from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster

LAKE = Publication(
    name="lake",
    cube=NAME,
    table="olap.clicks",
    catalog=IcebergCatalog(kind="sqlite", address="/nowhere/catalog.db", warehouse="file:///nowhere"),
)


def replaced(cluster: Cluster, hour: int) -> SegmentRecord:
    """A segment whose first version was replaced long ago."""
    cluster.enabled()
    record = cluster.closed(hour)
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    cluster.closed(hour, by=1)
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    cluster.clock.advance_ms(GRACE_MS)
    return record


def hold(cluster: Cluster, *ranges: HeldRange, cube_id: str | None = None) -> Publications:
    records = Publications(cluster.metadata.store)
    if "lake" not in records.declarations():
        records.declare(LAKE)
    present = records.holds("lake")
    of = cluster.metadata.cube_id(NAME) if cube_id is None else cube_id
    records.write_holds("lake", PublicationHolds(of, ranges), present)
    return records


def history(cluster: Cluster) -> list[str]:
    """Return the versions whose data are there."""
    folders = [file.path.split("/")[4] for file in cluster.files.list(f"history/{NAME}")]
    return [folder.partition("-")[0] for folder in folders if version_of_folder(folder) == folder]


def test_a_replaced_version_waits_until_no_snapshot_names_it(cluster: Cluster) -> None:
    record = replaced(cluster, 2)
    records = hold(
        cluster,
        HeldRange(1, record.start_ms, record.end_ms),
        HeldRange(2, record.start_ms, record.end_ms),
    )
    records.write_status("lake", PublicationStatus(looked_ms=1_000_000_000_000))
    result = cluster.client.cleanup(NAME)
    [waiting] = result.waiting
    assert "1 folders wait for publication lake" in waiting
    assert "looked last: 2001-09-09 01:46:40" in waiting
    assert "rtolap publish release lake" in waiting
    assert history(cluster) == ["v1", "v2"]
    hold(cluster, HeldRange(2, record.start_ms, record.end_ms))
    result = cluster.client.cleanup(NAME)
    assert (result.waiting, history(cluster)) == ((), ["v2"])


def test_a_purged_segment_waits_with_its_record(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    hold(cluster, HeldRange(1, 0, 10 * HOUR_MS))
    cluster.client.purge(NAME, 3 * HOUR_MS)
    cluster.clock.advance_ms(GRACE_MS)
    result = cluster.client.cleanup(NAME)
    assert (len(result.waiting), result.records, history(cluster)) == (1, (), ["v1"])
    hold(cluster)
    result = cluster.client.cleanup(NAME)
    assert (result.waiting, result.records, history(cluster)) == ((), (record.name,), [])


def test_given_up_snapshots_hold_nothing(cluster: Cluster) -> None:
    record = replaced(cluster, 2)
    records = hold(cluster, HeldRange(1, record.start_ms, record.end_ms))
    records.release("lake")
    assert cluster.client.cleanup(NAME).waiting == ()
    assert history(cluster) == ["v2"]


def test_holds_of_another_creation_of_the_cube_hold_nothing(cluster: Cluster) -> None:
    record = replaced(cluster, 2)
    hold(cluster, HeldRange(1, record.start_ms, record.end_ms), cube_id="0" * 32)
    assert cluster.client.cleanup(NAME).waiting == ()
    assert history(cluster) == ["v2"]


def test_folders_of_attempts_that_lost_wait_for_nobody(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    lost = cluster.build(record.name)
    won = cluster.build(record.name)
    cluster.client.promote(NAME, record.name, won)
    hold(cluster, HeldRange(1, record.start_ms, record.end_ms))
    result = cluster.client.cleanup(NAME)
    assert result.waiting == ()
    assert [folder for folder in result.folders if folder.startswith("history")] == [
        f"history/{NAME}/{cluster.metadata.cube_id(NAME)}/{record.name}/v1-{lost}"
    ]


def test_holds_are_read_after_the_records(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher that read the record before it was replaced has written its holds before that."""
    record = replaced(cluster, 2)
    records = hold(cluster)
    fresh = cluster.coordinator.purge._views.fresh_creation

    def then_held(cube: str) -> object:
        found = fresh(cube)
        hold(cluster, HeldRange(1, record.start_ms, record.end_ms))
        return found

    monkeypatch.setattr(cluster.coordinator.purge._views, "fresh_creation", then_held)
    result = cluster.client.cleanup(NAME)
    assert records.holds("lake").ranges
    assert len(result.waiting) == 1
    assert history(cluster) == ["v1", "v2"]


def test_a_published_cube_is_not_dropped(cluster: Cluster) -> None:
    cluster.enabled()
    records = hold(cluster)
    cluster.client.disable_cube(NAME)
    with pytest.raises(Refused, match="rtolap publish drop lake"):
        cluster.client.drop_cube(NAME)
    records.start_drop("lake")
    records.end_drop("lake")
    cluster.client.drop_cube(NAME)

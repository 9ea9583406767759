from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rtolap.base.errors import Corrupted, IllegalTransition, NotFound, NotYet, Refused
from rtolap.cubes.format.manifest import CuboidEntry, FileEntry
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.model.build_spec import BuildSpec
from rtolap.model.cube import Cube

from tests.support.cubes.coordinator_harness import CUBE, HOUR_MS, NAME, Cluster


def test_the_queue_is_in_order_of_segments_and_names_what_they_wait_for(cluster: Cluster) -> None:
    cluster.enabled()
    late, early = cluster.closed(5), cluster.closed(2)
    entries = cluster.client.queue().entries
    assert [(entry.segment, entry.waits_for, entry.version) for entry in entries] == [
        (early.name, None, 1),
        (late.name, early.name, 1),
    ]
    assert [entry.building for entry in entries] == [False, False]
    cluster.client.start_build(NAME, early.name)
    assert [entry.building for entry in cluster.client.queue().entries] == [True, False]


def test_cuboids_of_history_are_told_with_their_rows_and_bytes(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2, events=5)
    with pytest.raises(NotFound, match="no version in history"):
        cluster.client.segment_cuboids(NAME, record.name)
    files = [FileEntry(name=f"{number}.parquet", rows=2, bytes=100 + number, sha256="0") for number in (1, 2)]
    small = CuboidEntry("user", ("user",), 2, (files[0],))
    large = CuboidEntry("base", ("user", "page"), 4, tuple(files))
    cluster.client.promote(NAME, record.name, cluster.build(record.name, cuboids=(small, large)))
    found = cluster.client.segment_cuboids(NAME, record.name)
    assert (found.segment, found.version) == (record.name, 1)
    assert [(each.name, each.dimensions, each.rows, each.files, each.bytes) for each in found.cuboids] == [
        ("base", ("user", "page"), 4, 2, 203),
        ("user", ("user",), 2, 1, 101),
    ]


def test_a_look_at_many_cubes_syncs_once_and_leaves_out_what_is_dropped_meanwhile(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.enabled()
    queued = cluster.closed(2)
    others = [f"other_{number}" for number in range(5)]
    for name in others:
        cluster.client.create_cube({**CUBE, "name": name})
    syncs, gone = [], others[3]
    synced, definition = cluster.store.sync, ClusterMetadata.cube

    def sync() -> None:
        syncs.append(1)
        synced()

    def dropped(metadata: ClusterMetadata, name: str) -> Cube:
        if name == gone:
            raise NotFound(f"cube {name} does not exist")
        return definition(metadata, name)

    monkeypatch.setattr(cluster.store, "sync", sync)
    monkeypatch.setattr(ClusterMetadata, "cube", dropped)
    looks: dict[str, Callable[[], list[str]]] = {
        "queue": lambda: [entry.segment for entry in cluster.coordinator.builds.queue().entries],
        "cluster": lambda: [cube.name for cube in cluster.coordinator.cluster().cubes],
    }
    assert looks["queue"]() == [queued.name]
    assert looks["cluster"]() == [NAME, *(name for name in others if name != gone)]
    assert len(syncs) == len(looks)


def test_one_cube_is_looked_at_by_itself(cluster: Cluster) -> None:
    cluster.enabled()
    segment = cluster.closed(2).name
    cluster.client.create_cube({**CUBE, "name": "other"})
    assert [entry.segment for entry in cluster.client.queue(NAME).entries] == [segment]
    assert cluster.client.queue("other").entries == ()
    whole, one = cluster.client.cluster(), cluster.client.cluster("other")
    assert [cube.name for cube in whole.cubes] == [NAME, "other"]
    assert one == whole.model_copy(update={"cubes": whole.cubes[1:]})
    for ask in (cluster.client.queue, cluster.client.cluster):
        with pytest.raises(NotFound, match="missing"):
            ask("missing")


def test_a_build_spec_is_all_that_the_spark_job_needs(cluster: Cluster) -> None:
    import msgspec

    cluster.enabled()
    record = cluster.closed(2)
    spec = cluster.client.start_build(NAME, record.name)
    read = msgspec.json.decode(spec.model_dump_json().encode(), type=BuildSpec)
    assert read.covered == {0: 100, 1: 110, 2: 120, 3: 130}
    assert read.schema.cube.name == NAME
    of_cube = f"{NAME}/{cluster.metadata.cube_id(NAME)}/{record.name}"
    assert read.parts[0].path.startswith(f"staged/{of_cube}/v1/")
    assert read.location == f"history/{of_cube}/v1-{spec.build_id}"
    assert (read.previous_location, read.object_store) == (None, cluster.uri)
    assert read.first_offsets == {0: 0, 1: 10, 2: 20, 3: 30}


def test_a_promoted_build_is_ready_and_promoting_again_changes_nothing(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2, events=5)
    build_id = cluster.build(record.name)
    ready = cluster.client.promote(NAME, record.name, build_id)
    assert (ready.state, ready.version, ready.events, ready.parts) == ("READY", 1, 5, ())
    assert ready.covered == {0: 100, 1: 110, 2: 120, 3: 130}
    assert cluster.client.promote(NAME, record.name, build_id) == ready
    assert cluster.client.queue().entries == ()


def test_a_late_delta_becomes_version_two_on_top_of_version_one(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2, events=5)
    first = cluster.client.promote(NAME, record.name, cluster.build(record.name))
    cluster.closed(2, by=50, events=3)
    spec = cluster.client.start_build(NAME, record.name)
    assert (spec.version, spec.previous_location, spec.previous_covered) == (2, first.location, first.covered)
    ready = cluster.client.promote(NAME, record.name, cluster.build(record.name))
    assert (ready.version, ready.events, ready.covered[0]) == (2, 8, 150)


def test_segments_are_promoted_in_order(cluster: Cluster) -> None:
    cluster.enabled()
    early, late = cluster.closed(2), cluster.closed(5)
    late_build = cluster.build(late.name)
    with pytest.raises(NotYet, match=early.name):
        cluster.client.promote(NAME, late.name, late_build)
    cluster.client.promote(NAME, early.name, cluster.build(early.name))
    assert cluster.client.promote(NAME, late.name, late_build).state == "READY"


def test_only_the_newest_attempt_is_promoted(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    older = cluster.build(record.name)
    newer = cluster.build(record.name)
    with pytest.raises(Refused, match="later attempt"):
        cluster.client.promote(NAME, record.name, older)
    cluster.client.fail_build(NAME, record.name, older, "killed")
    segment = cluster.client.segment(NAME, record.name)
    assert segment.build is not None
    assert segment.build.error is None
    assert cluster.client.promote(NAME, record.name, newer).version == 1
    with pytest.raises(Refused):
        cluster.client.promote(NAME, record.name, older)


def test_a_build_without_a_manifest_is_refused(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    spec = cluster.client.start_build(NAME, record.name)
    with pytest.raises(Refused, match="not finished"):
        cluster.client.promote(NAME, record.name, spec.build_id)


@pytest.mark.parametrize("wrong", [{"covered": {0: 1}}, {"events": 4}, {"events": 6}, {"version": 2}])
def test_a_manifest_that_does_not_fit_the_record_is_not_promoted(
    cluster: Cluster, wrong: dict[str, object]
) -> None:
    cluster.enabled()
    record = cluster.closed(2, events=5)
    build_id = cluster.build(record.name, **wrong)
    with pytest.raises(Corrupted):
        cluster.client.promote(NAME, record.name, build_id)
    assert cluster.client.segment(NAME, record.name).state == "REMOTE_PERSISTED"


def test_a_torn_manifest_is_not_promoted(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    build_id = cluster.build(record.name)
    cube_id = cluster.metadata.cube_id(NAME)
    path = f"history/{NAME}/{cube_id}/{record.name}/v1-{build_id}/manifest.json"
    cluster.files.write(path, cluster.files.read(path)[:-20])
    with pytest.raises(Corrupted, match="checksum"):
        cluster.client.promote(NAME, record.name, build_id)


def test_a_failed_build_is_noted_and_tried_again(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    spec = cluster.client.start_build(NAME, record.name)
    failed = cluster.client.fail_build(NAME, record.name, spec.build_id, "out of memory")
    assert failed.build is not None
    assert failed.build.error == "out of memory"
    assert cluster.client.queue().entries[0].building is False
    assert cluster.client.promote(NAME, record.name, cluster.build(record.name)).version == 1


def test_builds_under_way_are_bounded(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, building_max=1)
    try:
        cluster.enabled()
        first, second = cluster.closed(1), cluster.closed(2)
        cluster.client.start_build(NAME, first.name)
        cluster.client.start_build(NAME, first.name)
        with pytest.raises(NotYet, match="builds under way"):
            cluster.client.start_build(NAME, second.name)
        cluster.clock.advance_ms(7 * HOUR_MS)  # the first attempt never came back
        cluster.client.start_build(NAME, second.name)
    finally:
        cluster.close()


def test_a_ready_segment_is_rebuilt_from_itself(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2, events=5)
    with pytest.raises(NotFound):
        cluster.client.requeue(NAME, "19700101000000_19700101010000")
    first = cluster.client.promote(NAME, record.name, cluster.build(record.name))
    assert cluster.client.requeue(NAME, record.name).state == "REMOTE_PERSISTED"
    assert cluster.client.requeue(NAME, record.name).state == "REMOTE_PERSISTED"
    spec = cluster.client.start_build(NAME, record.name)
    assert (spec.parts, spec.previous_location, spec.covered) == ((), first.location, first.covered)
    ready = cluster.client.promote(NAME, record.name, cluster.build(record.name))
    assert (ready.version, ready.events, ready.covered) == (2, 5, first.covered)


def test_an_active_segment_is_not_built(cluster: Cluster) -> None:
    cluster.enabled()
    with pytest.raises(NotFound):
        cluster.client.start_build(NAME, "19700101000000_19700101010000")


def test_a_purged_segment_is_not_requeued(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    cluster.client.purge(NAME, 3 * HOUR_MS)
    with pytest.raises(IllegalTransition):
        cluster.client.requeue(NAME, record.name)

"""Tests of what is deleted of a dropped cube, however late and by whomever, is nothing of a cube of the same
name."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
from rtolap.base.errors import NotFound, Unavailable
from rtolap.coordinator.purge import GRACE_MS, Purge
from rtolap.cubes.receiver.closing_rules import SegmentClosing
from rtolap.cubes.receiver.core.closing_commits import close_segment
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.metadata.view import SegmentView
from rtolap.model.segment import SegmentRange
from rtolap.object_store.store import ObjectStore

from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster
from tests.support.seeds import so_many


def live_files(cluster: Cluster) -> set[str]:
    """The folders that records of the cube name, which must be there."""
    records = cluster.metadata.segments(NAME).values()
    named = {part.path for record in records for part in record.parts}
    return named | {record.location for record in records if record.location is not None}


def lost_files(cluster: Cluster) -> set[str]:
    return {path for path in live_files(cluster) if not cluster.files.exists(f"{path}/manifest.json")}


def live(cluster: Cluster, *hours: int) -> None:
    """The first hour is built, the others are staged."""
    cluster.enabled()
    records = [cluster.closed(hour) for hour in hours]
    cluster.client.promote(NAME, records[0].name, cluster.build(records[0].name))


def drop(cluster: Cluster) -> None:
    cluster.client.disable_cube(NAME)
    cluster.client.drop_cube(NAME)


def recreate(cluster: Cluster) -> None:
    cluster.define()


def late(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Deletions of whole folders that have not been made yet: their process stands still."""
    pending: list[Callable[[], None]] = []
    delete_tree = ObjectStore.delete_tree

    def stand_still(store: ObjectStore, path: str) -> None:
        pending.append(lambda: delete_tree(store, path))

    monkeypatch.setattr(ObjectStore, "delete_tree", stand_still)
    return pending


def test_a_drop_that_deletes_late_leaves_what_a_cube_of_its_name_has_made_since(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(cluster, 2, 3)
    before = live_files(cluster)
    pending = late(monkeypatch)
    drop(cluster)
    assert pending
    recreate(cluster)
    live(cluster, 2, 3)
    for delete in pending:
        delete()
    assert len(live_files(cluster)) == 2
    assert not lost_files(cluster)
    assert not [path for path in before if cluster.files.exists(path)], "what was dropped is gone"


@pytest.mark.parametrize("seed", range(so_many(12)))
def test_no_deletion_of_one_creation_hits_another_in_any_order(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Drops, cleanups and purges stand still before they delete; cubes of the name come and go meanwhile."""
    random_ = random.Random(seed)
    pending = late(monkeypatch)
    live(cluster, 1, 2)
    creations = 1
    for _ in range(40):
        match random_.choice(("drop", "cleanup", "purge", "live", "delete", "delete", "time")):
            case "drop":
                drop(cluster)
                recreate(cluster)
                live(cluster, 1, 2)
                creations += 1
            case "cleanup":
                cluster.client.cleanup(NAME)
            case "purge":
                cluster.client.purge(NAME, random_.choice((1, 2)) * HOUR_MS)
            case "live":
                record = cluster.metadata.segment(NAME, SegmentRange(2 * HOUR_MS, 3 * HOUR_MS).name)
                if record is not None and record.state == "REMOTE_PERSISTED":
                    cluster.build(record.name)  # an attempt that nobody promotes
            case "delete":
                if pending:
                    pending.pop(random_.randrange(len(pending)))()
            case "time":
                cluster.clock.advance_ms(GRACE_MS)
        assert not wrongly_lost(cluster)
    for delete in pending:
        delete()
    assert not wrongly_lost(cluster)
    assert creations > 1


def wrongly_lost(cluster: Cluster) -> set[str]:
    """Files of segments that are neither purged nor promoted beyond them."""
    records = [r for r in cluster.metadata.segments(NAME).values() if r.state != "PURGED"]
    needed = {part.path for r in records if r.state == "REMOTE_PERSISTED" for part in r.parts}
    needed |= {r.location for r in records if r.location is not None}
    return {path for path in needed if not cluster.files.exists(f"{path}/manifest.json")}


@pytest.mark.parametrize("step", ["folders_of", "drop_cube", "forget", "delete_all"])
def test_a_drop_that_crashes_before_any_step_is_finished_by_its_repetition(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    live(cluster, 2, 3)
    cube_id = cluster.metadata.cube_id(NAME)
    cluster.client.disable_cube(NAME)
    with monkeypatch.context() as patch:

        def crash(*args: object, **kwargs: object) -> None:
            raise Unavailable("the process was killed")

        owner: object = {
            "folders_of": Purge,
            "delete_all": Purge,
            "drop_cube": ClusterMetadata,
            "forget": type(cluster.coordinator.heartbeats),
        }[step]
        patch.setattr(owner, step, crash)
        with pytest.raises(Unavailable):
            cluster.coordinator.cubes.drop_cube(NAME)
    if step in ("folders_of", "drop_cube"):
        cluster.client.drop_cube(NAME)
    else:
        with pytest.raises(NotFound):
            cluster.client.drop_cube(NAME)
    recreate(cluster)
    live(cluster, 2, 3)
    cluster.client.cleanup(NAME)
    assert not lost_files(cluster)
    for root in ("staged", "history"):
        assert cube_id not in cluster.files.folders(f"{root}/{NAME}"), "what a crash left is cleaned up"


def test_a_drop_whose_records_are_half_removed_is_finished_by_its_repetition(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(cluster, 1, 2, 3)
    cluster.client.disable_cube(NAME)
    monkeypatch.setattr("rtolap.metadata.definitions.DELETE_BATCH", 1)
    commit, left = cluster.store.commit, [2]

    def until_killed(operations: object) -> None:
        if not left[0]:
            raise Unavailable("the process was killed")
        left[0] -= 1
        commit(operations)  # type: ignore[arg-type]

    metadata = ClusterMetadata(cluster.store, cluster.clock)
    with monkeypatch.context() as patch:
        patch.setattr(cluster.store, "commit", until_killed)
        with pytest.raises(Unavailable):
            metadata.drop_cube(NAME, metadata.cube_id(NAME))
    assert len(cluster.metadata.segments(NAME)) == 1
    cluster.client.drop_cube(NAME)
    assert cluster.client.cubes() == []
    assert not cluster.files.folders(f"staged/{NAME}")


def test_a_drop_goes_on_with_its_own_creation_only(cluster: Cluster) -> None:
    """Another request has dropped it, and a cube of the name stands, before the first one goes on."""
    live(cluster, 2)
    cube_id = cluster.metadata.cube_id(NAME)
    drop(cluster)
    recreate(cluster)
    cluster.enabled()
    record = cluster.closed(2)
    cluster.client.disable_cube(NAME)
    with pytest.raises(NotFound, match="dropped by somebody else"):
        cluster.metadata.drop_cube(NAME, cube_id)
    assert cluster.metadata.segment(NAME, record.name) == record


def test_folders_without_an_id_are_read_cleaned_up_and_dropped(cluster: Cluster) -> None:
    """A cluster that is upgraded in place has them."""
    cluster.enabled()
    record = cluster.closed(2)
    (part,) = record.parts
    older = part.path.replace(f"/{cluster.metadata.cube_id(NAME)}/", "/")
    cluster.files.write(f"{older}/manifest.json", cluster.files.read(f"{part.path}/manifest.json"))
    cluster.files.delete_tree(part.path)
    moved = msgspec.structs.replace(part, path=older)
    cluster.metadata.update_segment(
        NAME, record.range, lambda found: msgspec.structs.replace(found, parts=(moved,))
    )
    spec = cluster.client.start_build(NAME, record.name)
    assert [one.path for one in spec.parts] == [older]
    assert cluster.client.cleanup(NAME).folders == ()
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    assert older.rpartition("/")[0] in cluster.client.cleanup(NAME).folders
    cluster.files.write(f"history/{NAME}/{record.name}/v1-of_before/manifest.json", b"x")
    drop(cluster)
    assert not cluster.files.list(f"history/{NAME}")
    assert not cluster.files.list(f"staged/{NAME}")


# -- receivers of the cube before --


def test_a_view_of_one_creation_shows_nothing_of_another(cluster: Cluster) -> None:
    live(cluster, 2)
    with SegmentView(cluster.metadata, NAME, cluster.metadata.cube_id(NAME)) as view:
        assert view.records()
        drop(cluster)
        recreate(cluster)
        live(cluster, 2)
        view.refresh()
        assert view.snapshot() == (CubeControl(), {})
        assert view.identified()[0] == ""


@pytest.mark.parametrize("work", ["close", "part", "replay_from", "horizon", "record"])
def test_late_work_of_one_creation_changes_nothing_of_another(cluster: Cluster, work: str) -> None:
    live(cluster, 2)
    old = cluster.metadata.cube_id(NAME)
    drop(cluster)
    recreate(cluster)
    live(cluster, 2)
    metadata, window = cluster.metadata, SegmentRange(5 * HOUR_MS, 6 * HOUR_MS)

    def some_part(record: SegmentRecord) -> SegmentRecord:
        return segments.close(record, {0: 9}, now_ms=1, by="a receiver of the cube before")

    cluster.client.purge(NAME, 3 * HOUR_MS)
    works: dict[str, Callable[[], object]] = {
        "close": lambda: close_segment(
            *(metadata, metadata.schema(NAME), SegmentClosing(window.start_ms, {0: 7}, "the watermark")),
            by="r1",
            cube_id=old,
        ),
        "part": lambda: metadata.update_segment(NAME, window, some_part, cube_id=old),
        "replay_from": lambda: metadata.set_replay_from(NAME, "rs1", {0: 1_000}, cube_id=old),
        "horizon": lambda: metadata.update_control(
            NAME, lambda control: msgspec.structs.replace(control, horizon_ms=9 * HOUR_MS), cube_id=old
        ),
        "record": lambda: metadata.remove_segment(
            NAME, SegmentRange(2 * HOUR_MS, 3 * HOUR_MS).name, cube_id=old
        ),
    }
    state = (metadata.segments(NAME), metadata.control(NAME), metadata.replay_from(NAME))
    with pytest.raises(NotFound, match="dropped and recreated"):
        works[work]()
    assert state == (metadata.segments(NAME), metadata.control(NAME), metadata.replay_from(NAME))

"""The disk cache of history: what is placed, what goes, what is read from where, and what a crash leaves."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import DefinitionError, IllegalTransition, NotFound, Unavailable
from rtolap.base.settings import Settings
from rtolap.base.transitions import step
from rtolap.cubes.format.history import write_manifest
from rtolap.object_store.store import open_store
from rtolap.query.history_cache.copy_rate import CopyRate
from rtolap.query.history_cache.folder import MARKER, CacheFolder
from rtolap.query.history_cache.report import report
from rtolap.query.history_cache.states import (
    FILE_TRANSITIONS,
    Condition,
    CopyFailure,
    Eviction,
    FileEvent,
    FileState,
)
from rtolap.query.run import open_cache

from tests.support.query.cache_world import CacheWorld, Crash, states
from tests.support.twins.clock import ManualClock


@pytest.fixture
def world(tmp_path: Path) -> CacheWorld:
    return CacheWorld(tmp_path, 1)


def data_files(paths: set[str]) -> list[str]:
    return sorted("/".join(path.split("/")[1:3] + path.split("/")[4:]) for path in paths if "part" in path)


def test_ready_versions_are_copied_newest_first_whichever_cube(world: CacheWorld) -> None:
    for hour in (3, 9, 5):
        world.publish("a", hour)
    world.publish("b", 6)
    order = []
    world.clock.advance_ms(2_000)
    while world.keeper.round():
        order += [path for path in world.cached() if path not in order and "part" in path]
    assert [path.split("/")[1:3] for path in order] == [
        ["a", "19700101090000_19700101100000"],
        ["b", "19700101060000_19700101090000"],
        ["a", "19700101050000_19700101060000"],
        ["a", "19700101030000_19700101040000"],
    ]
    assert world.keeper.condition is Condition.PLACED
    assert states(world) == {"CACHED": 8}


def test_what_has_a_copy_is_read_without_a_request_to_the_store(world: CacheWorld) -> None:
    record = world.publish("a", 3, [[500, 300], [40]])
    world.settle()
    world.remote.down, before = True, world.remote.requests
    found, stats = world.read_files(record, 0)
    assert found == [world.contents[f"{record.location}/c0/part-{part}.parquet"] for part in (0, 1)]
    assert (stats.files_cached, stats.files_remote) == (2, 0)
    assert world.remote.requests == before


@pytest.mark.parametrize("creation", ["", "0" * 32])
def test_a_restart_reads_what_is_on_the_disk_and_asks_the_store_for_nothing(
    world: CacheWorld, creation: str
) -> None:
    world.creation = creation
    record = world.publish("a", 3, [[500, 300]])
    world.settle()
    world.kill()
    world.remote.down, before = True, world.remote.requests
    world.begin()
    world.settle()
    assert world.keeper.condition is Condition.PLACED
    assert world.read_files(record, 0)[1].files_cached == 2
    assert world.remote.requests == before


def test_a_merged_set_takes_the_place_of_its_members_and_goes_when_it_is_not_whole(
    world: CacheWorld,
) -> None:
    records = [world.publish("a", hour, [[100], [300]]) for hour in range(3)]
    world.settle()
    assert len(world.cached()) == 9
    merged = world.merge(records, 400)
    world.settle()
    of_set = {f"{merged.location}/manifest.json", f"{merged.location}/c0/part-0.parquet"}
    assert world.cached() == of_set
    world.kill()
    world.remote.down, before = True, world.remote.requests
    world.begin()
    world.settle()
    assert world.cached() == of_set
    assert world.remote.requests == before
    world.remote.down = False
    replaced = world.publish("a", 1, [[100], [300]])
    world.settle()
    folders = {
        path.rsplit("/", 2)[0] if "part" in path else path.rsplit("/", 1)[0] for path in world.cached()
    }
    assert folders == {records[0].location, replaced.location, records[2].location}
    assert len(world.cached()) == 3 + 2 * 2, "members by themselves are read from their bases"


def test_reading_old_history_places_nothing(world: CacheWorld) -> None:
    for hour in range(30):
        world.publish("a", hour, [[1_000]])
    world.settle()
    before = world.cached()
    old = world.ready()[0]
    operations = world.disk.operations
    for _ in range(5):
        assert world.read_files(old, 0)[1].files_remote == 1
        world.settle()
    assert world.cached() == before
    assert world.disk.operations == operations


def test_the_oldest_segments_go_when_the_budget_is_reached(world: CacheWorld) -> None:
    for hour in range(12):
        world.publish("a", hour, [[2_000]])
        world.settle()
        assert world.cached() == world.expected()
    assert data_files(world.cached()) == [
        f"a/19700101{hour:02}0000_19700101{hour + 1:02}0000/c0/part-0.parquet" for hour in range(4, 12)
    ]
    assert world.cache.evicted[Eviction.AGE] >= 4
    assert world.disk.largest_bytes <= world.bytes_max


def test_late_data_of_an_old_segment_does_not_displace_newer_segments(world: CacheWorld) -> None:
    for hour in range(12):
        world.publish("a", hour, [[2_000]])
    world.settle()
    before = world.cached()
    world.publish("a", 1, [[2_000]])
    world.settle()
    assert world.cached() == before


def test_small_cuboids_come_before_the_base_where_not_all_fits(world: CacheWorld) -> None:
    record = world.publish("a", 1, [[19_000], [600]])
    world.settle()
    assert data_files(world.cached()) == [f"a/{record.name}/c1/part-0.parquet"]
    assert world.read_files(record, 1)[1].files_cached == 1


def test_a_file_larger_than_the_budget_is_passed_over(world: CacheWorld) -> None:
    world.publish("a", 9, [[30_000]])
    record = world.publish("a", 1, [[600]])
    world.settle()
    assert data_files(world.cached()) == [f"a/{record.name}/c0/part-0.parquet"]


def test_a_superseded_version_goes_and_the_new_one_takes_its_place(world: CacheWorld) -> None:
    old = world.publish("a", 1)
    world.settle()
    new = world.publish("a", 1)
    world.clock.advance_ms(2_000)
    world.keeper.round()
    assert not any(path.startswith(f"{old.location}/") for path in world.cached())
    assert world.cache.evicted[Eviction.REPLACED] == 2
    world.settle()
    assert world.read_files(new, 0)[1].files_cached == 1


def test_a_purged_version_is_not_answered_from_its_copy(world: CacheWorld) -> None:
    record = world.publish("a", 1)
    world.settle()
    world.purge(record)
    world.settle()
    assert world.cached() == set()
    world.files = type(world.files)(world.store, world.cache)  # remembers no manifest
    with pytest.raises(Exception, match="missing"):
        world.read_files(record, 0)


def test_segments_behind_the_horizon_go(world: CacheWorld) -> None:
    for hour in (1, 2, 3):
        world.publish("a", hour)
    world.settle()
    world.controls["a"] = msgspec.structs.replace(world.controls["a"], horizon_ms=3 * 3_600_000)
    world.settle()
    assert data_files(world.cached()) == ["a/19700101030000_19700101040000/c0/part-0.parquet"]


def test_a_dropped_cube_goes_from_the_disk(world: CacheWorld) -> None:
    world.publish("a", 1)
    world.publish("b", 1)
    world.settle()
    del world.records["a"]
    world.settle()
    assert {path.split("/")[1] for path in world.cached()} == {"b"}


def test_a_copy_that_is_being_read_stays_until_the_end_and_counts(world: CacheWorld) -> None:
    record = world.publish("a", 1, [[9_000]])
    world.settle()
    seen = []

    def newer_ones_come() -> None:
        for hour in (5, 6):
            world.publish("a", hour, [[9_000]])
        world.settle()
        seen.append((states(world), world.keeper.condition, len(data_files(world.cached()))))

    found, stats = world.read_files(record, 0, newer_ones_come)
    assert found == [world.contents[f"{record.location}/c0/part-0.parquet"]]
    assert stats.files_cached == 1
    assert seen == [({"CACHED": 4, "LEAVING": 1}, Condition.WAITING, 2)]
    world.settle()
    assert world.cached() == world.expected()


def test_who_begins_to_read_what_is_leaving_reads_the_store(world: CacheWorld) -> None:
    record = world.publish("a", 1)
    world.settle()
    (path,) = (path for path in world.cached() if "part" in path)
    with world.cache.leases([path]):
        world.cache.evict(path, Eviction.AGE)
        assert world.read_files(record, 0)[1].files_remote == 1
        assert not world.cache.sweep()
    assert world.cache.sweep()


@pytest.mark.parametrize("damage", ["truncated", "one bit", "gone", "longer"])
def test_a_damaged_copy_is_found_and_the_store_is_read(world: CacheWorld, damage: str) -> None:
    record = world.publish("a", 1, [[500, 400]])
    world.settle()
    world.read_files(record, 0)
    copy = world.root / "files" / f"{record.location}/c0/part-1.parquet"
    data = copy.read_bytes()
    match damage:
        case "truncated":
            copy.write_bytes(data[:-1])
        case "longer":
            copy.write_bytes(data + b"x")
        case "one bit":
            copy.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case _:
            copy.unlink()
    found, stats = world.read_files(record, 0)
    assert b"".join(found) == b"".join(
        world.contents[f"{record.location}/c0/part-{part}.parquet"] for part in (0, 1)
    )
    assert (stats.files_cached, stats.files_remote) == (1, 1)
    assert world.cache.evicted[Eviction.DAMAGED] == 1
    world.settle()
    assert world.read_files(record, 0)[1].files_cached == 2, "it was copied again"


def test_damage_that_shows_only_while_reading_is_read_again_from_the_store(world: CacheWorld) -> None:
    record = world.publish("a", 1, [[500]])
    world.settle()
    copy = world.root / "files" / f"{record.location}/c0/part-0.parquet"
    times = []

    def breaks() -> None:
        times.append(1)
        if len(times) == 1:
            copy.write_bytes(b"\0" * 500)
            raise OSError("input/output error")

    found, stats = world.read_files(record, 0, breaks)
    assert found == [world.contents[f"{record.location}/c0/part-0.parquet"]]
    assert (len(times), stats.files_cached, stats.files_remote) == (2, 0, 1)
    assert world.cache.evicted[Eviction.DAMAGED] == 1


def test_bytes_of_the_store_that_are_not_the_manifests_are_never_a_copy(world: CacheWorld) -> None:
    record = world.publish("a", 1, [[500]])
    path = f"{record.location}/c0/part-0.parquet"
    world.plain.write(path, b"\0" * 500)
    world.settle()
    assert not any("part" in path for path in world.cached())
    assert world.keeper.failures[CopyFailure.DAMAGED] >= 1
    world.plain.write(path, world.contents[path] + b"more")
    world.settle()
    assert not any("part" in path for path in world.cached())
    world.plain.write(path, world.contents[path])
    world.settle()
    assert path in world.cached(), "it is tried again"


def test_a_name_that_leaves_the_folder_is_refused(world: CacheWorld) -> None:
    record = world.publish("a", 1, [[10]])
    assert record.location is not None
    manifest = world.manifests[record.location]
    (cuboid,) = manifest.cuboids
    evil = msgspec.structs.replace(cuboid.files[0], name="../../../../../escaped")
    cuboids = (msgspec.structs.replace(cuboid, files=(evil,)),)
    write_manifest(world.plain, record.location, msgspec.structs.replace(manifest, cuboids=cuboids))
    other = world.publish("a", 0)
    world.settle()
    assert {path.split("/")[2] for path in world.cached()} == {other.name}
    assert world.keeper.failures[CopyFailure.REFUSED] >= 1


def test_a_manifest_of_another_version_is_not_placed(world: CacheWorld) -> None:
    record = world.publish("a", 1)
    other = world.publish("a", 2)
    assert record.location is not None
    assert other.location is not None
    write_manifest(world.plain, record.location, world.manifests[other.location])
    world.settle()
    assert {path.split("/")[2] for path in world.cached()} == {other.name}


def test_a_full_disk_stops_placing_and_nothing_else(world: CacheWorld) -> None:
    first = world.publish("a", 5)
    world.settle()
    second = world.publish("a", 6, [[3_000]])
    world.disk.room = 1_000
    world.settle()
    assert world.keeper.condition is Condition.DISK_FULL
    assert world.keeper.failures[CopyFailure.DISK_FULL] >= 1
    assert not any(path.endswith(".rtolap-tmp") for path in world.cached())
    assert world.read_files(first, 0)[1].files_cached == 1
    assert world.read_files(second, 0)[1].files_remote == 1
    world.disk.room = None
    world.settle()
    assert world.keeper.condition is Condition.PLACED
    assert world.read_files(second, 0)[1].files_cached == 1


def test_a_disk_that_fails_is_told_apart(world: CacheWorld) -> None:
    world.publish("a", 5)
    world.disk.failing = True
    world.settle()
    assert world.keeper.condition is Condition.DISK_FAILED
    world.disk.failing = False
    world.settle()
    assert world.keeper.condition is Condition.PLACED


def test_a_store_that_is_away_leaves_what_is_on_the_disk(world: CacheWorld) -> None:
    record = world.publish("a", 5)
    world.settle()
    newer = world.publish("a", 6)
    world.remote.down = True
    world.settle()
    assert world.keeper.condition is Condition.STORE_UNAVAILABLE
    assert world.read_files(record, 0)[1].files_cached == 1
    with pytest.raises(Unavailable):
        world.read_files(newer, 0)
    world.remote.down = False
    world.settle()
    assert world.read_files(newer, 0)[1].files_cached == 1


def test_a_kill_at_any_step_leaves_no_half_file_that_counts(tmp_path: Path) -> None:
    at = killed = 0
    while True:
        at += 1
        world = CacheWorld(tmp_path / str(at), 1, bytes_max=6_000)
        for hour in range(3):
            world.publish("a", hour, [[700], [300, 200]])
        world.settle()
        world.publish("a", 3, [[2_500], [300, 200]])  # evicts
        world.disk.die_at = world.disk.operations + at
        try:
            world.settle()
        except Crash:
            killed += 1
        else:
            break
        world.kill()
        world.begin()
        world.watch()
        for record in world.ready():
            for cuboid in (0, 1):
                found, _ = world.read_files(record, cuboid)
                for part, data in enumerate(found):
                    assert data == world.contents[f"{record.location}/c{cuboid}/part-{part}.parquet"]
        world.settle()
        assert world.cached() == world.expected()
        world.kill()
    assert killed > 15


def test_the_scan_removes_what_is_not_wanted(world: CacheWorld) -> None:
    record = world.publish("a", 5, [[100, 100]])
    world.settle()
    world.kill()
    files = world.root / "files"
    whole = world.cached()
    (files / f"{record.location}/c0/part-0.parquet.rtolap-tmp").write_bytes(b"half")
    (files / f"{record.location}/c0/part-9.parquet").write_bytes(b"nobody names it")
    (files / "history/a/x").mkdir()
    (files / "history/a/x/left").write_bytes(b"no manifest")
    (files / f"{record.location}/c0/part-1.parquet").write_bytes(b"short")
    world.remote.down = True
    world.begin()
    world.settle()
    assert world.cached() == whole - {f"{record.location}/c0/part-1.parquet"}
    assert not (files / "history/a/x").exists()


def test_a_smaller_budget_is_kept_from_the_start_on(world: CacheWorld) -> None:
    for hour in range(5):
        world.publish("a", hour, [[2_000]])
    world.settle()
    world.kill()
    world.bytes_max = 5_000
    world.begin()
    world.settle()
    assert world.cached() == world.expected()


def test_one_process_has_the_folder_and_the_next_one_takes_it_over(world: CacheWorld) -> None:
    record = world.publish("a", 5)
    world.settle()
    first = world.keeper
    world.begin()
    world.settle()
    assert world.keeper.condition is Condition.TAKEN
    assert world.read_files(record, 0)[1].files_remote == 1
    first.close()
    world.settle()
    assert world.keeper.condition is Condition.PLACED
    assert world.read_files(record, 0)[1].files_cached == 1


def test_a_folder_that_holds_other_things_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(DefinitionError, match="letters"):
        CacheFolder(tmp_path)
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("place", ["store", "store/history/cache", "."])
def test_a_folder_in_or_around_the_object_store_is_not_taken(tmp_path: Path, place: str) -> None:
    store = open_store((tmp_path / "store").as_uri())
    with pytest.raises(DefinitionError, match="in one folder"):
        open_cache(Settings(history_cache_dir=tmp_path / place), store)
    assert open_cache(Settings(), store) is None
    assert open_cache(Settings(history_cache_dir=tmp_path / "cache"), store) is not None


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = open_store((tmp_path / "store").as_uri())
    with pytest.raises(DefinitionError, match="cannot be used"):
        open_cache(Settings(history_cache_dir=tmp_path / "file" / "cache"), store)


def test_copying_stays_below_its_rate() -> None:
    clock, waited = ManualClock(0), []

    def pause(wait_s: float) -> None:
        waited.append(wait_s)
        clock.advance_ms(round(wait_s * 1000))

    rate = CopyRate(1_000, clock, pause)
    for _ in range(10):
        rate.spend(500)
    assert clock.monotonic_s() == pytest.approx(5)
    clock.advance_ms(60_000)
    rate.spend(500)
    assert waited[-1] == pytest.approx(0.5), "rest saves nothing up"


def test_a_file_has_one_clear_state() -> None:
    for state in FileState:
        assert any(state is begins for begins, _ in FILE_TRANSITIONS)
    with pytest.raises(IllegalTransition):
        step(FILE_TRANSITIONS, FileState.REMOTE, FileEvent.COPIED, subject="a file")
    with pytest.raises(IllegalTransition):
        step(FILE_TRANSITIONS, FileState.CACHED, FileEvent.COPY, subject="a file")


def test_a_version_whose_files_are_gone_is_left_out(world: CacheWorld) -> None:
    record = world.publish("a", 5)
    assert record.location is not None
    world.plain.delete(f"{record.location}/manifest.json")
    other = world.publish("a", 4)
    world.settle()
    assert {path.split("/")[2] for path in world.cached()} == {other.name}
    assert world.keeper.failures[CopyFailure.MISSING] >= 1
    with pytest.raises(NotFound):
        world.plain.read(f"{record.location}/manifest.json")


def test_the_report_says_how_far_back_all_is_on_the_disk(world: CacheWorld) -> None:
    assert report(world.keeper, 10).state == "STARTING"
    for hour in range(12):
        world.publish("a", hour, [[2_000], [100]])
    world.settle()
    found = report(world.keeper, 9)
    states = {version.segment[8:10]: version.state for version in found.versions}
    assert states == {f"{hour:02}": "CACHED" for hour in range(5, 12)} | {"04": "PARTLY", "03": "REMOTE"}
    assert found.complete_from_ms == 5 * 3_600_000
    assert (found.state, found.folder) == ("PLACED", str(world.root))
    assert sum(version.cached_bytes for version in found.versions) == found.cached_bytes <= world.bytes_max
    newest = found.versions[0]
    assert (newest.cube, newest.version, newest.cached_files, newest.files) == ("a", 1, 3, 3)
    assert newest.cached_bytes == newest.bytes


def test_the_report_of_a_cache_that_holds_everything_has_no_beginning(world: CacheWorld) -> None:
    world.publish("a", 1)
    world.settle()
    assert report(world.keeper, 0).complete_from_ms is None
    assert report(world.keeper, 0).versions == ()

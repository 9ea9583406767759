from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Literal

import msgspec
import pytest
from rtolap.base.errors import CommitUnknown, DefinitionError, NotFound, Refused
from rtolap.metadata import paths, segments
from rtolap.metadata.change_log import CHANGES_MAX
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import ChangeLog, SegmentRecord, WatermarkRecord
from rtolap.metadata.updates import read
from rtolap.metadata.view import SegmentView
from rtolap.model.cube import Cube
from rtolap.model.segment import SegmentRange, SegmentState

from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

CUBE = Cube(name="c", table="t", dimensions=("d",))


def window(number: int) -> SegmentRange:
    return SegmentRange(number * 1000, (number + 1) * 1000)


def closed_at(offset: int, partition: int = 0):  # type: ignore[no-untyped-def]
    return lambda record: segments.close(record, {partition: offset}, now_ms=1, by="test")


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    return MemoryEnsemble()


@pytest.fixture
def metadata(ensemble: MemoryEnsemble) -> Iterator[ClusterMetadata]:
    store = MemoryStore(ensemble)
    metadata = ClusterMetadata(store, ManualClock(1))
    metadata.create_cube(CUBE)
    yield metadata
    store.close()


def change_log(metadata: ClusterMetadata) -> ChangeLog:
    log = read(metadata.store, paths.cube_changes("c"), ChangeLog)
    assert log is not None
    return log


def test_a_segment_and_its_entry_in_the_change_log_are_one_commit(metadata: ClusterMetadata) -> None:
    record = metadata.update_segment("c", window(1), closed_at(5))
    assert metadata.segment("c", window(1).name) == record
    assert change_log(metadata).recent == ((1, window(1).name),)


def test_an_unchanged_segment_is_not_written(metadata: ClusterMetadata) -> None:
    assert metadata.update_segment("c", window(1), lambda record: record).state is SegmentState.ACTIVE
    assert metadata.segment("c", window(1).name) is None
    metadata.update_segment("c", window(1), closed_at(5))
    again = metadata.update_segment("c", window(1), closed_at(9))
    assert again.target == {0: 5}, "whoever persisted first decides"
    assert change_log(metadata).sequence == 1


def test_a_refused_change_writes_nothing(metadata: ClusterMetadata) -> None:
    def refuse(record: SegmentRecord) -> SegmentRecord:
        raise Refused("no")

    with pytest.raises(Refused):
        metadata.update_segment("c", window(1), refuse)
    assert change_log(metadata).sequence == 0


def test_segments_of_an_unknown_cube_are_not_made(metadata: ClusterMetadata) -> None:
    with pytest.raises(NotFound):
        metadata.update_segment("nothing", window(1), closed_at(5))
    assert metadata.store.children("/cubes") == ("c",)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_unknown_commit_is_read_back(
    metadata: ClusterMetadata, ensemble: MemoryEnsemble, when: Literal["before", "after"]
) -> None:
    faults: list[Literal["before", "after"]] = [when, when]
    ensemble.fault = lambda _: faults.pop() if faults else None
    record = metadata.update_segment("c", window(1), closed_at(5))
    assert (record.target, len(record.state_history)) == ({0: 5}, 1)
    assert change_log(metadata).sequence == 1


def test_a_store_that_never_answers_ends_the_patience(
    metadata: ClusterMetadata, ensemble: MemoryEnsemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rtolap.metadata.updates.ATTEMPTS_MAX", 3)
    ensemble.fault = lambda _: "before"
    with pytest.raises(CommitUnknown):
        metadata.update_segment("c", window(1), closed_at(5))


def test_writers_at_the_same_time_all_get_through(
    metadata: ClusterMetadata, ensemble: MemoryEnsemble
) -> None:
    stores = [MemoryStore(ensemble) for _ in range(4)]

    def write(store: MemoryStore, partition: int) -> None:
        mine = ClusterMetadata(store, ManualClock(1))
        for number in range(10):
            mine.update_segment("c", window(number), closed_at(number, partition))

    threads = [threading.Thread(target=write, args=(store, p)) for p, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for store in stores:
        store.close()
    found = metadata.segments("c")
    assert [record.target for record in found.values()] == [dict.fromkeys(range(4), n) for n in range(10)]
    assert change_log(metadata).sequence == 40


def test_names_that_would_leave_their_place_are_refused(metadata: ClusterMetadata) -> None:
    for name in ("../x", "a/b", "", ".", "é", "x" * 300):
        with pytest.raises(DefinitionError):
            metadata.control(name)


def test_a_dropped_cube_leaves_nothing_and_late_writers_bring_nothing_back(
    metadata: ClusterMetadata,
) -> None:
    metadata.update_segment("c", window(1), closed_at(5))
    metadata.set_replay_from("c", "rs1", {0: 5})
    metadata.publish_watermark("c", WatermarkRecord(7))
    metadata.drop_cube("c", metadata.cube_id("c"))
    for late in (
        lambda: metadata.set_replay_from("c", "rs1", {0: 6}),
        lambda: metadata.publish_watermark("c", WatermarkRecord(8)),
        lambda: metadata.update_segment("c", window(1), closed_at(5)),
    ):
        with pytest.raises(NotFound):
            late()
    assert metadata.store.children("/cubes") == ()


def test_a_live_receiver_replaces_what_its_former_self_left(
    metadata: ClusterMetadata, ensemble: MemoryEnsemble
) -> None:
    former = MemoryStore(ensemble)
    ClusterMetadata(former, ManualClock(1)).announce_live("r1", "first")
    metadata.announce_live("r1", "second")
    former.close()
    assert metadata.live_receivers() == ("r1",), "its own node does not go with the former session"


def test_a_view_follows_changes(metadata: ClusterMetadata, ensemble: MemoryEnsemble) -> None:
    store = MemoryStore(ensemble)
    with SegmentView(ClusterMetadata(store, ManualClock(1)), "c") as view:
        metadata.update_segment("c", window(2), closed_at(5))
        metadata.update_segment("c", window(1), closed_at(5))
        assert view.wait_for(lambda _, records: len(records) == 2, 10)
        assert list(view.records()) == [window(1).name, window(2).name]
        metadata.update_control("c", lambda control: msgspec.structs.replace(control, horizon_ms=2000))
        assert view.wait_for(lambda control, _: control.horizon_ms == 2000, 10)
        metadata.remove_segment("c", window(1).name)
        view.refresh()
        assert list(view.records()) == [window(2).name]
    store.close()


def test_a_view_refreshes_without_any_watch(metadata: ClusterMetadata) -> None:
    view = SegmentView(metadata, "c")
    view.close()  # no watch tells it of anything
    view = SegmentView(metadata, "c")
    for number in range(CHANGES_MAX + 20):
        metadata.update_segment("c", window(number), closed_at(5))
    view.refresh()
    assert len(view.records()) == CHANGES_MAX + 20
    view.close()


def test_a_view_survives_a_drop_and_sees_the_new_cube(metadata: ClusterMetadata) -> None:
    metadata.update_segment("c", window(1), closed_at(5))
    view = SegmentView(metadata, "c")
    metadata.drop_cube("c", metadata.cube_id("c"))
    view.refresh()
    assert (view.records(), view.control().enabled) == ({}, False)
    metadata.create_cube(CUBE)
    metadata.update_segment("c", window(3), closed_at(5))
    view.refresh()
    assert list(view.records()) == [window(3).name]
    view.close()


def test_a_view_catches_up_after_a_lost_session(metadata: ClusterMetadata, ensemble: MemoryEnsemble) -> None:
    store = MemoryStore(ensemble)
    view = SegmentView(ClusterMetadata(store, ManualClock(1)), "c")
    store.disconnect()
    metadata.update_segment("c", window(1), closed_at(5))
    assert view.records() == {}
    store.expire()
    assert view.wait_for(lambda _, records: len(records) == 1, 10)
    view.close()
    store.close()


def test_a_view_of_nothing_is_not_found(metadata: ClusterMetadata) -> None:
    with pytest.raises(NotFound):
        SegmentView(metadata, "nothing")


@pytest.mark.parametrize("seed", range(5))
def test_a_view_equals_a_full_read_whatever_happens(metadata: ClusterMetadata, seed: int) -> None:
    chance = random.Random(seed)
    view = SegmentView(metadata, "c")
    for _ in range(60):
        for _ in range(chance.choice((0, 1, 1, 2, 5, 150))):
            offset = chance.randrange(5)
            metadata.update_segment("c", window(chance.randrange(40)), closed_at(offset, chance.randrange(9)))
        view.refresh()
        assert view.records() == metadata.segments("c"), f"seed {seed}"
    view.close()

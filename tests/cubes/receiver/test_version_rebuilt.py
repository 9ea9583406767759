"""Receivers read a version's events again from Kafka, where its base cuboid is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from rtolap.cubes.receiver.background_work import BackgroundWork, CoreRequests
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.metadata import segments
from rtolap.metadata.records import SegmentRecord
from rtolap.model.completeness import EventLoss
from rtolap.model.offsets import PartRange
from rtolap.model.segment import SegmentState, StagedPart

from tests.support.cubes.builders import START_MS
from tests.support.cubes.cluster import BASE_FILE
from tests.support.cubes.stepped_receiver import Receiver
from tests.support.cubes.two_segments import TwoSegments


class World(TwoSegments):
    """Both are READY."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.history()

    def close(self) -> None:
        """Everybody reads, and leaders close all there is."""
        for receiver in self.receivers.values():
            self.read(receiver)
            receiver.core.force.update(receiver.core.state.segments)
        for receiver in [*self.receivers.values()] * 2:
            self.read(receiver)
            receiver.close_due()
        for receiver in self.receivers.values():
            self.read(receiver)

    def upload(self) -> None:
        for receiver in self.receivers.values():
            self.read(receiver)
            while receiver.upload():
                self.read(receiver)

    def build(self) -> None:
        builds, cube = self.cluster.coordinator.builds, self.cluster.cube
        for entry in builds.queue().entries:
            spec = builds.start(cube, entry.segment)
            self.cluster.build(spec)
            builds.promote(cube, entry.segment, spec.build_id)
        for receiver in self.receivers.values():
            self.read(receiver)

    def history(self) -> None:
        self.close()
        self.upload()
        self.build()
        assert {record.state for record in self.records} == {SegmentState.READY}

    def lose(self, record: SegmentRecord) -> SegmentRecord:
        self.cluster.store.delete_tree(f"{record.location}/{BASE_FILE}")
        lost = self.cluster.coordinator.builds.requeue(self.cluster.cube, record.name)
        assert (lost.state, lost.base_lost) == (SegmentState.IMMUTABLE, True)
        return lost

    def work(self, receiver: Receiver) -> BackgroundWork:
        """As in a process: what goes wrong is told to the core."""
        requests = cast(CoreRequests, SimpleNamespace(ask=lambda what: what()))
        views = SimpleNamespace(
            snapshot=lambda: (
                self.cluster.metadata.control(self.cluster.cube),
                {record.start_ms: record for record in self.records},
            ),
            refresh=lambda: None,
        )
        return BackgroundWork(
            self.cluster.schema,
            receiver.core,
            cube_id=self.cluster.metadata.cube_id(self.cluster.cube),
            replica_set=receiver.replica_set,
            metadata=self.cluster.metadata,
            election=cast(Any, SimpleNamespace(is_leader=lambda: receiver.leading)),
            reader=receiver.reader,
            uploader=receiver.uploader,
            views=cast(Any, views),
            requests=requests,
            stopping=Event(),
            clock=self.cluster.clock,
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.cluster.close()


def test_a_version_is_read_again_from_where_its_events_begin(world: World) -> None:
    first, second = world.records
    assert (first.begins, second.begins) == (dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 10))
    world.lose(second)
    world.cluster.admin.delete_records("sales", dict.fromkeys(range(4), 10))  # the first segment's
    world.upload()
    world.build()
    recreated = world.records[1]
    assert (recreated.version, recreated.events, recreated.covered, recreated.losses) == (
        2,
        20,
        second.covered,
        (),
    )
    assert recreated.begins == second.begins
    assert world.records[0] == first


def test_late_events_that_wait_go_into_the_version_that_is_rebuilt(world: World) -> None:
    first = world.records[0]
    world.send(1, START_MS, 3)
    world.close()
    assert world.records[0].target != {}
    world.lose(first)
    world.send(3, START_MS, 2)  # after the late delta was closed: of the version after
    for receiver in world.receivers.values():
        world.read(receiver)
    world.upload()
    world.build()
    recreated = world.records[0]
    assert (recreated.version, recreated.events, recreated.late_events) == (2, 43, 3)
    world.history()
    assert (world.records[0].version, world.records[0].events) == (3, 45)


def test_a_receiver_goes_on_though_kafka_no_longer_holds_a_lost_version(world: World) -> None:
    lost = world.lose(world.records[0])
    world.cluster.admin.delete_records("sales", {0: 4})
    receiver = world.receivers["left-0"]
    world.read(receiver)
    work = world.work(receiver)
    reads: list[int] = []
    read = receiver.reader.read
    receiver.reader.read = lambda *arguments: (reads.append(1), read(*arguments))[1]  # type: ignore[method-assign]
    work.run_once()
    work.run_once()
    assert receiver.core.consumer_state is ConsumerState.CONSUMING
    assert len(reads) == 1, "it is not tried over and over"
    loss = EventLoss(
        ranges=(PartRange(0, 0, 4),),
        start_ms=lost.start_ms,
        end_ms=lost.end_ms,
        by="ada",
        reason="gone",
        at_ms=1,
    )
    world.cluster.metadata.update_control(
        world.cluster.cube, lambda before: msgspec.structs.replace(before, version_losses=(loss,))
    )
    work.run_once()
    assert {part.replica_set for part in world.records[0].parts} == {"left"}
    world.upload()
    world.build()
    recreated = world.records[0]
    assert (recreated.version, recreated.events, recreated.late_events, recreated.losses) == (
        2,
        36,
        None,
        (loss,),
    )


def test_a_receiver_that_lacks_events_of_a_part_fails_once_and_names_them(world: World) -> None:
    """Another holder has staged one of its partitions: what it reads again for the rest may be gone."""
    record = partly_staged(world)
    world.cluster.admin.delete_records("sales", {2: 17})
    receiver = world.receivers["left-0"]
    world.read(receiver)
    world.work(receiver).run_once()
    assert receiver.core.consumer_state is ConsumerState.FAILED
    assert receiver.core.lost == (PartRange(2, 15, 17),)
    assert world.records[0].parts == record.parts


def test_a_rest_of_a_part_is_read_from_where_its_events_are(world: World) -> None:
    partly_staged(world)
    world.cluster.admin.delete_records("sales", {2: 15})
    receiver = world.receivers["left-0"]
    world.read(receiver)
    assert receiver.upload()
    assert [part.events for part in world.records[0].parts] == [3, 3]


def test_a_replica_set_without_late_events_uploads_nothing_while_it_waits_for_the_others(
    world: World,
) -> None:
    world.send(3, START_MS, 2)
    world.close()
    left, right = world.receivers["left-0"], world.receivers["right-0"]
    assert not left.upload()
    assert right.upload()
    assert world.records[0].state is SegmentState.REMOTE_PERSISTED


def partly_staged(world: World) -> SegmentRecord:
    """Three late events in partitions 0 and 2; a part of partition 0 is there."""
    for partition in (0, 2):
        world.send(partition, START_MS, 3)
    world.close()
    record = world.records[0]
    piece = PartRange(0, record.covered[0], record.target[0])
    part = StagedPart("spare", "staged/another", (piece,), rows=1, events=3, bytes=1)
    return world.cluster.metadata.update_segment(
        world.cluster.cube,
        record.range,
        lambda before: segments.add_part(
            before, part, partitions=range(4), first=dict.fromkeys(range(4), 0), now_ms=1
        ),
    )

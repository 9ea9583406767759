"""Events that neither receivers nor Kafka hold any more: named, accepted by a person, and history goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import NotYet, Refused
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.losses import Losses
from rtolap.coordinator.views import Views
from rtolap.cubes.receiver.local.align import VersionedRange
from rtolap.cubes.receiver.reports import cube_report
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.kafka.interfaces import OffsetsGone
from rtolap.metadata.records import SegmentRecord
from rtolap.model.completeness import EventLoss, behind_losses
from rtolap.model.offsets import PartRange
from rtolap.model.segment import SegmentState
from rtolap.protocols.coordinator.messages import HeartbeatRequest

from tests.support.cubes.builders import START_MS
from tests.support.cubes.two_segments import TwoSegments

LOST = (PartRange(0, 0, 4), PartRange(2, 0, 4))


class World(TwoSegments):
    """Their staged parts are there. `lose` takes the first's part of partitions 0 and 2, disks of receivers
    that read those, and the beginning of their logs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.views = Views(self.cluster.metadata)
        self.heartbeats = Heartbeats(self.cluster.clock)
        self.losses = Losses(
            self.cluster.metadata, self.views, self.heartbeats, lambda name: self.cluster.admin
        )
        self.turn()
        for receiver in self.receivers.values():
            receiver.core.force.update(receiver.core.state.segments)
        self.turn()
        self.turn()
        assert [record.state for record in self.records] == [SegmentState.REMOTE_PERSISTED] * 2

    def turn(self) -> None:
        """Everybody reads, leaders close and upload what they can, and all say how they are."""
        for receiver in self.receivers.values():
            self.read(receiver)
            if receiver.core.consumer_state is not ConsumerState.FAILED:
                receiver.close_due()
                receiver.look()
                receiver.consume()
                while receiver.upload():
                    receiver.look()
                    receiver.consume()
                receiver.checkpoint()
        self.tell(*self.receivers)

    def tell(self, *names: str) -> None:
        for name in names:
            core = self.receivers[name].core
            self.heartbeats.record(
                HeartbeatRequest(
                    receiver_id=name,
                    replica_set=self.receivers[name].replica_set,
                    cubes={self.cluster.cube: cube_report(core, self.cluster.clock)},
                )
            )

    def lose(self, *disks: str) -> SegmentRecord:
        record = self.records[0]
        (part,) = (part for part in record.parts if part.replica_set == "left")
        self.cluster.store.delete_tree(part.path)
        self.cluster.admin.delete_records("sales", {0: 4, 2: 4})
        for name in disks:
            self.receivers[name].lose_disk()
        self.cluster.coordinator.builds.requeue(self.cluster.cube, record.name)
        self.turn()
        return self.records[0]

    def lost(self, record: SegmentRecord) -> tuple[PartRange, ...]:
        return self.losses.lost_of(record, self.cluster.metadata.control(self.cluster.cube))

    def problem(self) -> str | None:
        control = self.cluster.metadata.control(self.cluster.cube)
        return self.losses.problem(self.cluster.cube, control, self.records)

    def accept(self, record: SegmentRecord) -> None:
        self.losses.accept(self.cluster.cube, record.name, by="ada", reason="both disks burnt")

    def built(self, record: SegmentRecord) -> SegmentRecord:
        builds, cube = self.cluster.coordinator.builds, self.cluster.cube
        spec = builds.start(cube, record.name)
        self.cluster.build(spec)
        return builds.promote(cube, record.name, spec.build_id)

    def close(self) -> None:
        self.views.close()
        self.cluster.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_the_segment_is_named_with_its_offsets_and_what_can_be_done(world: World) -> None:
    first = world.lose("left-0", "left-1")
    assert first.state is SegmentState.IMMUTABLE
    failed = world.receivers["left-0"].core
    assert failed.consumer_state is ConsumerState.FAILED
    assert "rtolap segments accept-loss" in failed.reason
    assert failed.lost == LOST
    assert world.lost(first) == LOST
    assert world.lost(world.records[1]) == ()
    problem = world.problem() or ""
    assert f"rtolap segments accept-loss sales_by_kind {first.name} --reason" in problem
    assert "0–4 of partition 0, 0–4 of partition 2" in problem


def test_history_goes_on_without_what_was_accepted_as_lost(world: World) -> None:
    first = world.lose("left-0", "left-1")
    second = world.records[1]
    spec = world.cluster.coordinator.builds.start(world.cluster.cube, second.name)
    world.cluster.build(spec)
    with pytest.raises(NotYet):
        world.cluster.coordinator.builds.promote(world.cluster.cube, second.name, spec.build_id)
    world.accept(first)
    world.turn()
    assert [record.state for record in world.records] == [SegmentState.REMOTE_PERSISTED] * 2
    assert world.problem() is None
    one, two = world.built(first), world.built(second)
    assert (one.state, one.events) == (SegmentState.READY, 40 - 8)
    assert (two.state, two.events, two.losses) == (SegmentState.READY, 20, ())
    (loss,) = one.losses
    assert (loss.ranges, loss.by, loss.reason) == (LOST, "ada", "both disks burnt")
    world.turn()
    for name in ("left-0", "left-1"):
        core = world.receivers[name].core
        assert (core.consumer_state, core.state.positions) == (ConsumerState.CONSUMING, {0: 15, 2: 15})
        assert not core.lost


def test_a_version_that_is_rebuilt_still_says_what_it_lacks(world: World) -> None:
    first = world.lose("left-0", "left-1")
    world.accept(first)
    world.turn()
    before = world.built(first)
    world.cluster.coordinator.builds.requeue(world.cluster.cube, first.name)
    after = world.built(first)
    assert (after.version, after.losses) == (2, before.losses)


def test_a_repetition_accepts_nothing_more(world: World) -> None:
    first = world.lose("left-0", "left-1")
    world.accept(first)
    known = world.cluster.metadata.control(world.cluster.cube)
    world.accept(first)
    world.turn()
    world.accept(first)
    assert world.cluster.metadata.control(world.cluster.cube).losses == known.losses


def test_nothing_is_lost_while_another_receiver_of_the_set_holds_it(world: World) -> None:
    world.receivers["left-0"].leading, world.receivers["left-1"].leading = False, True
    world.lose("left-0")
    assert world.receivers["left-0"].core.lost == LOST
    assert world.records[0].state is SegmentState.REMOTE_PERSISTED
    assert world.problem() is None
    with pytest.raises(Refused, match="lost"):
        world.accept(world.records[0])


def test_a_loss_is_over_when_a_receiver_that_holds_the_events_is_back(world: World) -> None:
    survivor = world.receivers.pop("left-1")
    first = world.lose("left-0")
    world.cluster.clock.advance_ms(60_000)
    world.tell(*world.receivers)
    assert world.lost(first) == LOST
    world.receivers["left-0"].leading, survivor.leading = False, True
    world.receivers["left-1"] = survivor
    world.turn()
    assert world.records[0].state is SegmentState.REMOTE_PERSISTED
    assert world.problem() is None


def test_what_kafka_dropped_since_is_accepted_too(world: World) -> None:
    first = world.lose("left-0", "left-1")
    world.cluster.admin.delete_records("sales", {0: 6})
    world.accept(first)
    world.turn()
    assert world.built(first).events == 40 - 10


def test_a_range_that_is_read_again_passes_over_what_is_lost(world: World) -> None:
    world.cluster.admin.delete_records("sales", {0: 4})
    reader = world.receivers["left-0"].reader
    with pytest.raises(OffsetsGone):
        reader.read(START_MS, [VersionedRange(0, 0, 10, 1)])
    loss = EventLoss(ranges=LOST, start_ms=0, end_ms=1, by="ada", reason="gone", at_ms=1)
    (table,) = reader.read(START_MS, [VersionedRange(0, 0, 10, 1)], (loss,))
    assert table.events == 6
    assert reader.read(START_MS, [VersionedRange(0, 0, 3, 1)], (loss,)) == ()


def test_reading_goes_on_behind_losses_that_touch() -> None:
    losses = [
        EventLoss(ranges=ranges, start_ms=0, end_ms=1, by="ada", reason="gone", at_ms=1)
        for ranges in ((PartRange(0, 4, 9),), (PartRange(0, 2, 4), PartRange(1, 0, 7)))
    ]
    assert [behind_losses(losses, 0, at) for at in (1, 2, 3, 4, 8, 9)] == [1, 9, 9, 9, 9, 9]
    assert behind_losses(losses, 2, 5) == 5

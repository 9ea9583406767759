from __future__ import annotations

import msgspec
import pytest
from rtolap.backup.copy_store import CopyStore
from rtolap.backup.positions import compare_positions
from rtolap.base.errors import Refused
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata import paths
from rtolap.metadata.codec import encode
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, ReplayFrom
from rtolap.metadata.segment_format.pages import HistoryFrontier
from rtolap.metadata.store import Create
from rtolap.model.completeness import EventLoss
from rtolap.model.offsets import PartRange

from tests.support.cubes.builders import small_schema
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryProducer

SCHEMA = small_schema()
CUBE, TOPIC = SCHEMA.cube.name, SCHEMA.table.topic


class World:
    """A topic of two partitions with ten records each, and a backup that is read from offset 4 on."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.admin = MemoryAdmin(self.broker)
        self.fill()
        self.control = CubeControl(
            enabled=True, first_offsets={0: 0, 1: 0}, topic_id=self.admin.topic_id(TOPIC)
        )
        self.replay_from, self.covered = {0: 4, 1: 4}, {0: 8, 1: 6}

    def fill(self) -> None:
        self.admin.create_topic(TOPIC, 2)
        records = [OutRecord(b"{}", partition=number % 2) for number in range(20)]
        MemoryProducer(self.broker).produce(TOPIC, records)

    def findings(self) -> list[str]:
        records = {
            paths.table(SCHEMA.table.name): encode(SCHEMA.table),
            paths.cube_definition(CUBE): encode(SCHEMA.cube),
            paths.cube_control(CUBE): encode(self.control),
            paths.replay_from(CUBE, "left"): encode(ReplayFrom(self.replay_from)),
            paths.frontier(CUBE): encode(HistoryFrontier(self.covered)),
        }
        backup = ClusterMetadata(CopyStore(records), ManualClock(0))
        found = list(compare_positions(backup, lambda _: self.admin))
        assert all(each.outcome == "lacking" and each.subject == f"cube {CUBE}" for each in found)
        return [each.message for each in found]


@pytest.fixture
def world() -> World:
    return World()


def test_a_log_that_holds_all_is_no_finding(world: World) -> None:
    assert world.findings() == []
    world.admin.delete_records(TOPIC, {0: 4})
    assert world.findings() == [], "what is below is in history"


def test_offsets_that_are_gone_are_named(world: World) -> None:
    world.admin.delete_records(TOPIC, {0: 7})
    [message] = world.findings()
    assert "no longer holds offsets 4–7 of partition 0" in message
    loss = EventLoss(ranges=(PartRange(0, 3, 7),), start_ms=0, end_ms=1, by="a", reason="r", at_ms=0)
    world.control = msgspec.structs.replace(world.control, losses=(loss,))
    assert world.findings() == [], "somebody has accepted it before"


def test_a_log_that_is_shorter_than_history_is_named(world: World) -> None:
    world.broker.cut(TOPIC, 0, 5)
    [message] = world.findings()
    assert "ends before offsets that history holds: 5–8 of partition 0" in message


def test_another_topic_of_the_name_is_named(world: World) -> None:
    world.admin.delete_topic(TOPIC)
    [message] = world.findings()
    assert message.endswith("is missing")
    world.fill()
    [message] = world.findings()
    assert "is another topic of that name" in message


def test_a_revision_that_has_ended_is_read_no_more(world: World) -> None:
    world.admin.delete_topic(TOPIC)
    world.control = msgspec.structs.replace(world.control, ended=True)
    assert world.findings() == []


def test_a_backup_is_only_read() -> None:
    store = CopyStore({"/a/b": b"1"})
    assert (store.children(""), store.children("/a"), store.children("/a/b")) == (("a",), ("b",), ())
    assert store.get("/c") is None
    with pytest.raises(Refused, match="only read"):
        store.commit([Create("/c", b"1")])

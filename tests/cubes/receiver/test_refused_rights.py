"""A cube that Kafka does not let a receiver start is reported while it is assigned, and started later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import Forbidden
from rtolap.cubes.receiver import process, served_cubes

from tests.support.cubes.builders import small_schema
from tests.support.cubes.metadata_contract import eventually
from tests.support.runs.served_receiver import ServedReceiver
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_producer import MemoryConnections

SCHEMA = small_schema()
CUBE = SCHEMA.cube.name


class GuardedConnections(MemoryConnections):
    """A broker that lets nobody read until the right is granted."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.granted = False
        self.refusals = 0

    def check_rights(self, cluster: str, needs: Iterable[object]) -> bool:
        if not self.granted:
            self.refusals += 1
            raise Forbidden("User:test misses Read")
        return super().check_rights(cluster, needs)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def connections(broker: MemoryBroker) -> GuardedConnections:
    return GuardedConnections(broker)


@pytest.fixture
def receiver(
    tmp_path: Path, broker: MemoryBroker, connections: GuardedConnections, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServedReceiver]:
    monkeypatch.setattr(served_cubes, "START_RETRY_S", 0.05)
    monkeypatch.setattr(process, "CONTROL_EVERY_S", 0.02)
    receiver = ServedReceiver(tmp_path, broker, connections, SCHEMA.table, [SCHEMA.cube])
    yield receiver
    receiver.close()


def refused(receiver: ServedReceiver) -> bool:
    return "misses Read" in receiver.service.cubes.not_started().get(CUBE, "")


def test_a_refused_cube_is_served_once_the_right_is_there_and_is_no_longer_reported(
    receiver: ServedReceiver, connections: GuardedConnections
) -> None:
    receiver.assign(CUBE, "left")
    eventually(lambda: connections.refusals > 2, "it is tried again")
    assert refused(receiver)
    connections.granted = True
    eventually(lambda: bool(receiver.service.stats().cubes), "it serves the cube")
    assert receiver.service.cubes.not_started() == {}


def test_a_refused_cube_of_another_replica_set_is_not_reported(receiver: ServedReceiver) -> None:
    receiver.assign(CUBE, "left")
    eventually(lambda: refused(receiver), "it is refused")
    receiver.assign(CUBE, "right")
    eventually(lambda: receiver.service.cubes.not_started() == {}, "it is forgotten")
    receiver.assign(CUBE, "left")
    eventually(lambda: refused(receiver), "it is refused again")


def test_a_refused_cube_that_is_dropped_is_not_reported(receiver: ServedReceiver) -> None:
    receiver.assign(CUBE, "left")
    eventually(lambda: refused(receiver), "it is refused")
    receiver.metadata.update_control(CUBE, lambda control: msgspec.structs.replace(control, enabled=False))
    receiver.metadata.drop_cube(CUBE, receiver.metadata.cube_id(CUBE))
    eventually(lambda: receiver.service.cubes.not_started() == {}, "it is forgotten")

"""A cube that Kafka does not let a receiver start is reported while it is assigned, and started later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import Forbidden
from rtolap.cubes.receiver import process, served_cubes
from rtolap.cubes.receiver.assembly import CubeAssembly
from rtolap.cubes.receiver.process import ReceiverService
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.object_store.store import open_store
from rtolap.servers.limits import HttpLimits

from tests.support.cubes.builders import small_schema
from tests.support.cubes.metadata_contract import eventually
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryConnections
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

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


class Receiver:
    def __init__(self, folder: Path) -> None:
        broker, ensemble, clock = MemoryBroker(), MemoryEnsemble(), SystemClock()
        MemoryAdmin(broker).create_topic(SCHEMA.table.topic, 1)
        self.sessions = [MemoryStore(ensemble) for _ in range(2)]
        self.metadata = ClusterMetadata(self.sessions[0], clock)
        self.metadata.create_table(SCHEMA.table)
        self.metadata.create_cube(SCHEMA.cube)
        self.connections = GuardedConnections(broker)
        assembly = CubeAssembly(
            receiver_id="left-0",
            replica_set="left",
            token="a-token-of-this-test",
            data_dir=folder / "data",
            metadata=ClusterMetadata(self.sessions[1], clock),
            store=open_store((folder / "store").as_uri()),
            open_consumer=lambda *arguments, **options: MemoryConsumer(
                broker, SCHEMA.table.topic, with_create_ms=True
            ),
            connections=self.connections,
            clock=clock,
            settings=ReceiverSettings(disk_free_bytes_min=0),
        )
        self.service = ReceiverService(assembly, host="127.0.0.1", port=0, http_limits=HttpLimits())
        self.service.start()

    def assign(self, replica_set: str) -> None:
        self.metadata.update_control(
            CUBE,
            lambda control: msgspec.structs.replace(
                control,
                enabled=True,
                assignment={replica_set: (0,)},
                assignment_epoch=control.assignment_epoch + 1,
                first_offsets={0: 0},
            ),
        )

    def close(self) -> None:
        self.service.stop()
        for session in self.sessions:
            session.close()


@pytest.fixture
def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(served_cubes, "RIGHTS_RETRY_S", 0.05)
    monkeypatch.setattr(process, "CONTROL_EVERY_S", 0.02)
    receiver = Receiver(tmp_path)
    yield receiver
    receiver.close()


def refused(receiver: Receiver) -> bool:
    return "misses Read" in receiver.service.cubes.not_started().get(CUBE, "")


def test_a_refused_cube_is_served_once_the_right_is_there_and_is_no_longer_reported(
    receiver: Receiver,
) -> None:
    receiver.assign("left")
    eventually(lambda: receiver.connections.refusals > 2, "it is tried again")
    assert refused(receiver)
    receiver.connections.granted = True
    eventually(lambda: bool(receiver.service.stats().cubes), "it serves the cube")
    assert receiver.service.cubes.not_started() == {}


def test_a_refused_cube_of_another_replica_set_is_not_reported(receiver: Receiver) -> None:
    receiver.assign("left")
    eventually(lambda: refused(receiver), "it is refused")
    receiver.assign("right")
    eventually(lambda: receiver.service.cubes.not_started() == {}, "it is forgotten")
    receiver.assign("left")
    eventually(lambda: refused(receiver), "it is refused again")


def test_a_refused_cube_that_is_dropped_is_not_reported(receiver: Receiver) -> None:
    receiver.assign("left")
    eventually(lambda: refused(receiver), "it is refused")
    receiver.metadata.update_control(CUBE, lambda control: msgspec.structs.replace(control, enabled=False))
    receiver.metadata.drop_cube(CUBE, receiver.metadata.cube_id(CUBE))
    eventually(lambda: receiver.service.cubes.not_started() == {}, "it is forgotten")

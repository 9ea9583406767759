"""Receivers of one replica set, whose Kafka and ZooKeeper are twins in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.base.clock import SystemClock
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


@pytest.fixture
def receivers(tmp_path: Path) -> Iterator[list[ReceiverService]]:
    """Two of one replica set, with a cube; all on memory twins."""
    broker, ensemble, schema, clock = MemoryBroker(), MemoryEnsemble(), small_schema(), SystemClock()
    admin = MemoryAdmin(broker)
    admin.create_topic(schema.table.topic, 1)
    sessions = [MemoryStore(ensemble) for _ in range(3)]
    metadata = ClusterMetadata(sessions[2], clock)
    metadata.create_table(schema.table)
    metadata.create_cube(schema.cube)
    metadata.update_control(
        schema.cube.name,
        lambda control: msgspec.structs.replace(
            control, enabled=True, assignment={"left": (0,)}, assignment_epoch=1, first_offsets={0: 0}
        ),
    )
    services = []
    for number, session in enumerate(sessions[:2]):
        assembly = CubeAssembly(
            receiver_id=f"left-{number}",
            replica_set="left",
            token="a-token-of-this-test",
            data_dir=tmp_path / f"left-{number}",
            metadata=ClusterMetadata(session, clock),
            store=open_store((tmp_path / "store").as_uri()),
            open_consumer=lambda *arguments, **options: MemoryConsumer(
                broker, schema.table.topic, with_create_ms=True
            ),
            connections=MemoryConnections(broker),
            clock=clock,
            settings=ReceiverSettings(disk_free_bytes_min=0),
        )
        service = ReceiverService(assembly, host="127.0.0.1", port=0, http_limits=HttpLimits())
        service.start()
        services.append(service)
        eventually(lambda service=service: bool(service.stats().cubes), "it serves the cube")
    yield services
    for service in services:
        service.stop()
    for session in sessions:
        session.close()

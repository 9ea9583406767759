"""A receiver whose control thread runs, in this process: it begins the cubes that metadata assign to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rtolap.base.clock import SystemClock
from rtolap.cubes.receiver.assembly import CubeAssembly
from rtolap.cubes.receiver.process import ReceiverService
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.signed import SignedStore
from rtolap.model.cube import Cube
from rtolap.model.table import Table
from rtolap.object_store.store import open_store
from rtolap.servers.limits import HttpLimits

from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryConnections
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

TOKEN = "a-token-of-this-test"


class ServedReceiver:
    """Receiver left-0 of replica set left, with some cubes of one table. `start` begins it again with the
    folder that it has. `signed`: its records in ZooKeeper are."""

    def __init__(
        self,
        folder: Path,
        broker: MemoryBroker,
        connections: MemoryConnections,
        table: Table,
        cubes: Sequence[Cube],
        *,
        signed: bool = False,
    ) -> None:
        self.ensemble, clock = MemoryEnsemble(), SystemClock()
        MemoryAdmin(broker).create_topic(table.topic, 1)
        self.sessions = [MemoryStore(self.ensemble) for _ in range(2)]
        own, its = (SignedStore(each, TOKEN) if signed else each for each in self.sessions)
        self.metadata = ClusterMetadata(own, clock)
        self.metadata.create_table(table)
        for cube in cubes:
            self.metadata.create_cube(cube)
        self.data_dir = folder / "data"
        self._assembly = CubeAssembly(
            receiver_id="left-0",
            replica_set="left",
            token=TOKEN,
            data_dir=self.data_dir,
            metadata=ClusterMetadata(its, clock),
            store=open_store((folder / "store").as_uri()),
            open_consumer=lambda *arguments, **options: MemoryConsumer(
                broker, table.topic, with_create_ms=True
            ),
            connections=connections,
            clock=clock,
            settings=ReceiverSettings(disk_free_bytes_min=0),
        )
        self.start()

    def start(self) -> None:
        self.service = ReceiverService(self._assembly, host="127.0.0.1", port=0, http_limits=HttpLimits())
        self.service.start()

    def assign(self, cube: str, replica_set: str) -> None:
        self.metadata.update_control(
            cube,
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

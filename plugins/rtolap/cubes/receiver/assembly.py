"""Everything that serving one cube takes, put together."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, Forbidden, RtolapError, Unauthorized
from rtolap.base.ids import CarryingPool
from rtolap.columnar.time_zones import require_zone
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local.realign import RangeReader
from rtolap.cubes.receiver.local.slots import StateSlots
from rtolap.cubes.receiver.runner import CubeRunner
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.upload import Uploader
from rtolap.events.decode import EventDecoder
from rtolap.events.formats.readers import Registries, no_registries
from rtolap.events.rejects import TOPIC_CONFIG
from rtolap.kafka.interfaces import StreamConsumer, StreamProducer, TopicAdmin
from rtolap.kafka.rights import Need
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import NextAssignment
from rtolap.metadata.store import Election
from rtolap.model.cube import Schema
from rtolap.model.table import Table
from rtolap.object_store.store import ObjectStore
from rtolap.watermark_client.client import WatermarkClient

log = logging.getLogger(__name__)

# A consumer of one's own of the table's topic, with create times, and statements where it has them.
OpenConsumer = Callable[[Table], StreamConsumer]


# Errors that need a person: to grant a right, or to correct the host's settings.
UNREACHABLE = (Forbidden, Unauthorized, DefinitionError)


class Connections(Protocol):
    """The Kafka connections of one receiver, one of each kind a cluster:
    `kafka.connections.KafkaConnections`."""

    def producer(self, cluster: str) -> StreamProducer: ...

    def admin(self, cluster: str) -> TopicAdmin: ...

    def check_rights(self, cluster: str, needs: Iterable[Need]) -> bool: ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class CubeAssembly:
    """The objects that the cubes of one receiver share."""

    receiver_id: str
    replica_set: str
    token: str = field(repr=False)
    data_dir: Path
    metadata: ClusterMetadata
    store: ObjectStore
    open_consumer: OpenConsumer
    connections: Connections
    clock: Clock
    settings: ReceiverSettings
    registries: Registries = no_registries

    def slots(self, cube: str, cube_id: str) -> StateSlots:
        """Return the folders of a creation of a cube."""
        return StateSlots(self.data_dir / "cubes" / cube / cube_id)

    def runner(
        self,
        schema: Schema,
        cube_id: str,
        election: Election,
        *,
        epoch: int = 0,
        ahead: NextAssignment | None = None,
    ) -> CubeRunner:
        """Return a runner that has not started. Local data of an earlier creation of the cube is deleted,
        and what was made before the cluster's metadata was restored.

        `epoch`: of the assignment that stands; `ahead`: the one that the runner reads for, beside another.

        Raises Forbidden, Unauthorized and DefinitionError where Kafka would not let it read the topic or keep
        refused records; DefinitionError, too, where this host knows no registry for the records, or not the
        table's time zone.
        """
        require_zone(schema.table.time.zone)
        EventDecoder(schema, self.registries)  # whether its records can be read, before anything is opened
        table = schema.table
        folder = self.data_dir / "cubes" / schema.cube.name
        for other in folder.iterdir() if folder.exists() else ():
            if other.name != cube_id:
                shutil.rmtree(other, ignore_errors=True)
        slots = self.slots(schema.cube.name, cube_id)
        restored = self.metadata.control(schema.cube.name).restored
        slots.follow_restore(restored)
        create_topic = partial(
            self.connections.admin(table.kafka_cluster).create_topic,
            table.dead_letter_topic,
            1,
            config=TOPIC_CONFIG,
        )
        needs = [Need(table.topic, "Read"), Need(table.dead_letter_topic, "Write", creates=True)]
        if self.connections.check_rights(table.kafka_cluster, needs):
            try:
                if create_topic():
                    self.connections.check_rights(table.kafka_cluster, needs)  # now it reports Write, too
            except UNREACHABLE:
                raise
            except RtolapError as error:  # it is tried again when something is refused
                log.warning("cube %s: %s", schema.cube.name, error)
        core = CubeReceiver(
            schema,
            replica_set=self.replica_set,
            consumer=self.open_consumer(table),
            producer=self.connections.producer(table.kafka_cluster),
            folder=slots.begin(epoch) if ahead is None else slots.ahead(ahead.epoch),
            clock=self.clock,
            settings=self.settings,
            ends_beside=True,
            create_dead_letter_topic=create_topic,
            flush_beside=CarryingPool(1, thread_name_prefix=f"flush-{schema.cube.name}"),
            registries=self.registries,
        )
        reader = RangeReader(
            schema,
            lambda: self.open_consumer(table),
            self.clock,
            self.settings.realign_records_max,
            core.confirm_topic,
            self.registries,
        )
        return CubeRunner(
            schema,
            core,
            cube_id=cube_id,
            restored=restored,
            receiver_id=self.receiver_id,
            replica_set=self.replica_set,
            metadata=self.metadata,
            election=election,
            reader=reader,
            uploader=Uploader(
                schema,
                cube_id=cube_id,
                replica_set=self.replica_set,
                metadata=self.metadata,
                store=self.store,
                reader=reader,
            ),
            clock=self.clock,
            open_watermark_client=self._watermark_client,
            ahead=ahead,
        )

    def _watermark_client(self, coordinators: tuple[str, ...], application: str) -> WatermarkClient:
        return WatermarkClient(coordinators, self.token, application, learnt=True)

    def close(self) -> None:
        self.connections.close()

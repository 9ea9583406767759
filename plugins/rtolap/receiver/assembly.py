"""Everything that serving one cube takes, put together."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError
from rtolap.format.object_store import ObjectStore
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.store import Election
from rtolap.model.cube import Schema
from rtolap.model.table import Table
from rtolap.receiver.ingest import CubeReceiver
from rtolap.receiver.realign import RangeReader
from rtolap.receiver.runner import CubeRunner
from rtolap.receiver.settings import ReceiverSettings
from rtolap.receiver.upload import Uploader
from rtolap.stream.consumer import StreamConsumer, StreamProducer, TopicAdmin
from rtolap.stream.letters import TOPIC_CONFIG
from rtolap.wire.watermark_client import WatermarkClient

log = logging.getLogger(__name__)

# A consumer of one's own of the table's topic, with create times, and statements where it has them.
OpenConsumer = Callable[[Table], StreamConsumer]


@dataclass(frozen=True, kw_only=True)
class CubeAssembly:
    """Of one receiver: what its cubes share."""

    receiver_id: str
    replica_set: str
    token: str = field(repr=False)
    data_dir: Path
    metadata: ClusterMetadata
    store: ObjectStore
    open_consumer: OpenConsumer
    producer: StreamProducer
    admin: TopicAdmin
    clock: Clock
    settings: ReceiverSettings

    def runner(self, schema: Schema, cube_id: str, election: Election) -> CubeRunner:
        """Not started yet. Local data belongs to one creation of the cube; what an earlier one left goes."""
        table = schema.table
        folder = self.data_dir / "cubes" / schema.cube.name
        for other in folder.iterdir() if folder.exists() else ():
            if other.name != cube_id:
                shutil.rmtree(other, ignore_errors=True)
        create_topic = partial(
            self.admin.create_topic, schema.table.dead_letter_topic, 1, config=TOPIC_CONFIG
        )
        try:
            create_topic()
        except RtolapError as error:
            # Without Kafka there is nothing to refuse either; it is tried again when something is refused.
            log.warning("cube %s: %s", schema.cube.name, error)
        core = CubeReceiver(
            schema,
            replica_set=self.replica_set,
            consumer=self.open_consumer(table),
            producer=self.producer,
            folder=folder / cube_id,
            clock=self.clock,
            settings=self.settings,
            ends_beside=True,
            create_dead_letter_topic=create_topic,
        )
        reader = RangeReader(
            schema,
            lambda: self.open_consumer(table),
            self.clock,
            self.settings.realign_records_max,
            core.confirm_topic,
        )
        return CubeRunner(
            schema,
            core,
            cube_id=cube_id,
            receiver_id=self.receiver_id,
            replica_set=self.replica_set,
            metadata=self.metadata,
            election=election,
            reader=reader,
            uploader=Uploader(
                schema,
                replica_set=self.replica_set,
                metadata=self.metadata,
                store=self.store,
                reader=reader,
            ),
            clock=self.clock,
            open_watermark_client=self._watermark_client,
        )

    def _watermark_client(self, coordinators: tuple[str, ...], application: str) -> WatermarkClient:
        return WatermarkClient(coordinators, self.token, application)

    def close(self) -> None:
        self.producer.close()
        self.admin.close()

"""A receiver process: registration, election, heartbeats, and one `CubeRunner` for each cube it is assigned.

Losing the ZooKeeper session costs leadership, not data: it goes on consuming and serving, closes and
uploads nothing, and announces itself again in the new session.
"""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from rtolap.base.clock import Clock
from rtolap.base.errors import NotFound, RtolapError, Unavailable
from rtolap.format.object_store import ObjectStore
from rtolap.metadata import paths
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import ChangeLog, ReceiverRecord
from rtolap.metadata.updates import read
from rtolap.model.cube import Schema
from rtolap.receiver.dead_letters import TOPIC_CONFIG
from rtolap.receiver.flight import ReceiverFlightServer
from rtolap.receiver.ingest import CubeReceiver
from rtolap.receiver.realign import RangeReader
from rtolap.receiver.reports import cube_report, cube_stats
from rtolap.receiver.runner import CubeRunner
from rtolap.receiver.settings import ReceiverSettings
from rtolap.receiver.upload import Uploader
from rtolap.stream.consumer import StreamConsumer, StreamProducer, TopicAdmin
from rtolap.wire.coordinator import HeartbeatRequest
from rtolap.wire.coordinator_client import CoordinatorClient
from rtolap.wire.receiver import PartialQuery, ReceiverStats

log = logging.getLogger(__name__)

CONTROL_EVERY_S = 1.0

OpenConsumer = Callable[[str], StreamConsumer]  # topic → a consumer of one's own, with create times


class ReceiverService:
    def __init__(
        self,
        *,
        receiver_id: str,
        replica_set: str,
        host: str,
        port: int,
        token: str,
        data_dir: Path,
        metadata: ClusterMetadata,
        store: ObjectStore,
        open_consumer: OpenConsumer,
        producer: StreamProducer,
        admin: TopicAdmin,
        clock: Clock,
        settings: ReceiverSettings,
    ) -> None:
        self.receiver_id = receiver_id
        self.replica_set = replica_set
        self._host = host
        self._token = token
        self._data_dir = data_dir
        self._metadata = metadata
        self._store = store
        self._open_consumer = open_consumer
        self._producer = producer
        self._admin = admin
        self._clock = clock
        self._settings = settings
        self._instance = uuid.uuid4().hex
        self._started_ms = clock.now_ms()
        self._runners: dict[str, CubeRunner] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._coordinators: tuple[str, ...] = ()
        self._client: CoordinatorClient | None = None
        self._server = ReceiverFlightServer(self, host=host, port=port, token=token)
        self.port: int = self._server.port
        self._election = metadata.store.elect(
            paths.replica_set_election(replica_set), receiver_id, self._wake.set
        )
        metadata.store.watch(paths.CUBES, self._wake.set)
        self._threads = [
            threading.Thread(target=self._run_control, name="control", daemon=True),
            threading.Thread(target=self._run_heartbeats, name="heartbeats", daemon=True),
        ]

    # -- life -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._metadata.register_receiver(
            ReceiverRecord(self.receiver_id, self._host, self.port, self.replica_set)
        )
        for thread in self._threads:
            thread.start()
        log.info(
            "receiver %s of %s serves at %s:%d", self.receiver_id, self.replica_set, self._host, self.port
        )

    def stop(self) -> None:
        """Graceful: each cube writes a checkpoint, leadership is given back."""
        self._stopping.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(30)
        with self._lock:
            runners, self._runners = list(self._runners.values()), {}
        for runner in runners:
            runner.stop()
        self._election.close()
        self._server.shutdown()
        self._producer.close()
        self._admin.close()

    # -- what the door asks for -------------------------------------------------------------------------

    def query(self, query: PartialQuery) -> pa.Table:
        return self._runner(query.cube).query(query)

    def stats(self) -> ReceiverStats:
        with self._lock:
            runners = list(self._runners.values())
        leading = self._election.is_leader()
        cubes = tuple(cube_stats(runner.core, self._clock, is_leader=leading) for runner in runners)
        return ReceiverStats(
            receiver_id=self.receiver_id,
            replica_set=self.replica_set,
            address=f"{self._host}:{self.port}",
            cubes=cubes,
            memory_bytes=sum(s.bytes for cube in cubes for s in cube.segments if s.memory_rows),
            started_ms=self._started_ms,
        )

    def pause(self, cube: str, paused: bool) -> None:
        runner = self._runner(cube)

        def switch() -> None:
            runner.core.pause(paused)
            if not paused:
                runner.core.restart()

        runner.ask(switch)

    def checkpoint(self, cube: str) -> None:
        runner = self._runner(cube)
        runner.ask(runner.core.checkpoint)

    def close_segments(self, cube: str, segments: list[str]) -> None:
        self._runner(cube).close_segments(segments)

    def _runner(self, cube: str) -> CubeRunner:
        with self._lock:
            runner = self._runners.get(cube)
        if runner is None:
            raise Unavailable(
                f"receiver {self.receiver_id} does not serve cube {cube}",
                found=f"cubes {', '.join(sorted(self._runners)) or 'none'}",
                action="ask another receiver, or try again after the assignment",
            )
        return runner

    # -- control ----------------------------------------------------------------------------------------

    def _run_control(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._metadata.store.connected():
                    self._metadata.announce_live(self.receiver_id, self._instance)
                    self._follow_cubes()
            except RtolapError as error:
                log.warning("control waits: %s", error)
            except Exception:
                log.exception("control waits")
            self._wake.wait(CONTROL_EVERY_S)
            self._wake.clear()

    def _follow_cubes(self) -> None:
        """Start a runner where this replica set is named, end it where the cube is gone or another one."""
        cubes = {name: self._cube_id(name) for name in self._metadata.cubes()}
        for name in [name for name, runner in self._runners.items() if cubes.get(name) != runner.cube_id]:
            with self._lock:
                runner = self._runners.pop(name)
            log.info("cube %s was dropped", name)
            runner.stop()
            shutil.rmtree(runner.core.file.folder, ignore_errors=True)
        for name in set(cubes) - set(self._runners):
            try:
                control = self._metadata.control(name)
                if self.replica_set in control.assignment:
                    self._begin(self._metadata.schema(name), cubes[name])
            except NotFound:
                continue  # dropped in between

    def _cube_id(self, cube: str) -> str:
        log_of_changes = read(self._metadata.store, paths.cube_changes(cube), ChangeLog)
        return log_of_changes.cube_id if log_of_changes is not None else ""

    def _begin(self, schema: Schema, cube_id: str) -> None:
        """Local data belongs to one creation of the cube; what an earlier one left is removed."""
        topic = schema.table.topic
        folder = self._data_dir / "cubes" / schema.cube.name
        for other in folder.iterdir() if folder.exists() else ():
            if other.name != cube_id:
                shutil.rmtree(other, ignore_errors=True)
        create_topic = partial(
            self._admin.create_topic, schema.table.dead_letter_topic, 1, config=TOPIC_CONFIG
        )
        try:
            create_topic()
        except RtolapError as error:
            # Without Kafka there is nothing to refuse either; it is tried again when something is refused.
            log.warning("cube %s: %s", schema.cube.name, error)
        core = CubeReceiver(
            schema,
            replica_set=self.replica_set,
            consumer=self._open_consumer(topic),
            producer=self._producer,
            folder=folder / cube_id,
            clock=self._clock,
            settings=self._settings,
            ends_beside=True,
            create_dead_letter_topic=create_topic,
        )
        reader = RangeReader(
            schema, lambda: self._open_consumer(topic), self._clock, self._settings.realign_records_max
        )
        runner = CubeRunner(
            schema,
            core,
            cube_id=cube_id,
            receiver_id=self.receiver_id,
            replica_set=self.replica_set,
            metadata=self._metadata,
            election=self._election,
            reader=reader,
            uploader=Uploader(
                schema,
                replica_set=self.replica_set,
                metadata=self._metadata,
                store=self._store,
                reader=reader,
            ),
            clock=self._clock,
        )
        with self._lock:
            self._runners[schema.cube.name] = runner
        runner.start()
        log.info("cube %s: serving", schema.cube.name)

    # -- heartbeats -------------------------------------------------------------------------------------

    def _run_heartbeats(self) -> None:
        while not self._stopping.wait(CONTROL_EVERY_S):
            try:
                self._beat()
            except RtolapError as error:
                log.info("heartbeat: %s", error)
            except Exception:
                log.exception("heartbeat")
        if self._client is not None:
            self._client.close()

    def _beat(self) -> None:
        with self._lock:
            runners = dict(self._runners)
        client = self._coordinator()
        if client is None:
            return
        response = client.heartbeat(
            HeartbeatRequest(
                receiver_id=self.receiver_id,
                replica_set=self.replica_set,
                is_leader=self._election.is_leader(),
                cubes={name: cube_report(runner.core, self._clock) for name, runner in runners.items()},
            )
        )
        for name, low_watermark_ms in response.low_watermark_ms.items():
            if name in runners:
                runners[name].offer_watermark(low_watermark_ms)

    def _coordinator(self) -> CoordinatorClient | None:
        """Coordinators are found where they stand for election; without ZooKeeper the last ones are kept."""
        if self._metadata.store.connected():
            urls: Sequence[str] = self._metadata.coordinators()
            if urls and set(urls) != set(self._coordinators):
                if self._client is not None:
                    self._client.close()
                self._coordinators = tuple(urls)
                self._client = CoordinatorClient(urls, self._token)
        return self._client

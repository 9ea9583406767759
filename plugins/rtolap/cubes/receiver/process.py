"""A receiver process: registration, election, heartbeats, and one `CubeRunner` for each cube it is assigned.

Losing the ZooKeeper session costs leadership, not data: it goes on consuming and serving, closes and
uploads nothing, and announces itself again in the new session.

A receiver that has failed at a cube lets another one lead its replica set.

The leader closes and uploads for its replica set: one that no longer reads a cube holds up that cube's
history, though a follower could go on with it.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection

import pyarrow as pa

import rtolap
from rtolap.base.errors import RtolapError
from rtolap.base.metrics import Metrics
from rtolap.cubes.receiver.assembly import CubeAssembly
from rtolap.cubes.receiver.flight import ReceiverFlightServer
from rtolap.cubes.receiver.metrics import ReceiverMetrics
from rtolap.cubes.receiver.reports import Heartbeats, cube_stats
from rtolap.cubes.receiver.served_cubes import ServedCubes
from rtolap.metadata import paths
from rtolap.metadata.cluster_store import show_refused
from rtolap.metadata.members.places import PlacementPolicy
from rtolap.metadata.records import ReceiverRecord
from rtolap.metadata.store import Election
from rtolap.protocols.receiver.messages import PartialQuery, ReceiverStats
from rtolap.servers.flight_server import shut_down
from rtolap.servers.limits import FlightLimits, HttpLimits
from rtolap.servers.metrics_server import MetricsServer

log = logging.getLogger(__name__)

CONTROL_EVERY_S = 1.0
BEGIN_WAIT_S = 2.0  # what a query waits for a cube that this receiver is just being given


class ReceiverService:
    def __init__(
        self,
        cubes: CubeAssembly,
        *,
        host: str,
        announced_host: str | None = None,
        port: int,
        metrics_port: int = 0,
        http_limits: HttpLimits,
        machine: str = "",
        rack: str = "",
        placement: PlacementPolicy = "warn",
        flight_limits: FlightLimits = FlightLimits(),
        show_clients: Callable[[Metrics], None] = lambda metrics: None,
    ) -> None:
        """Take the cubes and addresses. `announced_host`: where others reach `host`; None means there.

        `machine`, `rack` and `placement`: as declared (see `metadata.members.places`). `show_clients` adds
        the figures of its Kafka clients to the metrics.
        """
        receiver_id, replica_set, token = cubes.receiver_id, cubes.replica_set, cubes.token
        metadata, clock = cubes.metadata, cubes.clock
        self.receiver_id = receiver_id
        self.replica_set = replica_set
        self._announced_host = announced_host or host
        self._machine, self._rack = machine, rack
        self._placement: PlacementPolicy = placement
        self._metadata = metadata
        self._clock = clock
        self._cubes = cubes
        self._instance = uuid.uuid4().hex
        self._started_ms = clock.now_ms()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        metrics = ReceiverMetrics(self.stats).registry
        show_clients(metrics)
        show_refused(metrics, metadata.store)
        self._server = ReceiverFlightServer(
            self,
            host=host,
            announced_host=self._announced_host,
            port=port,
            token=token,
            metrics=metrics,
            limits=flight_limits,
        )
        self.port: int = self._server.port
        self._metrics = MetricsServer(metrics, host=host, port=metrics_port, token=token, limits=http_limits)
        self._election = metadata.store.elect(
            paths.replica_set_election(replica_set), receiver_id, self._wake.set
        )
        self._giving_way = GivingWay(self._election)
        self.cubes = ServedCubes(cubes, self._election, self._wake.set)
        metadata.store.watch(paths.CUBES, self._wake.set)
        beats = Heartbeats(
            receiver_id=receiver_id,
            replica_set=replica_set,
            token=token,
            metadata=metadata,
            election=self._election,
            clock=clock,
            runners=self.cubes.served,
            not_started=self.cubes.not_started,
            ahead=self.cubes.read_ahead,
        )
        self._threads = [
            threading.Thread(target=self._run_control, name="control", daemon=True),
            threading.Thread(target=beats.run, args=(self._stopping,), name="heartbeats", daemon=True),
        ]

    # -- life -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register and begin. Raises Refused where the placement policy lets no receiver of the replica set
        run here; then it has stopped."""
        try:
            self._register()
        except RtolapError:
            self._stop_serving()
            raise
        for thread in self._threads:
            thread.start()
        log.info(
            "receiver %s of %s serves at %s, metrics at %s",
            self.receiver_id,
            self.replica_set,
            self._server.address,
            self._metrics.url,
        )

    def _register(self) -> None:
        record = ReceiverRecord(
            self.receiver_id,
            self._announced_host,
            self.port,
            self.replica_set,
            self._metrics.port,
            machine=self._machine,
            rack=self._rack,
            program=rtolap.__version__,
        )
        if self._placement in ("off", "warn"):
            self._metadata.register_receiver(record)
            return
        self._metadata.announce_live(self.receiver_id, self._instance)
        self._metadata.register_apart(record, self._placement)

    def stop(self) -> bool:
        """Stop gracefully: each cube writes a checkpoint and gives leadership back.

        False where queries are still open: see `servers.flight_server.shut_down`.
        """
        self._stopping.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(30)
        return self._stop_serving()

    def _stop_serving(self) -> bool:
        self.cubes.stop()
        self._election.close()
        drained = shut_down(self._server)
        self._metrics.close()
        self._cubes.close()
        return drained

    # -- requests of the server -------------------------------------------------------------------------

    def query(self, query: PartialQuery) -> pa.Table:
        deadline_s = self._clock.monotonic_s() + query.timeout_ms / 1000
        epoch = query.snapshot.assignment_epoch
        self.cubes.wait_begun(query.cube, epoch, min(BEGIN_WAIT_S, query.timeout_ms / 1000))
        left_s = deadline_s - self._clock.monotonic_s()
        return self.cubes.runner(query.cube, epoch).query(query, left_s)

    def stats(self) -> ReceiverStats:
        leading = self._election.is_leader()
        cubes = tuple(
            cube_stats(runner.core, self._clock, is_leader=leading) for runner in self.cubes.served().values()
        )
        return ReceiverStats(
            receiver_id=self.receiver_id,
            replica_set=self.replica_set,
            address=self._server.address,
            cubes=cubes,
            memory_bytes=sum(
                cube.cuboid_bytes + sum(s.bytes for s in cube.segments if s.memory_rows) for cube in cubes
            ),
            started_ms=self._started_ms,
        )

    def pause(self, cube: str, paused: bool) -> None:
        runner = self.cubes.runner(cube)

        def switch() -> None:
            runner.core.pause(paused)
            if not paused:
                runner.core.restart()

        runner.ask(switch)

    def checkpoint(self, cube: str) -> None:
        runner = self.cubes.runner(cube)
        runner.ask(runner.core.checkpoint)

    def close_segments(self, cube: str, segments: list[str]) -> None:
        self.cubes.runner(cube).close_segments(segments)

    # -- control ----------------------------------------------------------------------------------------

    def _run_control(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._metadata.store.connected():
                    self._metadata.announce_live(self.receiver_id, self._instance)
                    self.cubes.follow()
                    self._giving_way.observe(self.cubes.failed())
            except RtolapError as error:
                log.warning("control waits: %s", error)
            except Exception:
                log.exception("control waits")
            self._wake.wait(CONTROL_EVERY_S)
            self._wake.clear()


class GivingWay:
    """Gives leadership up once for each failure.

    If the next leader fails too, leadership returns and stays.
    """

    def __init__(self, election: Election) -> None:
        self._election = election
        self._given: frozenset[str] = frozenset()  # failed cubes for which it gave way

    def observe(self, failed: Collection[str]) -> None:
        """Note the cubes that this receiver no longer reads (`failed`)."""
        self._given = self._given.intersection(failed)
        if not self._election.is_leader() or self._given.issuperset(failed):
            return
        if self._election.step_back():
            log.warning("another receiver may lead: this one has failed at %s", ", ".join(sorted(failed)))
            self._given = frozenset(failed)

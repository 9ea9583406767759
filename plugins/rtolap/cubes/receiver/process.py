"""A receiver process: registration, election, heartbeats, and one `CubeRunner` for each cube it is assigned.

Losing the ZooKeeper session costs leadership, not data: it goes on consuming and serving, closes and
uploads nothing, and announces itself again in the new session.

A receiver that has failed at a cube lets another one lead its replica set.

The leader closes and uploads for its replica set: one that no longer reads a cube holds up that cube's
history, though a follower could go on with it.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Collection
from typing import NamedTuple

import pyarrow as pa

from rtolap.base.errors import NotFound, RtolapError, Unavailable
from rtolap.base.metrics import Metrics
from rtolap.cubes.receiver.ahead import AheadRunner, HeldElection, runner_of
from rtolap.cubes.receiver.assembly import UNREACHABLE, CubeAssembly
from rtolap.cubes.receiver.flight import ReceiverFlightServer
from rtolap.cubes.receiver.metrics import ReceiverMetrics
from rtolap.cubes.receiver.reports import Heartbeats, cube_stats
from rtolap.cubes.receiver.runner import CubeRunner
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.metadata import paths
from rtolap.metadata.cluster_store import show_refused
from rtolap.metadata.records import ChangeLog, CubeControl, ReceiverRecord
from rtolap.metadata.store import Election
from rtolap.metadata.updates import read
from rtolap.model.cube import Schema
from rtolap.model.validation.cube_changes import begins_again
from rtolap.protocols.receiver.messages import PartialQuery, ReceiverStats
from rtolap.servers.flight_server import shut_down
from rtolap.servers.limits import FlightLimits, HttpLimits
from rtolap.servers.metrics_server import MetricsServer

log = logging.getLogger(__name__)

CONTROL_EVERY_S = 1.0
RIGHTS_RETRY_S = 10.0
LEADER_WAIT_S = 5.0  # its followers have begun again with a changed cube by then
BEGIN_WAIT_S = 2.0  # what a query waits for a cube that this receiver is just being given


class StartRefusal(NamedTuple):
    reason: str
    retry_at_s: float  # of the monotonic clock


class ReceiverService:
    def __init__(
        self,
        cubes: CubeAssembly,
        *,
        host: str,
        port: int,
        metrics_port: int = 0,
        http_limits: HttpLimits,
        flight_limits: FlightLimits = FlightLimits(),
        show_clients: Callable[[Metrics], None] = lambda metrics: None,
    ) -> None:
        """Take the cubes and addresses. `show_clients` adds the figures of its Kafka clients to the
        metrics."""
        receiver_id, replica_set, token = cubes.receiver_id, cubes.replica_set, cubes.token
        metadata, clock = cubes.metadata, cubes.clock
        self.receiver_id = receiver_id
        self.replica_set = replica_set
        self._host = host
        self._metadata = metadata
        self._clock = clock
        self._cubes = cubes
        self._instance = uuid.uuid4().hex
        self._started_ms = clock.now_ms()
        self._runners: dict[str, CubeRunner] = {}
        self._changed_since_s: dict[str, float] = {}  # cubes that it has to begin again with
        self._ahead: dict[str, AheadRunner] = {}
        self._refusals: dict[str, StartRefusal] = {}  # cubes of its own that Kafka does not let it start
        self._lock = threading.Lock()
        self._begun = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        metrics = ReceiverMetrics(self.stats).registry
        show_clients(metrics)
        show_refused(metrics, metadata.store)
        self._server = ReceiverFlightServer(
            self, host=host, port=port, token=token, metrics=metrics, limits=flight_limits
        )
        self.port: int = self._server.port
        self._metrics = MetricsServer(metrics, host=host, port=metrics_port, token=token, limits=http_limits)
        self._election = metadata.store.elect(
            paths.replica_set_election(replica_set), receiver_id, self._wake.set
        )
        self._giving_way = GivingWay(self._election)
        metadata.store.watch(paths.CUBES, self._wake.set)
        beats = Heartbeats(
            receiver_id=receiver_id,
            replica_set=replica_set,
            token=token,
            metadata=metadata,
            election=self._election,
            clock=clock,
            runners=self._served,
            not_started=self.not_started,
            ahead=self._read_ahead,
        )
        self._threads = [
            threading.Thread(target=self._run_control, name="control", daemon=True),
            threading.Thread(target=beats.run, args=(self._stopping,), name="heartbeats", daemon=True),
        ]

    # -- life -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._metadata.register_receiver(
            ReceiverRecord(self.receiver_id, self._host, self.port, self.replica_set, self._metrics.port)
        )
        for thread in self._threads:
            thread.start()
        log.info(
            "receiver %s of %s serves at %s:%d, metrics at %s",
            self.receiver_id,
            self.replica_set,
            self._host,
            self.port,
            self._metrics.url,
        )

    def stop(self) -> bool:
        """Stop gracefully: each cube writes a checkpoint and gives leadership back.

        False where queries are still open: see `servers.flight_server.shut_down`.
        """
        self._stopping.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(30)
        with self._lock:
            runners = [*self._runners.values(), *(one.runner for one in self._ahead.values())]
            self._runners, self._ahead = {}, {}
        for runner in runners:
            runner.stop()
        self._election.close()
        drained = shut_down(self._server)
        self._metrics.close()
        self._cubes.close()
        return drained

    # -- requests of the server -------------------------------------------------------------------------

    def query(self, query: PartialQuery) -> pa.Table:
        deadline_s = self._clock.monotonic_s() + query.timeout_ms / 1000
        epoch = query.snapshot.assignment_epoch
        self._wait_begun(query.cube, epoch, min(BEGIN_WAIT_S, query.timeout_ms / 1000))
        left_s = deadline_s - self._clock.monotonic_s()
        return self._runner(query.cube, epoch).query(query, left_s)

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
            memory_bytes=sum(
                cube.cuboid_bytes + sum(s.bytes for s in cube.segments if s.memory_rows) for cube in cubes
            ),
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

    def _wait_begun(self, cube: str, epoch: int | None, timeout_s: float) -> None:
        """Wait until the receiver has begun with a cube. A query may know of an assignment before this
        receiver has looked: it looks at once."""
        with self._begun:
            if runner_of(cube, epoch, self._runners, self._ahead) is None:
                self._wake.set()
                self._begun.wait_for(
                    lambda: runner_of(cube, epoch, self._runners, self._ahead) is not None, timeout_s
                )

    def _runner(self, cube: str, epoch: int | None = None) -> CubeRunner:
        with self._lock:
            runner = runner_of(cube, epoch, self._runners, self._ahead)
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
                    self._giving_way.observe(self._failed())
            except RtolapError as error:
                log.warning("control waits: %s", error)
            except Exception:
                log.exception("control waits")
            self._wake.wait(CONTROL_EVERY_S)
            self._wake.clear()

    def _failed(self) -> list[str]:
        return [
            name
            for name, runner in self._runners.items()
            if runner.core.consumer_state is ConsumerState.FAILED
        ]

    def _follow_cubes(self) -> None:
        """Start a runner where this replica set is named, end it where the cube is gone or another one."""
        cubes = {name: self._cube_id(name) for name in self._metadata.cubes()}
        for name in [name for name, one in self._ahead.items() if cubes.get(name) != one.runner.cube_id]:
            self._discard_ahead(name)
        for name in [name for name, runner in self._runners.items() if cubes.get(name) != runner.cube_id]:
            with self._lock:
                runner = self._runners.pop(name)
            log.info("cube %s was dropped", name)
            runner.stop()
            shutil.rmtree(self._cubes.slots(name, runner.cube_id).base, ignore_errors=True)
        for name, cube_id in cubes.items():  # first: what a move has made ready serves at once
            try:
                self._follow_move(name, cube_id)
            except NotFound:
                continue  # dropped in between
        self._take_changes()
        for name in set(cubes) - set(self._runners):
            try:
                self._begin_assigned(name, cubes[name])
            except NotFound:
                self._forget_refusal(name)  # dropped in between
        for name in set(self._refusals) - set(cubes):
            self._forget_refusal(name)

    def _take_changes(self) -> None:
        """Begin again with cubes whose definition has changed. A leader does so a while after its followers,
        so that one of a replica set answers meanwhile."""
        for name, runner in self._served().items():
            if name in self._ahead:
                continue  # after the move: its folders are open
            try:
                schema, control = self._metadata.schema(name), self._metadata.control(name)
            except NotFound:
                continue  # dropped meanwhile: the next look ends it
            if not begins_again(runner.schema.cube, schema.cube):
                self._changed_since_s.pop(name, None)
                continue
            since_s = self._changed_since_s.setdefault(name, time.monotonic())
            if self._election.is_leader() and time.monotonic() - since_s < LEADER_WAIT_S:
                continue
            log.info("cube %s has changed: beginning again", name)
            with self._lock:
                self._runners.pop(name)
            runner.stop()
            self._changed_since_s.pop(name, None)
            self._begin(schema, runner.cube_id, control)

    def _follow_move(self, name: str, cube_id: str) -> None:
        """Begin ahead of an assignment that is prepared; when it stands, serve by it. Crash orderings:
        docs/decisions/0074."""
        serving = self._runners.get(name)
        control = serving.control() if serving is not None else self._metadata.control(name)
        one = self._ahead.get(name)
        if one is not None and one.stands(control):
            self._promote(name, cube_id, one)
        elif one is not None and one.void(control):
            self._discard_ahead(name)
        planned = control.warms(self.replica_set) if control.enabled else None
        if planned is not None and name not in self._ahead:
            self._cubes.slots(name, cube_id).clean(planned.epoch)
            election = HeldElection(self._election)
            runner = self._cubes.runner(self._metadata.schema(name), cube_id, election, ahead=planned)
            with self._begun:
                self._ahead[name] = AheadRunner(runner, planned, election)
                self._begun.notify_all()
            runner.start()
            log.info("cube %s: warming up for epoch %d", name, planned.epoch)

    def _promote(self, name: str, cube_id: str, one: AheadRunner) -> None:
        slots = self._cubes.slots(name, cube_id)
        with self._begun:  # 1. statements of every epoch go to it
            before = self._runners.get(name)
            self._runners[name] = one.runner
            del self._ahead[name]
            self._begun.notify_all()
        one.election.release()
        slots.promote(one.runner.core.file.folder)  # 2. a start begins with what it has read
        if before is not None:
            before.stop()  # 3.
        slots.clean()  # 4.
        log.info("cube %s: serving by epoch %d", name, one.planned.epoch)

    def _discard_ahead(self, name: str) -> None:
        with self._lock:
            one = self._ahead.pop(name)
        one.runner.stop()
        shutil.rmtree(one.runner.core.file.folder, ignore_errors=True)
        log.info("cube %s: epoch %d is given up", name, one.planned.epoch)

    def _begin_assigned(self, name: str, cube_id: str) -> None:
        control = self._metadata.control(name)
        if self.replica_set not in control.assignment:
            self._forget_refusal(name)
            return
        ahead = self._ahead.get(name)
        if ahead is not None and ahead.stands(control):
            return  # the next round lets it serve: its folder is open
        refusal = self._refusals.get(name)
        if refusal is not None and time.monotonic() < refusal.retry_at_s:
            return
        try:
            self._begin(self._metadata.schema(name), cube_id, control)
        except UNREACHABLE as error:
            # Other cubes go on. The right may be granted at any time, so it is checked again.
            log.error("cube %s is not started: %s", name, error)
            with self._lock:
                self._refusals[name] = StartRefusal(
                    f"it is not started: {error}", time.monotonic() + RIGHTS_RETRY_S
                )

    def _forget_refusal(self, name: str) -> None:
        with self._lock:
            self._refusals.pop(name, None)

    def _cube_id(self, cube: str) -> str:
        log_of_changes = read(self._metadata.store, paths.cube_changes(cube), ChangeLog)
        return log_of_changes.cube_id if log_of_changes is not None else ""

    def _begin(self, schema: Schema, cube_id: str, control: CubeControl) -> None:
        epoch = control.assignment_epoch
        runner = self._cubes.runner(schema, cube_id, self._election, epoch=epoch)
        slots = self._cubes.slots(schema.cube.name, cube_id)
        slots.clean(control.next.epoch if control.next is not None else None)
        with self._begun:
            self._runners[schema.cube.name] = runner
            self._refusals.pop(schema.cube.name, None)
            self._begun.notify_all()
        runner.start()
        log.info("cube %s: serving", schema.cube.name)

    def _served(self) -> dict[str, CubeRunner]:
        with self._lock:
            return dict(self._runners)

    def _read_ahead(self) -> dict[str, CubeRunner]:
        with self._lock:
            return {name: one.runner for name, one in self._ahead.items()}

    def not_started(self) -> dict[str, str]:
        """Return, by cube, why Kafka does not let this receiver start it."""
        with self._lock:
            return {name: refusal.reason for name, refusal in self._refusals.items()}


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

"""Runs a cube: a core thread steps, a worker does what takes long, and another thread looks up log ends.

Only the core thread changes the core's state. Others hand it functions through `ask`; queries read it and
wait on `changed`.

The core steps at once on a quiet stream, seldom enough on a busy one. A step has a fixed cost, whatever it
takes in. The pause after a step grows with the time that the step took, so that steps under load take in more
each and use a bounded share of the processor for what is fixed; it is bounded, so that nothing waits long to
be seen. A step that took longer than the bound is followed at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from rtolap.base.clock import Clock
from rtolap.base.errors import Corrupted, NotReached, RtolapError, Unavailable
from rtolap.base.ids import bound, forget
from rtolap.cubes.receiver.answers.query_service import NotReady, answer
from rtolap.cubes.receiver.answers.result_cache import ResultCache
from rtolap.cubes.receiver.background_work import BackgroundWork, CoreRequests
from rtolap.cubes.receiver.core.closing_commits import ClosingCommits
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.core.topic_watch import LOG_END_EVERY_S
from rtolap.cubes.receiver.host_reports import WatermarkReports
from rtolap.cubes.receiver.local.realign import RangeReader
from rtolap.cubes.receiver.pace import StepPace
from rtolap.cubes.receiver.states import READING
from rtolap.cubes.receiver.upload import Uploader
from rtolap.cubes.receiver.views import ViewSource
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, NextAssignment, move_id
from rtolap.metadata.store import Election
from rtolap.model.completeness import Completeness
from rtolap.model.cube import Schema
from rtolap.model.instants import utc_text
from rtolap.model.segment import parse_segment_name
from rtolap.protocols.receiver.messages import PartialQuery
from rtolap.watermark_client.client import WatermarkClient

log = logging.getLogger(__name__)

T = TypeVar("T")

OpenWatermarkClient = Callable[[tuple[str, ...], str], WatermarkClient]  # coordinators, application

POLL_S = 0.05  # a poll returns as soon as something has arrived
WORK_EVERY_S = 0.1
STOP_TIMEOUT_S = 60.0


class CubeRunner:
    def __init__(
        self,
        schema: Schema,
        core: CubeReceiver,
        *,
        cube_id: str,
        receiver_id: str,
        replica_set: str,
        metadata: ClusterMetadata,
        election: Election,
        reader: RangeReader,
        uploader: Uploader,
        clock: Clock,
        open_watermark_client: OpenWatermarkClient,
        ahead: NextAssignment | None = None,
        restored: str = "",
    ) -> None:
        """Take the parts of a running cube. `ahead`: the assignment it follows before that stands.
        `restored`: of the control record under which its state begins."""
        self.schema = schema
        self.core = core
        self.cube_id = cube_id
        self.restored = restored
        self.changed = threading.Condition()
        self._receiver_id = receiver_id
        self._metadata = metadata
        self._clock = clock
        self._pace = StepPace(clock.monotonic_s())
        self._stopping = threading.Event()
        self._core_stopping = threading.Event()
        self._writes_last = True
        self._requests = CoreRequests(schema.cube.name, receiver_id)
        self._results = ResultCache(schema, core.settings.result_bytes_max)
        self._commits = ClosingCommits(
            schema,
            core,
            cube_id=cube_id,
            by=f"{replica_set}/{receiver_id}",
            metadata=metadata,
            election=election,
            clock=clock,
        )
        self._views = ViewSource(
            metadata, schema.cube.name, cube_id, election, schema.cube.segment.window_ms, ahead
        )
        self._work = BackgroundWork(
            schema,
            core,
            cube_id=cube_id,
            replica_set=replica_set,
            metadata=metadata,
            election=election,
            reader=reader,
            uploader=uploader,
            views=self._views,
            requests=self._requests,
            stopping=self._stopping,
            clock=clock,
        )
        name = schema.cube.name
        self._ids = {"cube": name}
        if ahead is not None:
            self._ids["move"] = move_id(name, ahead.epoch)
        self._threads = [
            self._thread("core", self._run_core),
            self._thread("work", self._run_worker),
        ]
        self._ends = self._thread("ends", self._run_log_ends)
        self._reports: threading.Thread | None = None
        if (mark := schema.cube.watermark) is not None:
            reports = WatermarkReports(
                mark,
                core,
                views=self._views,
                clock=clock,
                ask=self._requests.ask,
                coordinators=self._coordinators,
                open_client=lambda urls: open_watermark_client(urls, mark.application),
            )
            self._reports = self._thread("reports", lambda: self._run_reports(reports))

    def _thread(self, what: str, run: Callable[[], None]) -> threading.Thread:
        """Return a thread that works for the cube, and for the move that it warms up for."""

        def working() -> None:
            with bound(self._ids):
                run()

        return threading.Thread(target=working, name=f"{what}-{self.schema.cube.name}", daemon=True)

    def stand(self) -> None:
        """Note that the assignment which it was ahead of stands: the move is over."""
        self._ids.pop("move", None)

    def _forget_move(self) -> None:
        """Let lines of this thread name the move no more, once it is over."""
        if "move" not in self._ids:
            forget("move")

    def start(self) -> None:
        self._ends.start()  # first: the core waits for its end
        for thread in self._threads:
            thread.start()
        if self._reports is not None:
            self._reports.start()

    def stop(self, *, checkpoint: bool = True) -> None:
        """End the worker, which may still wait for the core, then the core.

        Args:
            checkpoint: True if the core writes a last checkpoint; False where its folder goes anyway.
        """
        core, worker = self._threads
        self._writes_last = checkpoint
        self._stopping.set()
        worker.join(STOP_TIMEOUT_S)
        if self._reports is not None:
            self._reports.join(STOP_TIMEOUT_S)
        self._requests.refuse_more()
        self._core_stopping.set()
        core.join(STOP_TIMEOUT_S)
        self._views.close()

    @property
    def alive(self) -> bool:
        beside = () if self._reports is None else (self._reports,)
        return all(thread.is_alive() for thread in (*self._threads, self._ends, *beside))

    def control(self) -> CubeControl:
        """Return the control record as it is known now, for any thread."""
        return self._views.control()

    def offer_watermark(self, low_watermark_ms: int) -> None:
        """Offer a watermark. A smaller one than before is not taken."""
        self._views.offer_watermark(low_watermark_ms)

    def offer_windows(self, windows: tuple[Completeness, ...]) -> None:
        """Take the windows that the cube's application approves; windows older than before are not taken."""
        self._views.offer_windows(windows)

    # -- requests of other threads ----------------------------------------------------------------------

    def ask(self, function: Callable[[], T]) -> T:
        """Run `function` on the core thread: see `background_work.CoreRequests`."""
        return self._requests.ask(function)

    def close_segments(self, names: list[str]) -> None:
        starts = {parse_segment_name(name).start_ms for name in names}
        self.ask(lambda: self.core.force.update(starts))

    def query(self, query: PartialQuery, timeout_s: float) -> pa.Table:
        """Wait, for as long as the query has left, for a state that can answer it."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            epoch, state = self.core.epoch, self.core.state
            try:
                return answer(
                    self.schema,
                    state,
                    query,
                    owned=self.core.owned,
                    receiver_id=self._receiver_id,
                    progress=self.core.progress,
                    cache=self._results,
                    pause_reason=self._pause_reason(),
                )
            except Corrupted as error:  # another receiver may answer; the worker stops this one's consumer
                raise Unavailable(f"receiver {self._receiver_id} has lost data: {error}") from error
            except NotReady as reason:
                if query.ahead:
                    raise
                if self._core_stopping.is_set():  # this state grows no more
                    raise Unavailable(
                        f"receiver {self._receiver_id} begins again with cube {self.schema.cube.name}",
                        action="ask another receiver, or this one again",
                    ) from reason
                self.core.promise(query.at_least)
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0:
                    raise self._not_reached(query, reason) from reason
                with self.changed:
                    if self.core.epoch == epoch:
                        self.changed.wait(min(left_s, 0.5))

    def _not_reached(self, query: PartialQuery, reason: NotReady) -> NotReached:
        pause_reason = self._pause_reason()
        return NotReached(
            f"receiver {self._receiver_id} could not catch up in {query.timeout_ms} ms: {reason}"
            + (f"; it is held: {pause_reason}" if pause_reason else "")
        )

    def _pause_reason(self) -> str:
        since_ms = self.core.paused_since_ms
        return "" if since_ms is None else f"{self.core.reason}, since {utc_text(since_ms)}"

    def _every_s(self, usual_s: float) -> float:
        return self._pace.every_s(usual_s, self._clock.monotonic_s())

    # -- the core thread --------------------------------------------------------------------------------

    def _run_core(self) -> None:
        epoch, pace = -1, self._pace
        while not self._core_stopping.wait(pace.wait_s(self._clock.monotonic_s())):
            self._forget_move()
            self._requests.serve()
            begun_s = self._clock.monotonic_s()
            try:
                if self.core.step(self._views.view(), pace.every_s(POLL_S, begun_s)):
                    pace.stepped(begun_s, self._clock.monotonic_s())
                self._commits.close_due()
            except RtolapError as error:
                log.warning("cube %s: %s", self.schema.cube.name, error)
                self._core_stopping.wait(POLL_S)
            except Exception as error:
                log.exception("cube %s", self.schema.cube.name)
                self.core.fail(RtolapError(f"unexpected {type(error).__name__}: {error}"))
            if self.core.epoch != epoch:
                epoch = self.core.epoch
                with self.changed:
                    self.changed.notify_all()
            if self.core.consumer_state not in READING:
                self._core_stopping.wait(pace.every_s(POLL_S, begun_s))
        self._requests.end()
        try:
            if self._writes_last:
                self.core.checkpoint()
        except (OSError, RtolapError) as error:
            log.error("cube %s: last checkpoint failed: %s", self.schema.cube.name, error)
        self._ends.join()  # it uses the consumer; a look-up is bounded
        self.core.close()

    def _run_log_ends(self) -> None:
        looked: tuple[frozenset[int], float] = (frozenset(), float("-inf"))
        while not self._core_stopping.wait(self._every_s(POLL_S)):
            self._forget_move()
            partitions, now_s = frozenset(self.core.state.positions), self._clock.monotonic_s()
            if partitions == looked[0] and now_s - looked[1] < LOG_END_EVERY_S:
                continue
            looked = (partitions, now_s)
            try:
                self.core.look_up_log_ends()
            except Exception:
                log.exception("log ends of cube %s", self.schema.cube.name)

    def _run_reports(self, reports: WatermarkReports) -> None:
        forget("move")  # reports are of the cube, whatever it warms up for
        reports.run(self._stopping)

    def _coordinators(self) -> tuple[str, ...]:
        """Return the addresses of the candidates for election; none while ZooKeeper does not answer."""
        return tuple(self._metadata.coordinators()) if self._metadata.store.connected() else ()

    # -- the worker thread ------------------------------------------------------------------------------

    def _run_worker(self) -> None:
        while not self._stopping.wait(self._every_s(WORK_EVERY_S)):
            self._forget_move()
            self._work.run_once()

"""One cube at work: a core thread that steps, a worker for what takes long, a thread that looks up log ends.

Only the core thread changes the core's state. Others hand it functions through `ask`; queries read it and
wait on `changed`.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import TypeVar

import pyarrow as pa

from rtolap.base.clock import Clock
from rtolap.base.errors import CommitConflict, NotFound, Refused, RtolapError, Unavailable
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.store import Election
from rtolap.metadata.view import SegmentView
from rtolap.model.cube import Schema
from rtolap.model.offsets import Offsets
from rtolap.model.segment import parse_segment_name
from rtolap.receiver import fragments
from rtolap.receiver.ingest import CubeReceiver
from rtolap.receiver.log_ends import LOG_END_EVERY_S
from rtolap.receiver.query_service import NotReady, answer
from rtolap.receiver.realign import RangeReader, realign_job
from rtolap.receiver.states import READING
from rtolap.receiver.upload import Uploader, close_segment, upload_job
from rtolap.receiver.view import CubeView
from rtolap.stream.consumer import OffsetsGone
from rtolap.wire.receiver import PartialQuery

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_S = 0.05  # a poll returns as soon as something has arrived
CLOSE_EVERY_S = 0.2
CLOSINGS_MAX = 4  # commits a round: consuming waits for them
WORK_EVERY_S = 0.1
REQUESTS_MAX = 64
REQUEST_TIMEOUT_S = 60.0
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
    ) -> None:
        self.schema = schema
        self.core = core
        self.cube_id = cube_id
        self.changed = threading.Condition()
        self.low_watermark_ms: int | None = metadata.published_watermark_ms(schema.cube.name)
        self._receiver_id = receiver_id
        self._replica_set = replica_set
        self._metadata = metadata
        self._election = election
        self._reader = reader
        self._uploader = uploader
        self._clock = clock
        self._segments = SegmentView(metadata, schema.cube.name)
        self._converted: tuple[object, Mapping[int, SegmentRecord]] = (None, {})
        self._start_offsets: Offsets = {}
        self._start_epoch = -1
        self._requests: queue.Queue[tuple[Callable[[], object], Future[object]]] = queue.Queue(REQUESTS_MAX)
        self._stopping = threading.Event()
        self._core_stopping = threading.Event()
        self._closed_at_s = float("-inf")
        self._replayed: Offsets = {}
        name = schema.cube.name
        self._threads = [
            threading.Thread(target=self._run_core, name=f"core-{name}", daemon=True),
            threading.Thread(target=self._run_worker, name=f"work-{name}", daemon=True),
        ]
        self._ends = threading.Thread(target=self._run_log_ends, name=f"ends-{name}", daemon=True)

    def start(self) -> None:
        self._ends.start()  # first: the core waits for its end
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the worker, which may still wait for the core, then the core, which writes a checkpoint."""
        core, worker = self._threads
        self._stopping.set()
        worker.join(STOP_TIMEOUT_S)
        self._core_stopping.set()
        core.join(STOP_TIMEOUT_S)
        self._segments.close()

    @property
    def alive(self) -> bool:
        return all(thread.is_alive() for thread in (*self._threads, self._ends))

    def offer_watermark(self, low_watermark_ms: int) -> None:
        """A smaller one than before is not taken."""
        self.low_watermark_ms = max(low_watermark_ms, self.low_watermark_ms or low_watermark_ms)

    # -- requests of other threads ----------------------------------------------------------------------

    def ask(self, what: Callable[[], T]) -> T:
        """Run `what` on the core thread. Errors of `what` pass through; Unavailable if it takes too long."""
        future: Future[object] = Future()
        if self._core_stopping.is_set():
            raise self._ending()
        try:
            self._requests.put((what, future), timeout=1.0)
            return future.result(REQUEST_TIMEOUT_S)  # type: ignore[return-value]
        except (queue.Full, FutureTimeout) as error:
            raise Unavailable(
                f"cube {self.schema.cube.name} is busy", action="try again, or look at its state"
            ) from error

    def close_segments(self, names: list[str]) -> None:
        starts = {parse_segment_name(name).start_ms for name in names}
        self.ask(lambda: self.core.force.update(starts))

    def query(self, query: PartialQuery) -> pa.Table:
        """Wait, within the query's own time-out, for a state that can answer it."""
        deadline_s = self._clock.monotonic_s() + query.timeout_ms / 1000
        while True:
            epoch, state = self.core.epoch, self.core.state
            try:
                return answer(self.schema, state, query, owned=self.core.owned, receiver_id=self._receiver_id)
            except NotReady as reason:
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0:
                    raise Unavailable(
                        f"receiver {self._receiver_id} could not catch up in {query.timeout_ms} ms: {reason}"
                    ) from reason
                with self.changed:
                    if self.core.epoch == epoch:
                        self.changed.wait(min(left_s, 0.5))

    # -- the core thread --------------------------------------------------------------------------------

    def _run_core(self) -> None:
        epoch = -1
        while not self._core_stopping.is_set():
            self._serve_requests()
            try:
                self.core.step(self._view(), POLL_S)
                self._close_due()
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
                self._core_stopping.wait(POLL_S)
        self._refuse_requests()
        try:
            self.core.checkpoint()
        except (OSError, RtolapError) as error:
            log.error("cube %s: last checkpoint failed: %s", self.schema.cube.name, error)
        self._ends.join()  # it uses the consumer; a look-up is bounded
        self.core.close()

    def _run_log_ends(self) -> None:
        looked: tuple[frozenset[int], float] = (frozenset(), float("-inf"))
        while not self._core_stopping.wait(POLL_S):
            partitions, now_s = frozenset(self.core.state.positions), self._clock.monotonic_s()
            if partitions == looked[0] and now_s - looked[1] < LOG_END_EVERY_S:
                continue
            looked = (partitions, now_s)
            try:
                self.core.look_up_log_ends()
            except Exception:
                log.exception("log ends of cube %s", self.schema.cube.name)

    def _ending(self) -> Unavailable:
        return Unavailable(f"receiver {self._receiver_id} is ending", action="ask another receiver")

    def _refuse_requests(self) -> None:
        while not self._requests.empty():
            _, future = self._requests.get_nowait()
            future.set_exception(self._ending())

    def _serve_requests(self) -> None:
        while not self._requests.empty():
            what, future = self._requests.get_nowait()
            try:
                future.set_result(what())
            except Exception as error:  # noqa: BLE001  belongs to the asker
                future.set_exception(error)

    def _view(self) -> CubeView:
        control, by_name = self._segments.snapshot()
        connected = self._metadata.store.connected()
        if control.enabled and control.assignment_epoch != self._start_epoch and connected:
            # First where history ends, then the records: never the other way round, or events between
            # an older view of history and a newer start would be nowhere.
            self._start_offsets = self._metadata.replay_from(self.schema.cube.name)
            self._segments.refresh()
            self._start_epoch = control.assignment_epoch
            control, by_name = self._segments.snapshot()
        if self._converted[0] is not by_name:
            self._converted = (by_name, {record.start_ms: record for record in by_name.values()})
        return CubeView(
            control=control,
            records=self._converted[1],
            start_offsets=self._start_offsets,
            leading=self._election.is_leader(),
            connected=connected,
            low_watermark_ms=self.low_watermark_ms,
        )

    def _close_due(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._closed_at_s < CLOSE_EVERY_S:
            return
        self._closed_at_s = now_s
        for one in self.core.closings()[:CLOSINGS_MAX]:
            by = f"{self._replica_set}/{self._receiver_id}, {one.why}"
            try:
                close_segment(self._metadata, self.schema, one.start_ms, one.vector, by=by)
            except (Refused, CommitConflict) as error:
                log.info("segment %d of %s is not closed now: %s", one.start_ms, self.schema.cube.name, error)

    # -- the worker thread ------------------------------------------------------------------------------

    def _run_worker(self) -> None:
        while not self._stopping.wait(WORK_EVERY_S):
            for work in (self._realign, self._upload, self._merge, self._tell_replay_from):
                if self._stopping.is_set():
                    return
                try:
                    work()
                except OffsetsGone as error:
                    self.ask(partial(self.core.fail, error))
                except NotFound as error:
                    log.warning("cube %s: %s", self.schema.cube.name, error)
                    self._stopping.wait(self.core.settings.retry_s)
                except (RtolapError, OSError) as error:
                    log.warning("cube %s: work is tried again: %s", self.schema.cube.name, error)
                    self._stopping.wait(self.core.settings.retry_s)
                except Exception:
                    log.exception("cube %s: work is tried again", self.schema.cube.name)
                    self._stopping.wait(self.core.settings.retry_s)

    def _realign(self) -> None:
        while (
            job := realign_job(self.core.state, self.core.held)
        ) is not None and not self._stopping.is_set():
            fresh = self._reader.read(job.start_ms, job.pieces)
            self.ask(partial(self.core.apply_realigned, job.start_ms, (job.table,), fresh))

    def _upload(self) -> None:
        control, _ = self._segments.snapshot()
        while self._election.is_leader() and not self._stopping.is_set():
            _, by_name = self._segments.snapshot()
            records = {record.start_ms: record for record in by_name.values()}
            job = upload_job(self.schema, self.core.state, control, records)
            if job is None:
                return
            try:
                self._uploader.upload(job, control)
            except Refused as error:
                log.warning("part of %s is not taken: %s", job.window.name, error)
            self._segments.refresh()

    def _merge(self) -> None:
        settings = self.core.settings
        job = fragments.merge_job(
            self.core.state.segments,
            fragments_max=settings.fragments_max,
            rows_max=settings.merge_rows_max,
        )
        if job is not None:
            merged = fragments.merge(self.schema, self.core.file.fragments, job)
            self.ask(partial(self.core.apply_merged, job, merged))

    def _tell_replay_from(self) -> None:
        if not (self._election.is_leader() and self._metadata.store.connected() and self.core.checkpointed):
            return
        offsets = self.ask(self.core.replay_from)
        if offsets and offsets != self._replayed:
            self._metadata.set_replay_from(self.schema.cube.name, self._replica_set, offsets)
            self._replayed = offsets

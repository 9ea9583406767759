"""The long work beside the core of one cube: realigning, uploading, merging fragments.

Its results reach the core as requests: functions that run on the core thread, which alone changes the core.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import TypeVar

from rtolap.base.clock import Clock
from rtolap.base.errors import Corrupted, NotFound, Refused, RtolapError, Unavailable
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.local import fragments
from rtolap.cubes.receiver.local.realign import RangeReader, realign_job
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.cubes.receiver.upload import Uploader, upload_job
from rtolap.cubes.receiver.views import ViewSource
from rtolap.kafka.interfaces import LogTruncated, OffsetsGone, TopicRecreated
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.store import Election
from rtolap.model.completeness import EventLoss
from rtolap.model.cube import Schema
from rtolap.model.offsets import Offsets

log = logging.getLogger(__name__)

T = TypeVar("T")

REQUESTS_MAX = 64
REQUEST_TIMEOUT_S = 60.0
_QUEUE_TIMEOUT_S = 1.0

RELEASE_S, RELEASE_BEHIND_S = 10.0, 1.0  # between two times that pages of fragments are released
CUBOID_TABLES_MAX = 8  # get their cuboids in one round
VERIFIED_BYTES_MAX = 128 << 20  # of fragments are verified in one round, and the last one

Losses = tuple[tuple[EventLoss, ...], tuple[EventLoss, ...]]


class CoreRequests:
    """`ask` from any thread; `serve` and `end` on the core thread."""

    def __init__(self, cube: str, receiver_id: str) -> None:
        self._cube = cube
        self._receiver_id = receiver_id
        self._queue: queue.Queue[tuple[Callable[[], object], Future[object]]] = queue.Queue(REQUESTS_MAX)
        self._ended = False

    def ask(self, function: Callable[[], T]) -> T:
        """Run `function` on the core and return its result. Its errors pass through; Unavailable if it
        takes too long."""
        future: Future[object] = Future()
        if self._ended:
            raise self._ending()
        try:
            self._queue.put((function, future), timeout=_QUEUE_TIMEOUT_S)
            return future.result(REQUEST_TIMEOUT_S)  # type: ignore[return-value]
        except (queue.Full, FutureTimeout) as error:
            raise Unavailable(
                f"cube {self._cube} is busy", action="try again, or look at its state"
            ) from error

    def serve(self) -> None:
        while not self._queue.empty():
            function, future = self._queue.get_nowait()
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001  belongs to the asker
                future.set_exception(error)

    def refuse_more(self) -> None:
        """Take no more work. It may be called from any thread. `serve` or `end` answers what is queued."""
        self._ended = True

    def end(self) -> None:
        self._ended = True
        while not self._queue.empty():
            _, future = self._queue.get_nowait()
            future.set_exception(self._ending())

    def _ending(self) -> Unavailable:
        return Unavailable(f"receiver {self._receiver_id} is ending", action="ask another receiver")


@dataclass(eq=False)
class BackgroundWork:
    """Takes immutable values from the core and hands results back as requests."""

    schema: Schema
    core: CubeReceiver
    cube_id: str
    replica_set: str
    metadata: ClusterMetadata
    election: Election
    reader: RangeReader
    uploader: Uploader
    views: ViewSource
    requests: CoreRequests
    stopping: Event
    clock: Clock
    _replayed: Offsets = field(default_factory=dict, init=False)
    _unreadable: dict[int, Losses] = field(default_factory=dict, init=False)  # by segment start

    def __post_init__(self) -> None:
        self._released_s = self.clock.monotonic_s()

    def run_once(self) -> None:
        """Do each kind of work once. Failures are logged and tried again."""
        for work in (
            self._realign,
            self._upload,
            self._merge,
            self._verify,
            self._keep_cuboids,
            self._release_pages,
            self._tell_replay_from,
        ):
            if self.stopping.is_set():
                return
            self._guarded(work)

    def _guarded(self, work: Callable[[], None]) -> None:
        cube = self.schema.cube.name
        try:
            try:
                work()
                return
            except LogTruncated as error:  # the core finds it too, and decides
                log.warning("cube %s: %s", cube, error)
            except (OffsetsGone, Corrupted, TopicRecreated) as error:
                self.requests.ask(partial(self.core.fail, error))
        except NotFound as error:
            log.warning("cube %s: %s", cube, error)
        except (RtolapError, OSError) as error:
            log.warning("cube %s: work is tried again: %s", cube, error)
        except Exception:
            log.exception("cube %s: work is tried again", cube)
        self.stopping.wait(self.core.settings.retry_s)

    def _realign(self) -> None:
        core = self.core
        while (
            job := realign_job(core.state, core.valid_partitions)
        ) is not None and not self.stopping.is_set():
            fresh = self.reader.read(job.start_ms, job.pieces, core.control.losses)
            self.requests.ask(partial(core.apply_realigned, job.start_ms, (job.table,), fresh))

    def _upload(self) -> None:
        while self.election.is_leader() and not self.stopping.is_set():
            control, records = self.views.snapshot()
            accepted = (control.losses, control.version_losses)
            self._unreadable = {s: known for s, known in self._unreadable.items() if known == accepted}
            job = upload_job(self.schema, self.core.state, control, records, self._unreadable)
            if job is None:
                return
            self.core.confirm_topic()
            try:
                self.uploader.upload(job, control, self.core.file.fragments)
            except (TopicRecreated, LogTruncated):
                raise
            except OffsetsGone as error:
                if not job.rebuilt:
                    raise
                # Nothing that is read now is missing: the coordinator names what that version has lost.
                self._unreadable[job.window.start_ms] = accepted
                log.error("%s cannot be read again: %s", job.window.name, error)
            except Refused as error:
                log.warning("part of %s is not taken: %s", job.window.name, error)
            fragments.release_pages(job.tables)  # it has read them whole
            self.views.refresh()

    def _merge(self) -> None:
        folder = self.core.file.fragments
        job = fragments.merge_job(self.core.state.segments, self.core.settings)
        if job is not None:
            merged = fragments.merge(self.schema, folder, job)
            self.requests.ask(partial(self.core.apply_merged, job, merged))

    def _verify(self) -> None:
        """Verify a bounded amount of the files that were there when the process began. Statements verify what
        they read."""
        looked_at_bytes = 0
        for fragment in fragments.unverified(self.core.state):
            if self.stopping.is_set() or looked_at_bytes > VERIFIED_BYTES_MAX:
                return
            fragment.verify()
            fragment.load_index()
            looked_at_bytes += fragment.info.bytes

    def _keep_cuboids(self) -> None:
        """Make the cuboids of a few tables, so that other work need not wait for many.

        A consumer that is behind reads first.
        """
        if self.core.consumer_state is ConsumerState.REPLAYING:
            return
        if not (self.schema.cube.aggregation_groups and self.core.settings.cuboid_bytes_max):
            return
        state = self.core.state
        for table in fragments.cuboid_jobs(state)[:CUBOID_TABLES_MAX]:
            if self.stopping.is_set():
                return
            fragments.keep_cuboids(self.schema, state, table, self.core.settings.cuboid_bytes_max)

    def _release_pages(self) -> None:
        """Release the pages of fragments that statements, merges and uploads have read.

        They are read again where they are needed. Without this, a receiver that catches up has nearly all
        that it holds among its own memory.
        """
        is_behind = self.core.consumer_state is ConsumerState.REPLAYING
        now_s = self.clock.monotonic_s()
        if now_s - self._released_s >= (RELEASE_BEHIND_S if is_behind else RELEASE_S):
            self._released_s = now_s
            fragments.release_pages(self.core.state.tables())

    def _tell_replay_from(self) -> None:
        core = self.core
        if core.lowered and self.metadata.store.connected():
            lowered = dict(core.lowered)
            self.metadata.lower_replay_from(self.schema.cube.name, lowered)
            self.requests.ask(partial(core.forget_lowered, lowered))
            self._replayed = {}
        if not (self.election.is_leader() and self.metadata.store.connected() and core.checkpointed):
            return
        offsets = self.requests.ask(core.replay_from)
        if offsets and offsets != self._replayed:
            core.confirm_topic()
            self.metadata.set_replay_from(
                self.schema.cube.name, self.replica_set, offsets, cube_id=self.cube_id
            )
            self._replayed = offsets

"""Catching up of a tablet to versions that it has missed.

A version that this node has prepared itself is published. Otherwise the node requests the version from
another replica. That replica sends the files of single versions, or, once it has compacted them, its whole
tablet, which takes the place of ours. What is prepared here and not among those versions stays prepared.

A copy may take long, for a tablet may be large: it goes on in the background without a time limit, and a
repeated request is answered with how far it is. Where nothing comes for a while its source is pinged; one
that answers no ping, several times in a row, gives no more: the next source is tried, or the next round. What
is read runs on a thread of its own, for a call to a node that stands still may answer to nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread
from typing import TypeAlias

import pyarrow as pa

from rtolap.base.errors import Corrupted, NotFound, Refused, RtolapError, Unavailable
from rtolap.base.ids import CarryingPool, carried
from rtolap.protocols.flight.client import silence
from rtolap.protocols.storage.client import StorageNode
from rtolap.protocols.storage.messages import COPY_DATA, COPY_NAME, CatchUp, CopyRequest, Reached, TabletId
from rtolap.stored.engine.copying import Arriving, Chunk, CopiedVersion, filling, passing
from rtolap.stored.node.loads import Loads
from rtolap.stored.node.tablet_replicas import TabletReplica, TabletReplicas
from rtolap.stored.node.transaction_participant import TransactionParticipant

log = logging.getLogger(__name__)

COPIES_MAX = 2  # at once: they share the disk with loads and readers
ANSWER_S = 5.0  # what a copy is waited for
STALL_S = 5.0  # without a batch, before the source is pinged
PINGS = 3  # left unanswered, before it counts as one that stands still: this machine may be short of time
AHEAD_MAX = 2  # batches that wait
_LOOK_S = 0.5  # how often a reader looks whether its batches are still wanted

_Item: TypeAlias = "pa.RecordBatch | Exception | None"  # None: the end


class CatchingUp:
    """Thread-safe; one copy of a tablet at a time."""

    def __init__(
        self,
        slots: TabletReplicas,
        loads: Loads,
        voting: TransactionParticipant,
        node_at: Callable[[str], StorageNode],
        published: Callable[[TabletReplica], None],
    ) -> None:
        self._slots, self._loads, self._voting = slots, loads, voting
        self._node_at, self._published = node_at, published
        self._lock = Lock()
        self._copies: dict[TabletId, Future[None]] = {}
        self._pool = CarryingPool(COPIES_MAX, thread_name_prefix="copy")

    def close(self) -> None:
        """Give copies up that have not begun, and wait for those under way."""
        self._pool.shutdown(cancel_futures=True)

    def catch_up(self, request: CatchUp) -> Reached:
        """Catch a tablet up; return how far it is now. A tablet that is gone is rebuilt. Raises NotFound
        where a tablet of a later table or incarnation is here.
        """
        slot = self._slots.create(request.tablet, request.schema)
        if slot is None:
            raise NotFound(f"tablet {request.tablet} is not here", found="a later one of its name")
        with self._lock:
            copy = self._copies.get(slot.id)
            if copy is None and not self._advance(request) and request.sources:
                copy = self._copies[slot.id] = self._pool.submit(self._copy, slot, request)
        if copy is not None:
            wait((copy,), ANSWER_S)
            if copy.done():
                self._forget(slot.id, copy)
        return Reached(slot.open().version)

    def _forget(self, tablet: TabletId, copy: Future[None]) -> None:
        """Forget a copy. Raises its error, once."""
        with self._lock:
            is_own = self._copies.get(tablet) is copy
            if is_own:
                del self._copies[tablet]
        if is_own:
            copy.result()

    def _advance(self, request: CatchUp) -> bool:
        """Catch up from what is prepared on this node, and return True if that was enough."""
        for missed in request.missed:
            if missed.version <= self._slots.get(request.tablet).open().version:
                continue
            if missed.txn_id is None or not self._voting.advance(
                request.tablet, missed.txn_id, missed.version
            ):
                return False
        return True

    def _copy(self, slot: TabletReplica, request: CatchUp) -> None:
        """Copy the tablet from the first source that offers something. There may be none at the moment."""
        wanted = request.missed[-1].version
        for source in request.sources:
            try:
                self._copy_from(slot, self._node_at(source))
            except RtolapError as error:
                log.warning("tablet %s cannot be copied from %s: %s", slot.id, source, error)
                continue
            if slot.open().version >= wanted:
                return

    def _copy_from(self, slot: TabletReplica, source: StorageNode) -> None:
        with closing(_batches(source, CopyRequest(slot.id, slot.open().version))) as stream:
            arriving = Arriving(_chunks(stream))
            if arriving.manifest.state is not None:
                self._take_whole(slot, arriving)
            for version in arriving.manifest.versions:
                self._take(slot, arriving, version)
        self._published(slot)

    def _take_whole(self, slot: TabletReplica, arriving: Arriving) -> None:
        state = arriving.manifest.state
        assert state is not None
        for _, txn in state.history:
            self._loads.abort(txn, for_ever=False)
        if slot.replace(arriving):
            log.info("tablet %s was copied whole, at version %d", slot.id, state.version)

    def _take(self, slot: TabletReplica, arriving: Arriving, version: CopiedVersion) -> None:
        tablet = slot.open()
        if tablet.version >= version.version:
            passing(arriving, version)
            return
        # A stream of these very rows may still be open here: what it would bring has come.
        self._loads.abort(version.txn, for_ever=False)
        if tablet.has(version.txn):
            passing(arriving, version)
        else:
            tablet.begin(version.txn).adopt(filling(arriving, version))
        try:
            with slot.changing:
                slot.open().publish(version.txn, version.version)
        except Refused as error:
            if slot.open().version < version.version:
                raise
            log.info("tablet %s has got version %d meanwhile: %s", slot.id, version.version, error)
        except Corrupted:
            with slot.changing:  # the next source, or the next round, brings these rows
                slot.open().abort(version.txn)
            raise


def _chunks(stream: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
    for batch in stream:
        names, data = batch.column(COPY_NAME), batch.column(COPY_DATA)
        for at in range(batch.num_rows):
            yield Chunk(names[at].as_py(), data[at].as_py())


def _batches(source: StorageNode, request: CopyRequest) -> Generator[pa.RecordBatch, None, None]:
    """Yield batches of a source; the generator has to be closed. Raises Unavailable for a source that stands
    still, and what reading raises."""
    _require_answer(source, request)
    arrived: Queue[_Item] = Queue(AHEAD_MAX)
    over = Event()
    Thread(target=carried(_read), args=(source, request, arrived, over), name="copied", daemon=True).start()
    try:
        while (item := _next(source, request, arrived)) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        over.set()


def _next(source: StorageNode, request: CopyRequest, arrived: Queue[_Item]) -> _Item:
    while True:
        try:
            return arrived.get(timeout=STALL_S)
        except Empty:
            _require_answer(source, request)


def _require_answer(source: StorageNode, request: CopyRequest) -> None:
    """Raise Unavailable where none of several pings is answered."""
    for _ in range(PINGS):
        silent = silence(source.ping)
        if silent is None:
            return
    raise Unavailable(f"the source of a copy of tablet {request.tablet} answers no ping") from silent


def _read(source: StorageNode, request: CopyRequest, arrived: Queue[_Item], over: Event) -> None:
    try:
        stream = source.copy(request)
        try:
            for batch in stream:
                if not _put(arrived, batch, over):
                    return
        finally:
            stream.cancel()
        _put(arrived, None, over)
    except Exception as error:  # noqa: BLE001 - raised where the batches are taken
        _put(arrived, error, over)


def _put(arrived: Queue[_Item], item: _Item, over: Event) -> bool:
    """Return False once nobody takes it any more."""
    while not over.is_set():
        try:
            arrived.put(item, timeout=_LOOK_S)
        except Full:
            continue
        return True
    return False

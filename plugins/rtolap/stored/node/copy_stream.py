"""The stream of a copy from another node: one that stands still is left, one that works long is waited for.

A copy has no time limit, for a tablet may be large. Where nothing comes for a while its source is pinged; one
that answers no ping, several times in a row, gives no more: the next source is tried, or the next round. What
is read runs on a thread of its own, for a call to a node that stands still may answer to nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeAlias

import pyarrow as pa

from rtolap.base.errors import Unavailable
from rtolap.protocols.flight.client import silence
from rtolap.protocols.storage.client import StorageNode
from rtolap.protocols.storage.messages import CopyRequest

STALL_S = 5.0  # without a batch, before the source is pinged
PINGS = 3  # left unanswered, before it counts as one that stands still: this machine may be short of time
AHEAD_MAX = 2  # batches that wait
_LOOK_S = 0.5  # how often a reader looks whether its batches are still wanted

_Item: TypeAlias = "pa.RecordBatch | Exception | None"  # None: the end


def batches(source: StorageNode, request: CopyRequest) -> Generator[pa.RecordBatch, None, None]:
    """Raises Unavailable for a source that stands still, and what reading raises. To be closed."""
    _require_answer(source, request)
    arrived: Queue[_Item] = Queue(AHEAD_MAX)
    over = Event()
    Thread(target=_read, args=(source, request, arrived, over), name="copied", daemon=True).start()
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
    """Raises Unavailable where none of several pings is answered."""
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
    """False once nobody takes it any more."""
    while not over.is_set():
        try:
            arrived.put(item, timeout=_LOOK_S)
        except Full:
            continue
        return True
    return False

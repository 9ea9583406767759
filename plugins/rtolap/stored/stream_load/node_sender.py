"""A thread that sends the rows of one transaction to one node, and the bounded queue before it."""

from __future__ import annotations

import logging
import time
from collections import deque
from threading import Condition, Thread
from typing import Protocol

import pyarrow as pa

from rtolap.base.errors import RtolapError, Unavailable
from rtolap.base.ids import carried
from rtolap.protocols.storage.client import RowStream
from rtolap.protocols.storage.messages import PutAnswer, PutEnd, PutHead, TabletId

log = logging.getLogger(__name__)

_Part = tuple[TabletId, pa.RecordBatch]


class RowNodes(Protocol):
    """Storage nodes as receivers of rows, by their names; thread-safe."""

    def put(self, node: str, head: PutHead, columns: pa.Schema) -> RowStream:
        """Open a stream of rows to a node. Raises Unavailable for an unknown node, or one that does not
        answer."""
        ...

    def stands_still(self, node: str) -> bool:
        """Return True if it answers nothing at all, while most others do."""
        ...


class NodeSender:
    """Sends rows to a node: call `offer` with rows, then `end`; or `cancel`.

    Attributes:
        failure: why the node is left out; None while it is not.
        answer: what the node has stored; None before its answer.

    Args:
        bytes_max: the bound of the queue. A single larger batch is alone in the queue.
    """

    def __init__(
        self,
        nodes: RowNodes,
        node: str,
        head: PutHead,
        columns: pa.Schema,
        *,
        bytes_max: int,
        stall_s: float,
        ping_after_s: float,
    ) -> None:
        self._nodes, self._node, self._head, self._columns = nodes, node, head, columns
        self._bytes_max, self._stall_s, self._ping_after_s = bytes_max, stall_s, ping_after_s
        self._changed = Condition()
        self._queue: deque[_Part | PutEnd] = deque()
        self._bytes = 0
        self._stream: RowStream | None = None
        self.failure: RtolapError | None = None
        self.answer: PutAnswer | None = None
        self._thread = Thread(target=carried(self._run), name=f"load {head.txn_id} to {node}", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """It has not said yet how it ends."""
        return self.failure is None and self.answer is None

    def offer(self, tablet: TabletId, batch: pa.RecordBatch) -> bool:
        """Offer a batch. It waits for room, `stall_s` at most, and not for a node that stands still; returns
        False once the node is left behind."""
        took_s = time.monotonic()
        while True:
            with self._changed:
                before = self._bytes
                if self.failure is not None:
                    return False
                if not before or before + batch.nbytes <= self._bytes_max:
                    self._queue.append((tablet, batch))
                    self._bytes += batch.nbytes
                    self._changed.notify_all()
                    return True
                self._changed.wait(self._ping_after_s)
                moved = self._bytes != before
            if moved:
                took_s = time.monotonic()
            elif time.monotonic() - took_s >= self._stall_s:
                self.cancel(f"it has taken no rows for {self._stall_s:g} s")
            elif self._nodes.stands_still(self._node):  # called without the lock: the sender may go on
                self.cancel("it stands still")

    def end(self, end: PutEnd) -> None:
        """End the stream: the node makes its rows durable."""
        with self._changed:
            self._queue.append(end)
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self.busy, timeout_s)

    def cancel(self, reason: str) -> None:
        """Cancel the sending. It does nothing once the node has finished."""
        with self._changed:
            if self.answer is None:
                self._fail(Unavailable(f"node {self._node}: {reason}"))

    def _fail(self, error: RtolapError) -> None:
        if self.failure is None:
            self.failure = error
            log.info("transaction %d leaves node %s behind: %s", self._head.txn_id, self._node, error)
        self._queue.clear()
        self._bytes = 0
        if self._stream is not None:
            self._stream.cancel()
        self._changed.notify_all()

    def _run(self) -> None:
        try:
            self._send()
        except RtolapError as error:
            with self._changed:
                self._fail(error)
        except Exception as error:
            log.exception("sending rows to node %s failed", self._node)
            with self._changed:
                self._fail(Unavailable(f"node {self._node}: {type(error).__name__}: {error}"))

    def _send(self) -> None:
        stream = self._nodes.put(self._node, self._head, self._columns)
        with self._changed:
            self._stream = stream
            if self.failure is not None:
                stream.cancel()
                return
        while True:
            item = self._next()
            if item is None:
                return
            if isinstance(item, PutEnd):
                answer = stream.finish(item)
                with self._changed:
                    self.answer = answer
                    self._changed.notify_all()
                return
            stream.write(*item)

    def _next(self) -> _Part | PutEnd | None:
        """Return the next thing to send, when it is there; None when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self.failure is not None)
            if self.failure is not None:
                return None
            item = self._queue.popleft()
            if not isinstance(item, PutEnd):
                self._bytes -= item[1].nbytes
                self._changed.notify_all()
            return item

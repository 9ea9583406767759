"""Storage nodes in this process that can stand still, as by SIGSTOP, and go on.

What is sent to a node meanwhile waits, as in its machine's buffers, and is carried out in its order when the
node goes on, although nobody waits for it any more: late rows, late ends of loads, late votes, late drops.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from threading import Lock
from typing import Any

import pyarrow as pa
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.protocols.storage import messages as wire
from rtolap.protocols.storage.client import RowStream
from rtolap.stored.node.node import LocalNode

from tests.support.stored.storage_nodes import InProcessNodes

_ACTIONS = ("create", "drop", "change_schema", "prepare", "publish", "catch_up", "abort", "status")


class StoppableNodes:
    """Clients for `StorageNodes` whose nodes can be stopped. Thread-safe, but for `go_on`."""

    def __init__(self, nodes: InProcessNodes) -> None:
        self._nodes = nodes
        self._gates: dict[str, _Gate] = {}
        self.calls: list[tuple[str, str]] = []  # (node, action), pings apart

    def stop(self, name: str) -> None:
        self._gates[name] = _Gate()

    def go_on(self, name: str) -> None:
        """Let the node go on: on return, the requests that waited are carried out."""
        self._gates[name].open()
        del self._gates[name]

    def at(self, address: str) -> Any:
        return _Node(self, address)

    def node(self, name: str) -> LocalNode:
        return self._nodes.at(name)

    def gate(self, name: str) -> _Gate | None:
        return self._gates.get(name)


class _Gate:
    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def later(self, call: Callable[[], Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        with self._lock:
            self._waiting.append((answer, call))
        return answer

    def open(self) -> None:
        for answer, call in self._waiting:
            waited_for = answer.set_running_or_notify_cancel()
            try:
                found = call()
            except RtolapError as error:
                if waited_for:
                    answer.set_exception(error)
            else:
                if waited_for:
                    answer.set_result(found)


class _Node:
    def __init__(self, nodes: StoppableNodes, name: str) -> None:
        self._nodes, self._name = nodes, name

    def __getattr__(self, action: str) -> Any:
        if action not in _ACTIONS:
            raise AttributeError(action)

        def act(*asked: Any) -> Any:
            self._nodes.calls.append((self._name, action))
            call = getattr(self._nodes.node(self._name), action)
            gate = self._nodes.gate(self._name)
            return call(*asked) if gate is None else gate.later(lambda: call(*asked)).result()

        return act

    def ping(self, within_s: float) -> None:
        self._nodes.node(self._name)
        if self._nodes.gate(self._name) is not None:
            raise Unavailable(f"{self._name} does not answer a ping")

    def put(self, head: wire.PutHead, columns: pa.Schema) -> RowStream:
        return _Stream(self._nodes, self._name, head, columns)


class _Stream:
    """Cancelling it ends the waiting here; what was sent arrives all the same."""

    def __init__(self, nodes: StoppableNodes, name: str, head: wire.PutHead, columns: pa.Schema) -> None:
        self._nodes, self._name = nodes, name
        self._head, self._columns = head, columns
        self._stream: RowStream | None = None
        self._end: Future[Any] | None = None
        if nodes.gate(name) is None:
            self._open()

    def write(self, tablet: wire.TabletId, batch: pa.RecordBatch) -> None:
        self._sent(lambda: self._open().write(tablet, batch))

    def finish(self, end: wire.PutEnd) -> wire.PutAnswer:
        self._end = self._sent(lambda: self._open().finish(end))
        try:
            answer: wire.PutAnswer = self._end.result()
        except CancelledError as error:
            raise Unavailable(f"the stream to {self._name} was given up") from error
        return answer

    def cancel(self) -> None:
        if self._end is not None:
            self._end.cancel()
        self._sent(lambda: self._stream.cancel() if self._stream is not None else None)

    def _open(self) -> RowStream:
        if self._stream is None:
            self._stream = self._nodes.node(self._name).put(self._head, self._columns)
        return self._stream

    def _sent(self, call: Callable[[], Any]) -> Future[Any]:
        gate = self._nodes.gate(self._name)
        if gate is not None:
            return gate.later(call)
        done: Future[Any] = Future()
        done.set_result(call())
        return done

"""Cluster state in ZooKeeper. The only module that knows kazoo.

Reads wait out a broken connection, up to `wait_s`, and then raise Unavailable. A commit is sent once: if the
connection breaks while its answer is due, the outcome is unknown (CommitUnknown), never guessed. kazoo
drops all watchers when the connection breaks, so after a reconnect every watch is set again and told.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from rtolap.base.errors import CommitConflict, CommitUnknown, SessionLost, Unavailable
from rtolap.metadata.dispatch import Dispatcher
from rtolap.metadata.election import Candidacy
from rtolap.metadata.store import Check, Create, Delete, Operation, Put, Versioned
from rtolap.metadata.watching import OneShotWatch

log = logging.getLogger(__name__)

T = TypeVar("T")

_BROKEN = (ConnectionLoss, OperationTimeoutError, KazooTimeoutError, ConnectionClosedError)
_REFUSED = (NodeExistsError, NoNodeError, BadVersionError, NotEmptyError)
_PARENT_ATTEMPTS = 3
_POLL_S = 0.05


class ZooKeeperStore:
    """One session on `hosts` (`host:port,…`); all paths lie below `root`."""

    def __init__(self, hosts: str, *, root: str = "/rtolap", session_timeout_s: float = 6.0) -> None:
        self._root = "/" + root.strip("/") if root.strip("/") else ""
        self._wait_s = 2 * session_timeout_s
        self._lock = threading.Lock()
        self._connected = threading.Event()
        self._closed = False
        self._session = 0
        self._lost_pending = False
        self._lost: list[Callable[[], None]] = []
        self._watches: list[OneShotWatch] = []
        self._elections: list[Candidacy] = []
        self._dispatcher = Dispatcher("zookeeper")
        self._client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_s,
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 1.0},
        )
        self._client.add_listener(self._state_changed)
        try:
            self._client.start(timeout=self._wait_s)
            self._read(lambda: self._client.ensure_path_async(self._root or "/"), "root")
        except KazooTimeoutError as error:
            self._dispatcher.close()
            raise Unavailable(
                "ZooKeeper does not answer",
                expected=f"a server at {hosts} within {self._wait_s:g} s",
                action="start it, or set RTOLAP_ZOOKEEPER",
            ) from error

    # -- the seam ---------------------------------------------------------------------------------------

    def get(self, path: str) -> Versioned | None:
        try:
            data, stat = self._read(lambda: self._client.get_async(self._root + path), path)
        except NoNodeError:
            return None
        return Versioned(data, stat.version)

    def children(self, path: str) -> tuple[str, ...]:
        try:
            names = self._read(lambda: self._client.get_children_async(self._root + path), path)
        except NoNodeError:
            return ()
        return tuple(sorted(names))

    def commit(self, operations: Sequence[Operation]) -> None:
        for attempt in range(_PARENT_ATTEMPTS):
            results = self._send(operations)
            failed = [
                (operation, result)
                for operation, result in zip(operations, results, strict=True)
                if isinstance(result, KazooException)
                and not isinstance(result, RolledBackError | RuntimeInconsistency)
            ]
            if not failed:
                return
            operation, error = failed[0]
            if isinstance(operation, Create) and isinstance(error, NoNodeError):
                parent = (self._root + operation.path).rpartition("/")[0]
                if attempt + 1 < _PARENT_ATTEMPTS:
                    self._make_parents(parent)
                    continue
            if isinstance(error, _REFUSED):
                raise CommitConflict(
                    f"{type(operation).__name__} {operation.path} was refused", found=type(error).__name__
                )
            raise error
        raise AssertionError("unreachable: the last attempt returns or raises")

    def watch(self, path: str, changed: Callable[[], None]) -> OneShotWatch:
        watch = OneShotWatch(self, path, changed)
        with self._lock:
            self._watches.append(watch)
        self._dispatcher.wake(watch.arm)
        return watch

    def elect(self, path: str, identity: str, changed: Callable[[], None]) -> Candidacy:
        election = Candidacy(self, self._dispatcher, path, identity, changed)
        with self._lock:
            self._elections.append(election)
        return election

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._lost.append(callback)

    def sync(self) -> None:
        self._read(lambda: self._client.sync_async(self._root or "/"), "sync")

    def connected(self) -> bool:
        return self._connected.is_set() and not self._closed

    def close(self) -> None:
        """Ends the session: candidacies and ephemerals go at once."""
        if self._closed:
            return
        self._closed = True
        self._dispatcher.close()
        self._client.stop()
        self._client.close()

    # -- what elections and watches need ----------------------------------------------------------------

    def session_number(self) -> int:
        return self._session

    def create_sequential(self, prefix: str, data: bytes) -> None:
        path = self._root + prefix
        self._make_parents(path.rpartition("/")[0])
        self._write(lambda: self._client.create_async(path, data, ephemeral=True, sequence=True), path)

    def arm(self, path: str, callback: Callable[[object], None]) -> None:
        """Set one-shot watchers on the node and, where it exists, on its children."""
        full = self._root + path
        if self._read(lambda: self._client.exists_async(full, watch=callback), path) is None:
            return
        try:
            self._read(lambda: self._client.get_children_async(full, watch=callback), path)
        except NoNodeError:
            self._read(lambda: self._client.exists_async(full, watch=callback), path)

    def wake(self, watch: OneShotWatch) -> None:
        self._dispatcher.wake(watch.arm)

    def forget(self, watch: OneShotWatch) -> None:
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)

    # -- the connection ---------------------------------------------------------------------------------

    def _state_changed(self, state: str) -> None:
        """Called by kazoo's connection thread: flags only, the work is the dispatcher's."""
        if state == KazooState.CONNECTED:
            self._connected.set()
            log.info("ZooKeeper session is connected")
        else:
            self._connected.clear()
            log.warning("ZooKeeper session is %s", state)
            if state == KazooState.LOST and not self._closed:
                self._session += 1
                self._lost_pending = True
        with self._lock:
            watches, elections = list(self._watches), list(self._elections)
        for election in elections:
            election.wake()
        if state == KazooState.CONNECTED:
            for watch in watches:
                self._dispatcher.wake(watch.arm)
            if self._lost_pending:
                self._lost_pending = False
                for callback in list(self._lost):
                    self._dispatcher.wake(callback)

    def _make_parents(self, parent: str) -> None:
        self._read(lambda: self._client.ensure_path_async(parent or "/"), parent)

    def _read(self, request: Callable[[], Any], subject: str) -> Any:
        """Repeat an idempotent request until it is answered or `wait_s` is over."""
        deadline_s = time.monotonic() + self._wait_s
        while True:
            left_s = deadline_s - time.monotonic()
            self._wait_connected(left_s, subject)
            try:
                return request().get(timeout=max(left_s, _POLL_S))
            except (*_BROKEN, SessionExpiredError) as error:
                if self._closed:
                    raise SessionLost("the session is closed") from error
                if time.monotonic() >= deadline_s:
                    raise Unavailable(
                        f"ZooKeeper did not answer about {subject}", expected=f"within {self._wait_s:g} s"
                    ) from error
                self._connected.wait(_POLL_S)

    def _write(self, request: Callable[[], Any], subject: str) -> Any:
        """Send once. The request did not leave if this raises Unavailable or SessionLost."""
        self._wait_connected(self._wait_s, subject)
        try:
            return request().get(timeout=self._wait_s)
        except SessionExpiredError as error:
            raise SessionLost(f"the session ended before {subject} was written") from error
        except _BROKEN as error:
            raise CommitUnknown(
                f"the connection broke while {subject} was written", action="read back before acting"
            ) from error

    def _wait_connected(self, wait_s: float, subject: str) -> None:
        if self._closed:
            raise SessionLost("the session is closed")
        if not self._connected.wait(max(wait_s, 0.0)):
            raise Unavailable(
                f"ZooKeeper cannot be reached for {subject}",
                expected=f"a connection within {self._wait_s:g} s",
            )

    def _send(self, operations: Sequence[Operation]) -> list[Any]:
        transaction = self._client.transaction()
        for operation in operations:
            path = self._root + operation.path
            match operation:
                case Create():
                    transaction.create(path, operation.data, ephemeral=operation.ephemeral)
                case Put():
                    transaction.set_data(path, operation.data, operation.version)
                case Delete():
                    transaction.delete(path, operation.version)
                case Check():
                    transaction.check(path, operation.version)
        subject = ", ".join(operation.path for operation in operations[:3])
        results: list[Any] = self._write(transaction.commit_async, subject)
        return results

"""A session with ZooKeeper: connecting, waiting out broken connections, and whom it notifies of what.

Reads wait out a broken connection, up to `wait_s`, and then raise Unavailable. A write is sent once: if the
connection breaks while its answer is due, the outcome is unknown (CommitUnknown), never guessed. kazoo
drops all watchers when the connection breaks, so after a reconnect every watch is set again and called.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.security import make_digest_acl

from rtolap.base.errors import CommitUnknown, SessionLost, Unauthorized, Unavailable
from rtolap.metadata.dispatch import Dispatcher
from rtolap.metadata.election import Candidacy

log = logging.getLogger(__name__)

_BROKEN = (ConnectionLoss, OperationTimeoutError, KazooTimeoutError, ConnectionClosedError)
_POLL_S = 0.05


class Credentials(NamedTuple):
    """The nodes that are made with them are theirs alone; ZooKeeper lets others in all the same."""

    user: str
    password: str


class _OneShotStore(Protocol):
    def arm(self, path: str, callback: Callable[[object], None]) -> None:
        """Have `callback` called, once, when the node's data, existence or children change."""
        ...

    def wake(self, watch: OneShotWatch) -> None:
        """Run `watch.arm` soon, on the store's own thread."""
        ...

    def forget(self, watch: OneShotWatch) -> None: ...


class OneShotWatch:
    """Implements `store.Watch`. Set again before it calls: a reader that reads on the call misses nothing."""

    def __init__(self, store: _OneShotStore, path: str, changed: Callable[[], None]) -> None:
        self._store = store
        self._path = path
        self._changed = changed
        self._stopped = False

    def arm(self) -> None:
        if self._stopped:
            return
        self._store.arm(self._path, self._event)
        self._changed()

    def stop(self) -> None:
        self._stopped = True
        self._store.forget(self)

    def _event(self, event: object) -> None:
        if not self._stopped:
            self._store.wake(self)


def closed_to_us(subject: str) -> Unauthorized:
    return Unauthorized(
        f"ZooKeeper's node {subject} is closed to this process",
        expected="the cluster's own credentials",
        action="use the token file of the cluster, and its RTOLAP_ZOOKEEPER_PASSWORD_FILE where it has one",
    )


class ZooKeeperSession:
    """`watches` and `elections` are notified of every change of the connection; change them under `lock`."""

    def __init__(
        self, hosts: str, session_timeout_s: float, named_in: str, credentials: Credentials | None = None
    ) -> None:
        self.lock = threading.Lock()
        self.number = 0  # grows with every lost session
        self.lost: list[Callable[[], None]] = []
        self.watches: list[OneShotWatch] = []
        self.elections: list[Candidacy] = []
        self.dispatcher = Dispatcher("zookeeper")
        self._wait_s = 2 * session_timeout_s
        self._connected = threading.Event()
        self._closed = False
        self._lost_pending = False
        self.acl = None if credentials is None else [make_digest_acl(*credentials, all=True)]
        self.client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_s,
            auth_data=None if credentials is None else [("digest", ":".join(credentials))],
            default_acl=self.acl,
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 1.0},
        )
        self.client.add_listener(self._state_changed)
        try:
            self.client.start(timeout=self._wait_s)
        except KazooTimeoutError as error:
            self.dispatcher.close()
            raise Unavailable(
                "ZooKeeper does not answer",
                expected=f"a server at {hosts} within {self._wait_s:g} s",
                action=f"start it, or set {named_in}",
            ) from error

    def connected(self) -> bool:
        return self._connected.is_set() and not self._closed

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.dispatcher.close()
        self.client.stop()
        self.client.close()

    def read(self, request: Callable[[], Any], subject: str) -> Any:
        """Repeat an idempotent request until it is answered or `wait_s` is over."""
        deadline_s = time.monotonic() + self._wait_s
        while True:
            left_s = deadline_s - time.monotonic()
            self._wait_connected(left_s, subject)
            try:
                return request().get(timeout=max(left_s, _POLL_S))
            except NoAuthError as error:
                raise closed_to_us(subject) from error
            except (*_BROKEN, SessionExpiredError) as error:
                if self._closed:
                    raise SessionLost("the session is closed") from error
                if time.monotonic() >= deadline_s:
                    raise Unavailable(
                        f"ZooKeeper did not answer about {subject}", expected=f"within {self._wait_s:g} s"
                    ) from error
                self._connected.wait(_POLL_S)

    def write(self, request: Callable[[], Any], subject: str) -> Any:
        """Send once. The request did not leave if this raises Unavailable or SessionLost."""
        self._wait_connected(self._wait_s, subject)
        try:
            return request().get(timeout=self._wait_s)
        except NoAuthError as error:
            raise closed_to_us(subject) from error
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

    def _state_changed(self, state: str) -> None:
        """Set flags only: kazoo's connection thread calls this, and the work is the dispatcher's."""
        if state == KazooState.CONNECTED:
            self._connected.set()
            log.info("ZooKeeper session is connected")
        else:
            self._connected.clear()
            # The end of a session that this process closes is no news, least of all after a command's result.
            log.log(logging.DEBUG if self._closed else logging.WARNING, "ZooKeeper session is %s", state)
            if state == KazooState.LOST and not self._closed:
                self.number += 1
                self._lost_pending = True
        with self.lock:
            watches, elections = list(self.watches), list(self.elections)
        for election in elections:
            election.wake()
        if state == KazooState.CONNECTED:
            for watch in watches:
                self.dispatcher.wake(watch.arm)
            if self._lost_pending:
                self._lost_pending = False
                for callback in list(self.lost):
                    self.dispatcher.wake(callback)

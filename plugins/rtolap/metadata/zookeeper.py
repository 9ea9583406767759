"""Cluster state in ZooKeeper: the seam's calls as ZooKeeper's own, over one `ZooKeeperSession`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from rtolap.base.errors import CommitConflict, RtolapError
from rtolap.metadata.election import Candidacy
from rtolap.metadata.store import Check, Create, Delete, Operation, Put, Versioned, check_size
from rtolap.metadata.zookeeper_session import (
    Credentials,
    OneShotWatch,
    ZooKeeperSession,
    closed_to_us,
)

_REFUSED = (NodeExistsError, NoNodeError, BadVersionError, NotEmptyError)
_PARENT_ATTEMPTS = 3
_READ = 1  # of ZooKeeper's permissions

log = logging.getLogger(__name__)


class ZooKeeperStore:
    """A session on `hosts` (`host:port,…`); all paths lie below `root`. `named_in`: where the hosts are
    declared, for the error when none of them answers."""

    def __init__(
        self,
        hosts: str,
        *,
        root: str = "/rtolap",
        session_timeout_s: float = 6.0,
        named_in: str = "RTOLAP_ZOOKEEPER",
        credentials: Credentials | None = None,
    ) -> None:
        """Connect. Nodes are made for `credentials` alone; None: for everybody, as others' nodes have to
        be."""
        self._root = "/" + root.strip("/") if root.strip("/") else ""
        self._session = ZooKeeperSession(hosts, session_timeout_s, named_in, credentials)
        self._client = self._session.client
        try:
            self._make_parents(self._root)
        except RtolapError:
            self._session.close()
            raise

    # -- the seam ---------------------------------------------------------------------------------------

    def get(self, path: str) -> Versioned | None:
        try:
            full = self._root + path or "/"
            data, stat = self._session.read(lambda: self._client.get_async(full), path)
        except NoNodeError:
            return None
        return Versioned(data, stat.version, ephemeral=stat.ephemeralOwner != 0, children_stamp=stat.pzxid)

    def children(self, path: str) -> tuple[str, ...]:
        try:
            full = self._root + path or "/"
            names = self._session.read(lambda: self._client.get_children_async(full), path)
        except NoNodeError:
            return ()
        return tuple(sorted(names))

    def commit(self, operations: Sequence[Operation]) -> None:
        check_size(operations)
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
            if isinstance(error, NoAuthError):
                raise closed_to_us(operation.path) from error
            raise error
        raise AssertionError("unreachable: the last attempt returns or raises")

    def watch(self, path: str, changed: Callable[[], None]) -> OneShotWatch:
        watch = OneShotWatch(self, path, changed)
        with self._session.lock:
            self._session.watches.append(watch)
        self._session.dispatcher.wake(watch.arm)
        return watch

    def elect(self, path: str, identity: str, changed: Callable[[], None]) -> Candidacy:
        election = Candidacy(self, self._session.dispatcher, path, identity, changed)
        with self._session.lock:
            self._session.elections.append(election)
        return election

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        with self._session.lock:
            self._session.lost.append(callback)

    def sync(self) -> None:
        self._session.read(lambda: self._client.sync_async(self._root or "/"), "sync")

    def connected(self) -> bool:
        return self._session.connected()

    def close(self) -> None:
        """End the session: candidacies and ephemeral nodes go at once."""
        self._session.close()

    # -- who may do what ----------------------------------------------------------------------------------

    def is_open(self, path: str) -> bool:
        """Return whether anybody may change the node, or what stands below it."""
        acls = self._session.read(lambda: self._client.get_acls_async(self._root + path or "/"), path)[0]
        return any(acl.id.scheme == "world" and acl.perms & ~_READ for acl in acls)

    def close_to_others(self, path: str) -> None:
        """Give the node, which may be anybody's, to the credentials of this store alone."""
        acl = self._session.acl
        assert acl is not None, "a store without credentials closes nothing"
        self._session.write(lambda: self._client.set_acls_async(self._root + path or "/", acl), path)

    def warn_of_open_nodes(self) -> None:
        if self.is_open(""):
            log.warning(
                "anybody who reaches ZooKeeper may change the nodes below %s: they were made without "
                "credentials; close them by `rtolap coordinator protect`",
                self._root or "/",
            )

    # -- what elections and watches need ----------------------------------------------------------------

    def session_number(self) -> int:
        return self._session.number

    def create_sequential(self, prefix: str, data: bytes) -> None:
        path = self._root + prefix
        self._make_parents(path.rpartition("/")[0])
        self._session.write(
            lambda: self._client.create_async(path, data, ephemeral=True, sequence=True), path
        )

    def arm(self, path: str, callback: Callable[[object], None]) -> None:
        """Set one-shot watchers on the node and, where it exists, on its children."""
        full = self._root + path
        if self._session.read(lambda: self._client.exists_async(full, watch=callback), path) is None:
            return
        try:
            self._session.read(lambda: self._client.get_children_async(full, watch=callback), path)
        except NoNodeError:
            self._session.read(lambda: self._client.exists_async(full, watch=callback), path)

    def wake(self, watch: OneShotWatch) -> None:
        self._session.dispatcher.wake(watch.arm)

    def forget(self, watch: OneShotWatch) -> None:
        with self._session.lock:
            if watch in self._session.watches:
                self._session.watches.remove(watch)

    def _make_parents(self, parent: str) -> None:
        self._session.read(lambda: self._client.ensure_path_async(parent or "/"), parent)

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
        results: list[Any] = self._session.write(transaction.commit_async, subject)
        return results

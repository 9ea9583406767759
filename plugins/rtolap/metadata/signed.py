r"""A metadata store whose records carry the cluster's signature: ZooKeeper keeps them, it is not trusted.

    <record>\nrtolap-signature:<64 hexadecimal digits>

The signature is over the node's path, its version and the record, with a key of its own that is derived from
the cluster's token. So who may write to ZooKeeper and has no token can neither make a record, nor alter one,
nor put another node's or an older one in its place. He can still delete.

Whoever reads an altered record gets `Forged`; lists of members leave it out. Both are counted and logged, by
path. Candidates of an election, whose nodes get their names from ZooKeeper, sign for the election instead.
An empty node, which ZooKeeper needs as a parent, is no record and carries none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import msgspec

from rtolap.base.cluster_secret import RECORDS, derived_key, proves, tag
from rtolap.base.errors import Forged
from rtolap.metadata.forwarding import ForwardingStore
from rtolap.metadata.store import (
    SIGNATURE_MARK,
    Create,
    Election,
    MetadataStore,
    Operation,
    Put,
    Versioned,
)

log = logging.getLogger(__name__)

_NOTED_MAX = 1000


class Signer:
    """Signs and checks the records of one cluster."""

    def __init__(self, token: str) -> None:
        self._key = derived_key(token, RECORDS)

    def record(self, path: str, version: int, data: bytes) -> bytes:
        return self._sealed(data, b"record", path.encode(), b"%d" % version)

    def candidate(self, election: str, data: bytes) -> bytes:
        return self._sealed(data, b"candidate", election.encode())

    def open_record(self, path: str, node: Versioned) -> bytes | None:
        """Return the record without its signature, None where that is missing or wrong."""
        if not node.data:
            return b""
        election = path.rpartition("/")[0]
        record = self._opened(node.data, b"record", path.encode(), b"%d" % node.version)
        return self.open_candidate(election, node.data) if record is None else record

    def open_candidate(self, election: str, sealed: bytes) -> bytes | None:
        return self._opened(sealed, b"candidate", election.encode())

    def _sealed(self, data: bytes, *purpose: bytes) -> bytes:
        return data + SIGNATURE_MARK + tag(self._key, *purpose, data).hex().encode()

    def _opened(self, sealed: bytes, *purpose: bytes) -> bytes | None:
        data, _, shown = sealed.rpartition(SIGNATURE_MARK)
        try:
            given = bytes.fromhex(shown.decode("latin-1"))
        except ValueError:
            return None
        return data if proves(self._key, given, *purpose, data) else None


class SignedStore(ForwardingStore):
    """Implements `store.MetadataStore` on another one. `refused_records` counts what was not genuine."""

    def __init__(self, store: MetadataStore, token: str) -> None:
        super().__init__(store)
        self._signer = Signer(token)
        self._lock = threading.Lock()
        self._noted: dict[tuple[str, bytes], None] = {}  # each is logged once
        self.refused_records = 0

    def get(self, path: str) -> Versioned | None:
        """Return a node whose signature holds. Raises Forged, and what the seam names."""
        node = self._store.get(path)
        if node is None:
            return None
        record = self._signer.open_record(path, node)
        if record is None:
            self._note(path, node.data)
            raise Forged(
                f"the record {path} in ZooKeeper is not what a service of this cluster wrote",
                expected="a signature that the cluster's token gives for this path and version",
                found="another one" if SIGNATURE_MARK in node.data else "none",
                action="see who may write to ZooKeeper; restart the service that announces itself there, or "
                "restore the node; a cluster made without signatures needs `rtolap coordinator protect`",
                version=node.version,
            )
        return msgspec.structs.replace(node, data=record)

    def commit(self, operations: Sequence[Operation]) -> None:
        self._store.commit([self._signed(operation) for operation in operations])

    def elect(self, path: str, identity: str, changed: Callable[[], None]) -> Election:
        sealed = self._signer.candidate(path, identity.encode()).decode()
        return _SignedElection(self, path, self._store.elect(path, sealed, changed))

    def leader(self, election: str, sealed: str) -> str | None:
        identity = self._signer.open_candidate(election, sealed.encode())
        if identity is None:
            self._note(f"{election}: its first candidate", sealed.encode())
        return None if identity is None else identity.decode()

    def _signed(self, operation: Operation) -> Operation:
        match operation:
            case Create(data=data) if data:
                sealed = self._signer.record(operation.path, 0, data)
                return Create(operation.path, sealed, operation.ephemeral)
            case Put(data=data) if data:
                sealed = self._signer.record(operation.path, operation.version + 1, data)
                return Put(operation.path, sealed, operation.version)
        return operation

    def _note(self, path: str, data: bytes) -> None:
        with self._lock:
            self.refused_records += 1
            known = (path, data[-64:]) in self._noted
            self._noted[(path, data[-64:])] = None
            if len(self._noted) > _NOTED_MAX:
                del self._noted[next(iter(self._noted))]
        if not known:
            log.warning("a record in ZooKeeper was not written by a service of this cluster: %s", path)


class _SignedElection:
    """Implements `store.Election` on another one, whose candidates are signed."""

    def __init__(self, store: SignedStore, path: str, election: Election) -> None:
        self._store, self._path, self._election = store, path, election
        self.is_leader, self.fence = election.is_leader, election.fence
        self.node, self.term = election.node, election.term
        self.step_back, self.close = election.step_back, election.close

    def leader(self) -> str | None:
        sealed = self._election.leader()
        return None if sealed is None else self._store.leader(self._path, sealed)

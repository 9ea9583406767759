"""The seam to cluster state. Implementations: `zookeeper.ZooKeeperStore`, `memory.MemoryStore`.

Both bound a commit's size. ZooKeeper drops the connection, and with it all that is under way on the session,
when a request is larger than it takes; so a larger one is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from rtolap.base.errors import Refused

COMMIT_BYTES_MAX = 1_000_000  # a server takes 1 048 575 of a request, which also says where and for whom
SIGNATURE_MARK = b"\nrtolap-signature:"  # see `metadata.signed`
SIGNATURE_BYTES = len(SIGNATURE_MARK) + 64
SIGNATURES_MAX = 400  # of one commit, that come on top of its size


class Versioned(msgspec.Struct, frozen=True):
    """A node as it was read.

    Attributes:
        ephemeral: it goes with the session that made it.
        children_stamp: another one after each child that is made or deleted, and never the same again.
    """

    data: bytes
    version: int
    ephemeral: bool = False
    children_stamp: int = 0


class Create(msgspec.Struct, frozen=True):
    """Fails with CommitConflict if the node exists. Missing parents are made."""

    path: str
    data: bytes
    ephemeral: bool = False


class Put(msgspec.Struct, frozen=True):
    """Replace the data of a node whose version is `version`; CommitConflict otherwise."""

    path: str
    data: bytes
    version: int


class Delete(msgspec.Struct, frozen=True):
    path: str
    version: int = -1  # any


class Check(msgspec.Struct, frozen=True):
    """A requirement that a node exists with that version (-1: with any)."""

    path: str
    version: int


Operation = Create | Put | Delete | Check


class Watch(Protocol):
    def stop(self) -> None: ...


class Election(Protocol):
    """A candidacy, which ends with the session. `close` withdraws it."""

    def is_leader(self) -> bool:
        """Return True only while the session is known to live."""
        ...

    def fence(self) -> str | None:
        """Return the path of the node that exists as long as this candidate leads; None where it does not
        lead.

        A commit that requires it (`Check`) is refused once the session is over, whatever the candidate
        still believes: the first in line stays so until its node is gone.
        """
        ...

    def node(self) -> str | None:
        """Return the path of this candidate's own node, whether it leads or not.

        None where it has none that is known to stand: not enrolled yet, disconnected, closed. A node is of
        one session and never returns.
        """
        ...

    def term(self) -> int | None:
        """Return a number that grows with every candidacy that leads at this path; None where this one does
        not lead.
        """
        ...

    def leader(self) -> str | None:
        """Return the identity of the present leader, if there is one."""
        ...

    def step_back(self) -> bool:
        """Stand again, behind all others; False, and nothing changes, where there is no other candidate.

        Raises what `commit` raises: repeat the call.
        """
        ...

    def close(self) -> None: ...


class MetadataStore(Protocol):
    """Cluster state as a tree of versioned nodes. All calls are thread-safe. Paths are absolute within the
    chroot."""

    def get(self, path: str) -> Versioned | None:
        """Return a node. A broken connection is waited out for a while; then it raises Unavailable."""
        ...

    def children(self, path: str) -> tuple[str, ...]:
        """Return sorted names; empty if the node does not exist."""
        ...

    def commit(self, operations: Sequence[Operation]) -> None:
        """Commit all of it or nothing.

        Raises CommitConflict (a requirement does not hold), CommitUnknown (the connection broke: read
        back), Unavailable or SessionLost (nothing was sent), Refused (too large: see `check_size`; nothing
        was sent).
        """
        ...

    def watch(self, path: str, changed: Callable[[], None]) -> Watch:
        """Call `changed` soon after the node's data, existence or children change, and after a reconnect.

        Calls may be merged and may be spurious; they come from a thread of the store, so do little there.
        """
        ...

    def elect(self, path: str, identity: str, changed: Callable[[], None]) -> Election: ...

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """Call back from a thread of the store once a new session stands in the place of a lost one.

        Ephemeral nodes went with the old session and have to be made again; candidates of `elect` enrol
        again by themselves.
        """
        ...

    def sync(self) -> None:
        """Ensure that later reads of this session are not older than the call, whichever server answers."""
        ...

    def connected(self) -> bool: ...

    def close(self) -> None: ...


def check_size(operations: Sequence[Operation]) -> None:
    """Raise Refused for too much data. Signatures do not count, so that a record is as large with one as
    without."""
    signed = sum(isinstance(op, Create | Put) and _is_signed(op.data) for op in operations)
    sizes = {
        operation.path: len(operation.data) for operation in operations if isinstance(operation, Create | Put)
    }
    total = sum(sizes.values()) + sum(len(operation.path.encode()) for operation in operations)
    if total - SIGNATURE_BYTES * min(signed, SIGNATURES_MAX) <= COMMIT_BYTES_MAX:
        return
    largest = max(sizes, key=sizes.__getitem__, default=operations[0].path)
    raise Refused(
        f"the record is too large for a node: {largest}",
        expected=f"at most {COMMIT_BYTES_MAX} bytes in one commit",
        found=total,
        action="keep fewer or shorter entries in it",
    )


def _is_signed(data: bytes) -> bool:
    return data[-SIGNATURE_BYTES:].startswith(SIGNATURE_MARK)

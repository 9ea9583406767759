"""The bound on a commit's size. ZooKeeper drops the connection, and with it all that is under way on the
session, when a request is larger than it takes; so a larger one is refused before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence

from rtolap.base.errors import Refused
from rtolap.metadata.store import Create, Operation, Put

COMMIT_BYTES_MAX = 1_000_000  # a server takes 1 048 575 of a request, which also says where and for whom


def check_size(operations: Sequence[Operation]) -> None:
    """Raises Refused."""
    sizes = {
        operation.path: len(operation.data) for operation in operations if isinstance(operation, Create | Put)
    }
    total = sum(sizes.values()) + sum(len(operation.path.encode()) for operation in operations)
    if total <= COMMIT_BYTES_MAX:
        return
    largest = max(sizes, key=sizes.__getitem__, default=operations[0].path)
    raise Refused(
        f"the record is too large for a node: {largest}",
        expected=f"at most {COMMIT_BYTES_MAX} bytes in one commit",
        found=total,
        action="keep fewer or shorter entries in it",
    )

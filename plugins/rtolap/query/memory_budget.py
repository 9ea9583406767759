"""The budget for what users hold in the service's memory: per connection, per user, and in all.

Whatever a client can make the service store or build in its own process is reserved here first: values of
sessions, prepared statements, long data, packets and bodies, results that are being written. What statements
compute is in the workers, which the system bounds.

A part reserves memory before it grows. What does not fit is refused by name, and nothing of it is stored.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rtolap.base.errors import OverBudget

MIB = 1 << 20
# How parts are called in errors, and what their client can do about each.
PACKET, PARAMETERS, LONG_DATA = "a packet of a statement", "parameters of an execution", "long data"
PREPARED, SESSION, RESULT = "prepared statements", "values of the session", "rows of a result"
BODY, READ = "the body of a request", "rows that statements read"
HISTORY = "partial rows of history that are being merged"
_ACTIONS = {
    PACKET: "send a shorter statement",
    PARAMETERS: "send shorter parameters, or fewer at a time",
    LONG_DATA: "execute or reset the statements that have some, or send less",
    PREPARED: "close prepared statements that are not needed",
    SESSION: "SET variables to NULL, or DEALLOCATE PREPARE what is not needed",
    RESULT: "ask for shorter or fewer columns, or for fewer results at a time",
    READ: "read fewer columns, rows or groups, or ask for fewer such results at a time",
    HISTORY: "group by fewer columns, or ask when fewer statements read history",
    BODY: "send fewer or shorter parameters",
}


@dataclass(frozen=True)
class BudgetLimits:
    """Limits of memory in bytes.

    Attributes:
        connection_bytes: limit of one connection or request.
        user_bytes: limit of one user.
        total_bytes: limit of all users together.
        reserve_bytes: what each user may have even when the total is reached, so that heavy users keep nobody
            else out.
    """

    connection_bytes: int = 320 * MIB
    user_bytes: int = 512 * MIB
    total_bytes: int = 1024 * MIB
    reserve_bytes: int = 8 * MIB


def read_limits(memory_bytes: int) -> BudgetLimits:
    """Return the limits of what is read of cubes and tables for statements until they are over."""
    return BudgetLimits(memory_bytes, memory_bytes, 2 * memory_bytes, memory_bytes // 16)


class MemoryBudget:
    """The memory that statements share. It is thread-safe."""

    def __init__(self, limits: BudgetLimits = BudgetLimits()) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._users: Counter[str] = Counter()
        self._total_bytes = 0
        self.refusals = 0

    @property
    def reserved_bytes(self) -> int:
        """Return what all users have together."""
        with self._lock:
            return self._total_bytes

    def reserved_by(self, user: str) -> int:
        with self._lock:
            return self._users[user]

    def account(self, user: str) -> Account:
        """Return a new account of the user. Clients with the cluster's token share the empty name."""
        return Account(self, user)

    def _change(self, account: Account, user: str, what: str, bytes_more: int) -> None:
        with self._lock:
            if bytes_more > 0:
                try:
                    self._check(account, user, what, bytes_more)
                except OverBudget:
                    self.refusals += 1
                    raise
            account.reserved_bytes += bytes_more
            self._users[user] += bytes_more
            self._total_bytes += bytes_more
            if not self._users[user]:
                del self._users[user]

    def _check(self, account: Account, user: str, what: str, bytes_more: int) -> None:
        limits = self.limits
        of_user = self._users[user]
        total = self._total_bytes
        if account.reserved_bytes + bytes_more > limits.connection_bytes:
            whose, most, found = "one connection or request", limits.connection_bytes, account.reserved_bytes
        elif of_user + bytes_more > limits.user_bytes:
            whose, most, found = "one user", limits.user_bytes, of_user
        elif of_user + bytes_more > limits.reserve_bytes and total + bytes_more > limits.total_bytes:
            whose, most, found = "all users", limits.total_bytes, total
        else:
            return
        raise OverBudget(
            f"too much memory: {what}",
            expected=f"at most {most} bytes of {whose} in the query service",
            found=f"{found} bytes, and {bytes_more} more",
            action=_ACTIONS[what],
        )


class Account:
    """The memory of one connection, or of one request. It is used by one thread at a time; closed by any.

    Attributes:
        reserved_bytes: what it has in all.
    """

    def __init__(self, budget: MemoryBudget, user: str) -> None:
        self._budget = budget
        self._user = user
        self._lock = threading.Lock()
        self._parts: dict[str, int] = {}
        self._is_closed = False
        self.reserved_bytes = 0

    def reserve(self, what: str, size_bytes: int) -> None:
        """Set the size of a part. Raises OverBudget, and then the part keeps its size."""
        with self._lock:
            reserved_bytes = self._parts.get(what, 0)
            if self._is_closed or size_bytes == reserved_bytes:
                return
            self._budget._change(self, self._user, what, size_bytes - reserved_bytes)
            self._parts[what] = size_bytes

    def reserve_more(self, what: str, size_bytes: int) -> None:
        """Increase the size of a part. Raises OverBudget."""
        self.reserve(what, self._parts.get(what, 0) + size_bytes)

    @contextmanager
    def holding(self, what: str, size_bytes: int) -> Iterator[None]:
        """Increase the size of a part while the block runs. Raises OverBudget."""
        self.reserve_more(what, size_bytes)
        try:
            yield
        finally:
            self.reserve(what, max(0, self._parts.get(what, 0) - size_bytes))

    def belongs_to(self, user: str) -> None:
        """Let it be another user's. It is empty then: what there was is forgotten by its connection."""
        with self._lock:
            self._budget._change(self, self._user, SESSION, -self.reserved_bytes)
            self._parts.clear()
            self._user = user

    def close(self) -> None:
        """Give all of it back; harmless when it was. Nothing is reserved afterwards."""
        with self._lock:
            self._is_closed = True
            if self.reserved_bytes:
                self._budget._change(self, self._user, SESSION, -self.reserved_bytes)
            self._parts.clear()

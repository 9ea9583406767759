"""Mastership of the transactions: one lease of the ledger, whose epoch each of its writes requires."""

from __future__ import annotations

from threading import Lock

from rtolap.base.errors import NotLeader, NotYet
from rtolap.stored.metastore.database import Connection
from rtolap.stored.metastore.leases import Lease, Leases

MASTER = "load-master"
LEASE_MS = 10_000


class Mastership:
    """A candidate. It is master from a successful `acquire` until somebody else takes the lease."""

    def __init__(self, leases: Leases, owner: str, *, lease_ms: int = LEASE_MS) -> None:
        self._leases = leases
        self._owner = owner
        self._lease_ms = lease_ms
        self._lease: Lease | None = None
        self._changing = Lock()

    @property
    def lease(self) -> Lease | None:
        return self._lease

    def acquire(self) -> bool:
        """Become master, or stay it for longer; False while somebody else is."""
        with self._changing:
            try:
                if self._lease is None:
                    self._lease = self._leases.acquire(MASTER, self._owner, self._lease_ms)
                else:
                    self._lease = self._leases.renew(self._lease, self._lease_ms)
            except (NotYet, NotLeader):
                self._lease = None
                return False
            return True

    def give_up(self) -> None:
        """Let the next one in at once."""
        with self._changing:
            if self._lease is not None:
                lease, self._lease = self._lease, None
                self._leases.release(lease)

    def fence(self, connection: Connection) -> int:
        """First of all in a master's write; the database's time in ms. Raises NotLeader."""
        lease = self._lease
        if lease is None:
            raise NotLeader(f"{self._owner} is not master of the transactions")
        return self._leases.fence(connection, lease)

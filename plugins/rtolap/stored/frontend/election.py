"""Election of the master among front ends: one lease of the ledger, whose epoch each of its writes requires,
and whose owner says where it is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

from rtolap.base.errors import NotLeader, NotYet
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.leases import Lease, Leases

R = TypeVar("R")

MASTER = "load-master"
LEASE_MS = 10_000


class Mastership:
    """A candidate, which is master of the transactions from a successful `acquire` until another one takes
    the lease."""

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
        """Fence a master's write, as its first statement; return the database's time in ms. Raises
        NotLeader."""
        lease = self._lease
        if lease is None:
            raise NotLeader(f"{self._owner} is not master of the transactions")
        return self._leases.fence(connection, lease)

    def write(
        self, purpose: str, kind: type[R], work: Callable[[Connection, int], R], *, key: str | None = None
    ) -> R:
        """Write as `Ledger.write`, as the master. `work` gets the database's time in ms too. Raises
        NotLeader."""

        def fenced(connection: Connection) -> R:
            return work(connection, self.fence(connection))

        return self._leases.ledger.write(purpose, kind, fenced, key=key)


@dataclass(frozen=True)
class Endpoint:
    """The addresses of a front end. Neither ends in a slash.

    Attributes:
        url: where loads are requested.
        body_url: where their bodies are sent.
    """

    url: str
    body_url: str

    @property
    def owner(self) -> str:
        """Its name as owner of the lease, from which the others learn where it is."""
        return f"{self.url} {self.body_url}"

    @classmethod
    def of(cls, owner: str) -> Endpoint:
        url, _, body_url = owner.partition(" ")
        return cls(url, body_url)


class Election:
    """Stands for master and remembers who is: requests do not wait for the ledger to learn where to go."""

    def __init__(self, ledger: Ledger, leases: Leases, mastership: Mastership, here: Endpoint) -> None:
        self.here = here
        self._ledger = ledger
        self._leases = leases
        self._mastership = mastership
        self._master: Endpoint | None = None

    @property
    def leading(self) -> bool:
        return self._mastership.lease is not None

    def run_once(self) -> bool:
        """Take or prolong the lease, or see who has it; True while it is this front end's."""
        if self._mastership.acquire():
            self._master = self.here
            return True

        def running(connection: Connection, lease: Lease) -> bool:
            return lease.until_ms > self._ledger.now_ms(connection)

        lease = self._leases.current(MASTER)
        is_running = lease is not None and self._ledger.read(
            "see whether the lease still runs", lambda connection: running(connection, lease)
        )
        self._master = Endpoint.of(lease.owner) if lease is not None and is_running else None
        return False

    def master(self) -> Endpoint:
        """Return the endpoint of the master. Raises NotLeader while there is none."""
        if self.leading:
            return self.here
        known_master = self._master
        if known_master is None or known_master == self.here:
            raise NotLeader("no front end is master at the moment: ask again")
        return known_master

    def require(self) -> None:
        """Raise NotLeader, which names the master if one is known, unless this front end is master."""
        if not self.leading:
            raise NotLeader("another front end is master", leader_url=self.master().url)

    def give_up(self) -> None:
        self._mastership.give_up()
        self._master = None

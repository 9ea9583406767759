"""The endpoints of Stream Load: where each is reached, which of them is master, and the lease that says
so.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtolap.base.errors import NotLeader
from rtolap.stored.frontend.mastership import MASTER, Mastership
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.leases import Lease, Leases


@dataclass(frozen=True)
class Endpoint:
    """`url`: where loads are requested; `body_url`: where their bodies go. Neither ends in a slash."""

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
        held = lease is not None and self._ledger.read(
            "see whether the lease still runs", lambda connection: running(connection, lease)
        )
        self._master = Endpoint.of(lease.owner) if lease is not None and held else None
        return False

    def master(self) -> Endpoint:
        """Raises NotLeader while there is none."""
        if self.leading:
            return self.here
        known_master = self._master
        if known_master is None or known_master == self.here:
            raise NotLeader("no front end is master at the moment: ask again")
        return known_master

    def require(self) -> None:
        """Raises NotLeader, which names the master if one is known, unless this front end is it."""
        if not self.leading:
            raise NotLeader("another front end is master", leader_url=self.master().url)

    def give_up(self) -> None:
        self._mastership.give_up()
        self._master = None

"""Ownership of the job: the lease that all writes of this process stand on."""

from __future__ import annotations

import threading

from rtolap.stored.metastore.leases import Lease, Leases

LEASE_MS = 15_000


class Ownership:
    """Thread-safe. NotYet while somebody else owns the job, NotLeader once somebody else has taken it."""

    def __init__(self, leases: Leases, job: str, owner: str, *, lease_ms: int = LEASE_MS) -> None:
        self._leases = leases
        self._lease_ms = lease_ms
        self._lock = threading.Lock()
        self._lease = leases.acquire(job, owner, lease_ms)

    @property
    def lease(self) -> Lease:
        with self._lock:
            return self._lease

    def renew(self) -> None:
        renewed = self._leases.renew(self.lease, self._lease_ms)
        with self._lock:
            self._lease = renewed

    def release(self) -> None:
        self._leases.release(self.lease)

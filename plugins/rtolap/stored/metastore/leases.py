"""Leases go by the database's clock: an owner, an epoch that every change of owner raises, and the fence.

The fence is the first statement of an owner's write. It reads the row of the lease under a lock and holds it
until the commit: either the epoch is raised before, and the write is refused, or whoever raises it waits
until the write stands. A condition `WHERE EXISTS (… epoch = …)` in each statement would not do on READ
COMMITTED: it reads without a lock, so that the epoch may be raised between the statement and its commit. A
lease that has run out, and that nobody has taken, still carries its owner's writes: they harm nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import msgspec
import sqlalchemy as sa

from rtolap.base.errors import CommitConflict, NotFound, NotLeader, NotYet
from rtolap.stored.metastore import schema
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.schema import checked_name

R = TypeVar("R")


class Lease(msgspec.Struct, frozen=True):
    """An ownership with an end.

    Attributes:
        epoch: grows with each new owner.
        until_ms: the end, by the database's clock.
    """

    name: str
    owner: str
    epoch: int
    until_ms: int


class Leases:
    """The leases of one table: `lease`, where a name may be taken that nobody had before, or another with the
    columns owner, epoch and lease_until_ms, whose rows must be there already."""

    def __init__(self, ledger: Ledger, table: sa.Table = schema.lease) -> None:
        self.ledger = ledger
        self._table = table
        key = cast("sa.Column[str]", next(iter(table.primary_key.columns)))
        # put together once: every write of an owner sends the second
        of_name = key == sa.bindparam("of_name")
        self._find: sa.Select[tuple[str, int, int]] = sa.select(
            table.c.owner, table.c.epoch, table.c.lease_until_ms
        ).where(of_name)
        self._lock = cast("sa.Select[tuple[str, int, int]]", self._find.with_for_update())
        self._change = sa.update(table).where(of_name)

    def acquire(self, name: str, owner: str, lease_ms: int) -> Lease:
        """Take it with the next epoch, when it is free, has run out, or is this owner's own (a restart).

        Raises NotYet while somebody else's runs, NotFound where the row must be there and is not.
        """
        checked_name("owner of a lease", owner)
        checked_name("name of a lease", name)

        def work(connection: sa.Connection) -> Lease:
            row = self._row(connection, name)
            now_ms = self.ledger.now_ms(connection)
            if row is None:
                if self._table is not schema.lease:
                    raise NotFound(f"there is no {name} to own")
                taken = Lease(name, owner, 1, now_ms + lease_ms)
                connection.execute(
                    sa.insert(self._table).values(
                        name=name, owner=owner, epoch=1, lease_until_ms=taken.until_ms
                    )
                )
                return taken
            if row.owner != owner and row.lease_until_ms > now_ms:
                raise NotYet(
                    f"{name} cannot be taken by {owner}",
                    expected="a lease that has run out",
                    found=f"{row.owner} with epoch {row.epoch} for another {row.lease_until_ms - now_ms} ms",
                )
            taken = Lease(name, owner, row.epoch + 1, now_ms + lease_ms)
            self._set(connection, taken)
            return taken

        purpose = f"take the lease {name}"
        try:
            return self.ledger.write(purpose, Lease, work)
        except CommitConflict:  # somebody else was the first ever to take it
            return self.ledger.write(purpose, Lease, work)

    def is_free(self, name: str, owner: str) -> bool:
        """Return True if `acquire` would succeed now. It locks nothing, so those who wait for a lease hinder
        nobody."""

        def work(connection: sa.Connection) -> bool:
            row = connection.execute(self._find, {"of_name": name}).one_or_none()
            return row is None or row.owner == owner or row.lease_until_ms <= self.ledger.now_ms(connection)

        return self.ledger.read(f"look at the lease {name}", work)

    def renew(self, lease: Lease, lease_ms: int) -> Lease:
        """Renew a lease with the same epoch. Raises NotLeader when another owner has taken it."""

        def work(connection: sa.Connection, now_ms: int) -> Lease:
            renewed = msgspec.structs.replace(lease, until_ms=max(lease.until_ms, now_ms + lease_ms))
            self._set(connection, renewed)
            return renewed

        return self.write(lease, f"renew the lease {lease.name}", Lease, work)

    def release(self, lease: Lease) -> None:
        """Let the next owner in at once. Harmless when it has been taken already."""

        def work(connection: sa.Connection) -> None:
            row = self._row(connection, lease.name)
            if row is not None and (row.owner, row.epoch) == (lease.owner, lease.epoch):
                self._set(connection, msgspec.structs.replace(lease, until_ms=0))

        self.ledger.write(f"release the lease {lease.name}", type(None), work)

    def current(self, name: str) -> Lease | None:
        """Return the lease as the database has it now; it may have run out."""

        def work(connection: sa.Connection) -> Lease | None:
            row = connection.execute(self._find, {"of_name": name}).one_or_none()
            return None if row is None else Lease(name, row.owner, row.epoch, row.lease_until_ms)

        return self.ledger.read(f"read the lease {name}", work)

    def write(self, lease: Lease, purpose: str, kind: type[R], work: Callable[[sa.Connection, int], R]) -> R:
        """Write as `Ledger.write`, as the owner of the lease. `work` gets the database's time in ms too.
        Raises NotLeader when another owner has the lease."""

        def fenced(connection: sa.Connection) -> R:
            return work(connection, self.fence(connection, lease))

        return self.ledger.write(purpose, kind, fenced)

    def fence(self, connection: sa.Connection, lease: Lease) -> int:
        """Fence an owner's write, as its first statement: nobody can take the lease before the write ends.
        Returns the database's time in ms. Raises NotLeader when another owner has the lease."""
        row = self._row(connection, lease.name)
        if row is None or (row.owner, row.epoch) != (lease.owner, lease.epoch):
            holder = "nobody's" if row is None else f"{row.owner}'s with epoch {row.epoch}"
            raise NotLeader(
                f"{lease.owner} with epoch {lease.epoch} owns {lease.name} no more: it is {holder}"
            )
        return self.ledger.now_ms(connection)

    def _row(self, connection: sa.Connection, name: str) -> sa.Row[tuple[str, int, int]] | None:
        return connection.execute(self._lock, {"of_name": name}).one_or_none()

    def _set(self, connection: sa.Connection, lease: Lease) -> None:
        values = {"owner": lease.owner, "epoch": lease.epoch, "lease_until_ms": lease.until_ms}
        connection.execute(self._change, {"of_name": lease.name, **values})

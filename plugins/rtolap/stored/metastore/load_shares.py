"""Shares of a divided job: each is a fixed part of the topic's partitions, with a lease and records.

A share is to its owner what an undivided job is to its owner: every write to its records is fenced by its
lease, so a batch is loaded exactly once whoever owns the share. Partition p is in share p modulo the number
of shares, which stays as long as the incarnation; a partition that is added is therefore in one share too.

Division, in one transaction that the job's lease fences; its parts stand together or not at all:

    1. the shares                    without an owner
    2. a first record of each        loaded and committed, at the end of the job's last record
    3. the job's records go          all are loaded; labels that are still to be given back go to its config
    4. the number of shares          from here on the job is divided

A crash before the commit leaves the job as it was, and the next owner divides it. After it, every share can
be owned.

`assigned` is the process that the job's owner wants to own a share. It decides nothing about who may write.
A process is alive while its lease runs. Its number is its place among the processes that are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
import sqlalchemy as sa

from rtolap.base.decoding import convert
from rtolap.base.errors import CommitConflict, NotFound, Refused
from rtolap.model.loader import share_of_partition
from rtolap.stored.metastore import schema
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.leases import Lease, Leases
from rtolap.stored.metastore.offsets import OffsetsRecord, insert_record, records_of
from rtolap.stored.metastore.schema import load_job as _j
from rtolap.stored.metastore.schema import load_process as _p
from rtolap.stored.metastore.schema import load_share as _s
from rtolap.stored.metastore.schema import offsets_record as _o

# Every round of a process reads them: to put them together each time takes longer than to send them.
_FIND_SHARES = sa.select(_s).where(_s.c.job_id == sa.bindparam("of_job")).order_by(_s.c.number)
_FIND_LIVING = (
    sa.select(_p)
    .where(_p.c.job_id == sa.bindparam("of_job"), _p.c.lease_until_ms > sa.bindparam("at_ms"))
    .order_by(_p.c.number)
)


class LoadShare(msgspec.Struct, frozen=True):
    """A share of a job.

    Attributes:
        assigned: number of the process that is to own it; None for none.
        owner: who owned it last; "" for nobody yet.
        owned: its lease runs.
    """

    share_id: str
    job_id: str
    number: int
    assigned: int | None
    owner: str
    epoch: int
    lease_until_ms: int
    owned: bool = False


class LoadProcess(msgspec.Struct, frozen=True):
    """A living process of a job. `owner` begins with the address of its endpoint."""

    process_id: str
    job_id: str
    number: int
    owner: str
    epoch: int
    lease_until_ms: int


class Division(msgspec.Struct, frozen=True):
    """The shares of a job and its living processes, as one read has found them."""

    shares: tuple[LoadShare, ...]
    processes: tuple[LoadProcess, ...]


def share_id(job_id: str, incarnation: int, number: int) -> str:
    """Return the id of a share. No job has such a name, because names have no dots."""
    return f"{job_id}.{incarnation}.{number}"


class LoadShares:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.leases = Leases(ledger, _s)
        self.process_leases = Leases(ledger, _p)
        self._job_leases = Leases(ledger, _j)

    def divide(
        self,
        lease: Lease,
        shares: int,
        *,
        label: Callable[[int], str],
        config: Callable[[tuple[OffsetsRecord, ...]], str],
    ) -> bool:
        """Divide the job of the lease. Return False where it is divided already.

        `label` gives the first label of a share; `config` the job's configuration, from the records that go.
        Raises Refused while a record is not loaded, or there is none.
        """

        def work(connection: sa.Connection, now_ms: int) -> bool:
            job = connection.execute(sa.select(_j).where(_j.c.job_id == lease.name)).one()
            if job.shares is not None:
                return False
            records = records_of(connection, lease.name)
            open_labels = [record.label for record in records if not record.loaded]
            if open_labels or not records:
                raise Refused(
                    f"job {lease.name} cannot be divided",
                    expected="records of loaded batches",
                    found=f"not loaded: {', '.join(open_labels)}" if open_labels else "no record",
                )
            last = records[-1]
            connection.execute(sa.delete(_o).where(_o.c.job_id == lease.name))
            for number in range(shares):
                name = share_id(lease.name, job.incarnation, number)
                connection.execute(
                    sa.insert(_s).values(
                        share_id=name, job_id=lease.name, number=number, owner="", epoch=0, lease_until_ms=0
                    )
                )
                insert_record(connection, _first_record(last, name, number, shares, label(number), now_ms))
            changed = sa.update(_j).where(_j.c.job_id == lease.name)
            connection.execute(changed.values(shares=shares, config=config(records)))
            return True

        return self._job_leases.write(lease, f"divide job {lease.name}", bool, work)

    def division(self, job_id: str) -> Division:
        """Return the shares, by number, and the processes whose leases run, by number."""

        def work(connection: sa.Connection) -> Division:
            now_ms = self._ledger.now_ms(connection)
            shares = connection.execute(_FIND_SHARES, {"of_job": job_id})
            living = connection.execute(_FIND_LIVING, {"of_job": job_id, "at_ms": now_ms})
            return Division(
                tuple(
                    convert({**schema.values(row._mapping), "owned": row.lease_until_ms > now_ms}, LoadShare)
                    for row in shares
                ),
                tuple(convert(schema.values(row._mapping), LoadProcess) for row in living),
            )

        return self._ledger.read(f"read the shares of {job_id}", work)

    def assign(self, lease: Lease, assigned: Mapping[int, int | None]) -> None:
        """Write which process is to own each share, by the owner of the job. Raises NotLeader."""

        def work(connection: sa.Connection, now_ms: int) -> None:
            for number, process in sorted(assigned.items()):
                one = sa.update(_s).where(_s.c.job_id == lease.name, _s.c.number == number)
                connection.execute(one.values(assigned=process))

        self._job_leases.write(lease, f"assign the shares of {lease.name}", type(None), work)

    def want_processes(self, lease: Lease, number: int) -> None:
        """Write how many processes the job shall have, by its owner. Raises NotLeader."""

        def work(connection: sa.Connection, now_ms: int) -> None:
            connection.execute(sa.update(_j).where(_j.c.job_id == lease.name).values(processes=number))

        self._job_leases.write(lease, f"want processes of {lease.name}", type(None), work)

    def join(self, job_id: str, number: int, owner: str, lease_ms: int) -> Lease:
        """Take the lease of process `number` of a job. Raises NotYet while another one has that number."""
        name = f"{job_id}.{number}"

        def work(connection: sa.Connection) -> None:
            if connection.scalar(sa.select(_j.c.epoch).where(_j.c.job_id == job_id)) is None:
                raise NotFound(f"there is no job {job_id}")
            if connection.scalar(sa.select(_p.c.epoch).where(_p.c.process_id == name)) is None:
                connection.execute(
                    sa.insert(_p).values(
                        process_id=name, job_id=job_id, number=number, owner="", epoch=0, lease_until_ms=0
                    )
                )

        with suppress(CommitConflict):  # another one has made the row: the lease decides between them
            self._ledger.write(f"join job {job_id}", type(None), work)
        return self.process_leases.acquire(name, owner, lease_ms)


def _first_record(
    last: OffsetsRecord, name: str, number: int, shares: int, label: str, now_ms: int
) -> OffsetsRecord:
    """Return the first record of a share: its partitions, where the job's last record ends."""
    at = {
        partition: offset
        for partition, offset in last.end_offsets.items()
        if share_of_partition(partition, shares) == number
    }
    epochs = {partition: known for partition, known in last.end_epochs.items() if partition in at}
    return OffsetsRecord(
        name, 0, 0, label, at, at, loaded=True, committed=True, row_count=0, filtered_rows=0,
        loaded_at_ms=now_ms, topic_id=last.topic_id, end_epochs=epochs,
    )  # fmt: skip

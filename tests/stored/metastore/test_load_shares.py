"""Shares in the ledger: a job is divided once and whole, and only the owner of a share writes its records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rtolap.base.errors import NotLeader, NotYet, Refused
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.leases import Lease
from rtolap.stored.metastore.load_jobs import LoadJobs
from rtolap.stored.metastore.load_shares import LoadShares
from rtolap.stored.metastore.offsets import Loaded, OffsetsRecords

from tests.support.twins.clock import ManualClock

LEASE_MS = 15_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def ledger(clock: ManualClock) -> Iterator[Ledger]:
    with Ledger.open("sqlite://", clock=clock) as one:
        yield one


def recorded(ledger: Ledger, *, loaded: bool) -> Lease:
    """Return the lease of a job that has one record over three partitions."""
    jobs = LoadJobs(ledger)
    jobs.create("j", "d", "t", "t", "{}")
    lease = jobs.leases.acquire("j", "p", LEASE_MS)
    records = OffsetsRecords(ledger)
    records.insert(lease, 0, "j_1_0", {0: 0, 1: 0, 2: 0}, {0: 5, 1: 6, 2: 7})
    if loaded:
        records.mark_loaded(lease, 0, Loaded(None, 18))
    return lease


def divide(ledger: Ledger, lease: Lease) -> bool:
    return LoadShares(ledger).divide(lease, 2, label=lambda n: f"j_1_s{n}_0", config=lambda records: "{}")


def test_each_share_goes_on_where_the_job_has_ended(ledger: Ledger) -> None:
    lease = recorded(ledger, loaded=True)
    assert divide(ledger, lease)
    assert not divide(ledger, lease)
    ends = [OffsetsRecords(ledger, of_shares=True).all(f"j.1.{n}")[0].end_offsets for n in range(2)]
    assert ends == [{0: 5, 2: 7}, {1: 6}]
    assert OffsetsRecords(ledger).all("j") == ()
    assert LoadJobs(ledger).get("j").shares == 2


def test_a_job_with_a_batch_that_is_not_loaded_is_not_divided(ledger: Ledger) -> None:
    with pytest.raises(Refused, match="j_1_0"):
        divide(ledger, recorded(ledger, loaded=False))
    assert LoadJobs(ledger).get("j").shares is None


def test_an_owner_whose_share_has_moved_writes_nothing(ledger: Ledger, clock: ManualClock) -> None:
    divide(ledger, recorded(ledger, loaded=True))
    leases, records = LoadShares(ledger).leases, OffsetsRecords(ledger, of_shares=True)
    before = leases.acquire("j.1.0", "p", LEASE_MS)
    records.insert(before, 1, "j_1_s0_1", {0: 5, 2: 7}, {0: 9, 2: 9})
    with pytest.raises(NotYet):
        leases.acquire("j.1.0", "q", LEASE_MS)
    assert not leases.is_free("j.1.0", "q")
    clock.advance_ms(LEASE_MS + 1)
    assert leases.is_free("j.1.0", "q")
    after = leases.acquire("j.1.0", "q", LEASE_MS)
    found = records.all("j.1.0")
    for write in (
        lambda: records.mark_sent(before, 1),
        lambda: records.mark_loaded(before, 1, Loaded(None, 6)),
        lambda: records.insert(before, 2, "j_1_s0_2", {0: 9, 2: 9}, {0: 9, 2: 9}),
        lambda: records.commit(before),
        lambda: LoadJobs(ledger).fail_by_share(before, "j", "late"),
        lambda: leases.renew(before, LEASE_MS),
    ):
        with pytest.raises(NotLeader):
            write()
    assert records.all("j.1.0") == found
    assert records.mark_sent(after, 1).attempts == 1


def test_a_job_is_not_defined_anew_while_a_share_or_a_process_is_owned(
    ledger: Ledger, clock: ManualClock
) -> None:
    lease = recorded(ledger, loaded=True)
    divide(ledger, lease)
    jobs, shares = LoadJobs(ledger), LoadShares(ledger)
    jobs.leases.release(lease)
    owned = shares.leases.acquire("j.1.1", "p", LEASE_MS)
    with pytest.raises(Refused, match="it is p's"):
        jobs.define_again("j", lambda _: "{}")
    shares.leases.release(owned)
    shares.join("j", 0, "q", LEASE_MS)
    with pytest.raises(Refused, match="it is q's"):
        jobs.define_again("j", lambda _: "{}")
    clock.advance_ms(LEASE_MS + 1)
    assert jobs.define_again("j", lambda series: f"{len(series)}").config == "2"
    assert shares.division("j").shares == ()
    with pytest.raises(NotLeader):
        shares.leases.renew(owned, LEASE_MS)

"""The time in which a consumer may begin work."""

from __future__ import annotations

from rtolap.sep.shares.lease import Lease

from tests.support.twins.clock import ManualClock


def test_a_lease_counts_from_before_the_read_that_renews_it() -> None:
    clock = ManualClock()
    lease = Lease(clock, 4.0)
    assert not lease.holds()
    renew = lease.begin()
    clock.advance_ms(3_000)  # the answer takes that long
    renew()
    assert lease.holds()
    clock.advance_ms(1_500)
    assert not lease.holds()


def test_a_process_that_stood_still_finds_its_lease_over() -> None:
    clock = ManualClock()
    lease = Lease(clock, 4.0)
    lease.begin()()
    assert lease.holds()
    clock.advance_ms(10_000)
    assert not lease.holds()
    lease.begin()()
    lease.end()
    assert not lease.holds()

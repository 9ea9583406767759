"""Approvals that come in at once: each of them is recorded, and each counts."""

from __future__ import annotations

import threading

import pytest
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.records import Approval
from rtolap.protocols.watermark.messages import ApprovalRequest

from tests.support.cubes.coordinator_harness import Cluster
from tests.support.watermarks.application_reports import NAME, declared, now


class WatchedLock:
    """Tells that somebody comes to it, before it lets them in."""

    def __init__(self, comes: threading.Event) -> None:
        self._comes = comes
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._comes.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_of_two_approvals_at_once_both_count(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bob gives the further one after Ann's was written and before it is known. He is done, or waits."""
    declared(cluster)
    running = cluster.coordinator.applications.running(NAME)
    write, bob_waits_or_is_done = ApplicationRecords.approve, threading.Event()
    monkeypatch.setattr(running, "_approving", WatchedLock(bob_waits_or_is_done))

    def approve(by: str, until_ms: int) -> None:
        running.approve(ApprovalRequest(until_ms=until_ms, by=by, reason="late"))

    def bob() -> None:
        approve("bob", now(cluster, 1))
        bob_waits_or_is_done.set()

    second = threading.Thread(target=bob)

    def written(self: ApplicationRecords, name: str, epoch: int, approval: Approval) -> tuple[Approval, ...]:
        found = write(self, name, epoch, approval)
        if approval.by == "ann":
            bob_waits_or_is_done.clear()
            second.start()
            assert bob_waits_or_is_done.wait(30)
        return found

    monkeypatch.setattr(ApplicationRecords, "approve", written)
    approve("ann", now(cluster, 10))
    second.join(30)
    assert [one.by for one in running.approvals] == ["ann", "bob"]
    assert running.approved_until_ms() == now(cluster, 1)
    assert [one.by for one in cluster.client.application(NAME).approvals] == ["ann", "bob"]

"""How long labels stay, who may use them again, and how many transactions may run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError, LabelUsed, NotFound, Refused, TooManyAtOnce
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.transactions.labels import LabelPolicy
from rtolap.stored.frontend.transactions.publishing import Publisher
from rtolap.stored.frontend.transactions.requests import TransactionManager
from rtolap.stored.frontend.upkeep import Upkeep
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.leases import Leases
from rtolap.stored.metastore.records import BeginRequest, Partition, Tablet, Transaction, TransactionState

from tests.support.stored.ledgers import open_ledger
from tests.support.twins.clock import ManualClock
from tests.support.twins.storage_nodes import MemoryNodes

HOUR_MS = 3_600_000
PART = Partition("web", "hits", "all")


class Endpoint:
    """A master over one partition on one node in memory."""

    def __init__(self, ledger: Ledger, policy: LabelPolicy, running_max: int = 100) -> None:
        nodes = MemoryNodes(("n1",))
        mastership = Mastership(Leases(ledger), "endpoint", lease_ms=100 * HOUR_MS)
        assert mastership.acquire()
        self.nodes = nodes
        self.manager = TransactionManager(ledger, mastership, nodes, running_max=running_max)
        self.publisher = Publisher(ledger, mastership, nodes)
        self.upkeep = Upkeep(ledger, mastership, self.manager, self.publisher, policy)

    def begin(self, label: str, request_id: str = "", *, keep: bool = False) -> Transaction:
        request_id = request_id or label
        return self.manager.begin(
            BeginRequest("web", ("hits",), label, request_id, 100 * HOUR_MS, keep_until_acknowledged=keep)
        )

    def load(self, label: str, *, keep: bool = False) -> Transaction:
        """Up to VISIBLE."""
        transaction = self.begin(label, keep=keep)
        self.nodes.receive("n1", transaction.txn_id, Tablet(PART, 0), [label])
        self.manager.commit("web", transaction.txn_id, (PART,))
        self.publisher.publish_committed()
        return self.manager.get("web", transaction.txn_id)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000)


@pytest.fixture
def ledger(clock: ManualClock, tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger.db", clock=clock) as opened:

        def work(connection: Connection) -> None:
            partition_rows.create(connection, PART, {0: ("n1",)})

        opened.write("create", type(None), work)
        yield opened


def test_labels_go_by_time_unless_they_wait_for_their_loader(ledger: Ledger, clock: ManualClock) -> None:
    endpoint = Endpoint(ledger, LabelPolicy(keep_ms=12 * HOUR_MS))
    assert endpoint.load("plain").state is TransactionState.VISIBLE
    endpoint.load("kept", keep=True)
    clock.advance_ms(12 * HOUR_MS - 1)
    endpoint.upkeep.run_once()
    assert endpoint.manager.find("web", "plain") is not None
    clock.advance_ms(2)
    endpoint.upkeep.run_once()
    assert endpoint.manager.find("web", "plain") is None
    clock.advance_ms(1000 * HOUR_MS)
    endpoint.upkeep.run_once()
    assert endpoint.manager.find("web", "kept") is not None
    with pytest.raises(LabelUsed):
        endpoint.begin("kept", "another request")
    endpoint.manager.acknowledge("web", "kept")
    endpoint.manager.acknowledge("web", "kept")
    endpoint.upkeep.run_once()
    assert endpoint.manager.find("web", "kept") is None
    assert endpoint.load("kept").state is TransactionState.VISIBLE


def test_labels_go_by_count_the_oldest_first(ledger: Ledger, clock: ManualClock) -> None:
    endpoint = Endpoint(ledger, LabelPolicy(keep_ms=None, count_max_per_database=3))
    endpoint.load("kept", keep=True)
    for number in range(6):
        clock.advance_ms(1)
        endpoint.load(f"plain-{number}")
    clock.advance_ms(1)
    running = endpoint.begin("running")
    endpoint.upkeep.run_once()
    left = [number for number in range(6) if endpoint.manager.find("web", f"plain-{number}") is not None]
    assert left == [3, 4, 5]
    assert endpoint.manager.find("web", "kept") is not None
    assert endpoint.manager.get("web", running.txn_id).state is TransactionState.PREPARE


def test_a_label_is_not_acknowledged_while_it_runs(ledger: Ledger) -> None:
    endpoint = Endpoint(ledger, LabelPolicy())
    endpoint.begin("running", keep=True)
    with pytest.raises(Refused, match="cannot be acknowledged"):
        endpoint.manager.acknowledge("web", "running")
    endpoint.manager.acknowledge("web", "never")


def test_under_a_closed_label_nothing_is_loaded_until_it_is_acknowledged(
    ledger: Ledger, clock: ManualClock
) -> None:
    endpoint = Endpoint(ledger, LabelPolicy(keep_ms=HOUR_MS))
    refused: list[str] = []

    def close(label: str) -> TransactionState:
        found = endpoint.manager.close_label(
            "web", label, "bert", lambda holder: refused.append(holder.label)
        )
        return found.state

    assert close("unused") is TransactionState.ABORTED
    running = endpoint.begin("running")
    endpoint.nodes.receive("n1", running.txn_id, Tablet(PART, 0), ["row"])
    assert close("running") is TransactionState.ABORTED
    with pytest.raises(Refused, match="already aborted"):
        endpoint.manager.commit("web", running.txn_id, (PART,))
    failed = endpoint.begin("failed", keep=True)
    endpoint.manager.abort("web", failed.txn_id, "enough")
    assert close("failed") is TransactionState.ABORTED
    endpoint.load("loaded", keep=True)
    assert close("loaded") is TransactionState.VISIBLE
    assert refused == ["running", "loaded"], "whoever closes must own what is there"
    clock.advance_ms(10 * HOUR_MS)
    endpoint.upkeep.run_once()
    for label in ("unused", "running", "failed"):
        with pytest.raises(Refused, match="is closed"):
            endpoint.begin(label)
        assert close(label) is TransactionState.ABORTED
        endpoint.manager.acknowledge("web", label)
    with pytest.raises(LabelUsed):
        endpoint.begin("loaded")
    endpoint.upkeep.run_once()
    for label in ("unused", "running", "failed"):
        assert endpoint.manager.find("web", label) is None
        endpoint.begin(label)
    assert not endpoint.nodes.nodes["n1"].received.get(running.txn_id)


def test_a_node_that_lags_keeps_the_label_of_what_it_lacks(ledger: Ledger, clock: ManualClock) -> None:
    endpoint = Endpoint(ledger, LabelPolicy(keep_ms=HOUR_MS))
    transaction = endpoint.begin("committed")
    endpoint.nodes.receive("n1", transaction.txn_id, Tablet(PART, 0), ["row"])
    endpoint.manager.commit("web", transaction.txn_id, (PART,))
    endpoint.nodes.stop("n1")
    clock.advance_ms(10 * HOUR_MS)
    endpoint.upkeep.run_once()
    assert endpoint.manager.get("web", transaction.txn_id).state is TransactionState.COMMITTED
    endpoint.nodes.start("n1")
    endpoint.upkeep.run_once()
    assert endpoint.manager.get("web", transaction.txn_id).state is TransactionState.VISIBLE


def test_the_same_request_finds_its_transaction_again(ledger: Ledger) -> None:
    endpoint = Endpoint(ledger, LabelPolicy())
    first = endpoint.begin("label", "request 1")
    assert endpoint.begin("label", "request 1") == first
    with pytest.raises(LabelUsed) as used:
        endpoint.begin("label", "request 2")
    assert (used.value.txn_id, used.value.existing_job_status) == (first.txn_id, "RUNNING")
    endpoint.nodes.receive("n1", first.txn_id, Tablet(PART, 0), ["row"])
    endpoint.manager.commit("web", first.txn_id, (PART,))
    with pytest.raises(LabelUsed) as finished:
        endpoint.begin("label", "request 1")
    assert finished.value.existing_job_status == "FINISHED"


def test_the_limit_counts_what_runs_in_one_database(ledger: Ledger) -> None:
    endpoint = Endpoint(ledger, LabelPolicy(), running_max=2)
    first = endpoint.begin("one")
    endpoint.begin("two")
    with pytest.raises(TooManyAtOnce, match=r"current running txns on db web is 2, larger than limit 2"):
        endpoint.begin("three")
    endpoint.manager.begin(BeginRequest("other", ("hits",), "three", "r", HOUR_MS))
    endpoint.manager.abort("web", first.txn_id, "enough")
    endpoint.begin("three")


@pytest.mark.parametrize("label", ["", " ", "a b", "ä", "a/b", "x" * 129, "a\n"])
def test_a_label_has_a_form(ledger: Ledger, label: str) -> None:
    with pytest.raises(DefinitionError, match="Label format error"):
        Endpoint(ledger, LabelPolicy()).begin(label)


def test_an_unknown_transaction_is_told_in_the_words_that_clients_match(ledger: Ledger) -> None:
    with pytest.raises(NotFound, match=r"^transaction \[17\] not found$"):
        Endpoint(ledger, LabelPolicy()).manager.get("web", 17)

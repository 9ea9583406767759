"""Declared quotas are set and looked at again, whatever breaks in between; others stay."""

from __future__ import annotations

import pytest
from rtolap.base.errors import CommitUnknown, Refused, Unavailable
from rtolap.fleet.isolation import quotas
from rtolap.fleet.isolation.quotas import (
    QuotaChange,
    QuotaDifference,
    apply_quotas,
    live_differences,
    quota_alterations,
    quota_changes,
    quota_differences,
)
from rtolap.fleet.snapshot.model import Quota
from rtolap.kafka.administration.interface import ClientQuota
from rtolap.metadata import codec, paths, updates
from rtolap.model.fleet import DeclaredQuota, FleetCluster

from tests.support.twins.administered_cluster import MemoryCluster
from tests.support.twins.administration import MemoryAdministration
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

ANYBODY = (("user", None),)
LOUD = (("client-id", "etl"), ("user", "loud"))
DECLARED = (
    DeclaredQuota(user="<default>", producer_byte_rate=5.0),
    DeclaredQuota(user="loud", client_id="etl", consumer_byte_rate=7.0, request_percentage=50.0),
)


def cluster(undeclared: str = "report") -> FleetCluster:
    return FleetCluster(businesses=("shop",), quotas=DECLARED, undeclared_quotas=undeclared)  # type: ignore[arg-type]


def test_what_is_missing_is_set_and_what_nobody_declared_stays() -> None:
    live = [
        Quota(ANYBODY, "producer_byte_rate", 5.0),
        Quota(LOUD, "consumer_byte_rate", 1.0),
        Quota((("ip", "10.0.0.1"),), "connection_creation_rate", 3.0),
    ]
    differences = quota_differences(cluster(), live)
    assert differences == (
        QuotaDifference(LOUD, "consumer_byte_rate", 7.0, 1.0),
        QuotaDifference(LOUD, "request_percentage", 50.0, None),
        QuotaDifference((("ip", "10.0.0.1"),), "connection_creation_rate", None, 3.0, applies=False),
    )
    assert quota_alterations(differences) == {LOUD: {"consumer_byte_rate": 7.0, "request_percentage": 50.0}}
    removing = quota_alterations(quota_differences(cluster("remove"), live))
    assert removing[(("ip", "10.0.0.1"),)] == {"connection_creation_rate": None}


class _World:
    def __init__(self) -> None:
        self.kafka = MemoryCluster("Mk")
        self.kafka.add_broker(1, None, {"/d": 10})
        self.administration = MemoryAdministration(self.kafka)
        self.ensemble = MemoryEnsemble()
        self.store = MemoryStore(self.ensemble)

    def apply(self, operation_id: str) -> tuple[QuotaDifference, ...]:
        return apply_quotas(
            cluster(),
            live_differences(cluster(), self.administration),
            self.administration,
            self.store,
            ManualClock(9),
            operation_id=operation_id,
            by="ann",
            reason="noisy",
        )

    def change(self, operation_id: str) -> QuotaChange:
        path = paths.fleet_quota_change("Mk", operation_id)
        node = self.store.get(path)
        assert node is not None
        return codec.decode(node.data, QuotaChange, path)


def test_applying_leaves_no_difference_and_says_who_and_why() -> None:
    world = _World()
    assert world.apply("one") == ()
    change = world.change("one")
    assert (change.by, change.reason, change.at_ms, change.taken) == ("ann", "noisy", 9, True)
    assert len(change.differences) == 3
    assert world.apply("two") == ()
    assert world.store.get(paths.fleet_quota_change("Mk", "two")) is None
    assert quota_changes(world.store, "Mk") == (change,)
    assert quota_changes(world.store, "another") == ()


class Lagging(MemoryAdministration):
    """Reads as before, so many times: from a broker that has not heard of the alterations."""

    def __init__(self, cluster: MemoryCluster, looks: int) -> None:
        super().__init__(cluster)
        self._looks, self._before = looks, super().client_quotas()

    def client_quotas(self) -> tuple[ClientQuota, ...]:
        self._looks -= 1
        return self._before if self._looks >= 0 else super().client_quotas()


@pytest.mark.parametrize(("looks", "is_in_force"), [(1, True), (4, True), (1_000, False)])
def test_it_is_waited_until_a_broker_knows_what_was_sent(
    monkeypatch: pytest.MonkeyPatch, looks: int, is_in_force: bool
) -> None:
    monkeypatch.setattr(quotas, "IN_FORCE_S_MAX", 1.0)
    world = _World()
    world.administration = Lagging(world.kafka, looks)
    left = world.apply("one")
    assert (left == ()) is is_in_force
    assert world.change("one").taken


def test_commits_whose_answers_are_lost_make_no_second_entry() -> None:
    world = _World()
    answers = iter(["after", "before", "after"])  # of the entry, and of the note twice
    world.ensemble.fault = lambda _: next(answers, None)  # type: ignore[assignment,return-value]
    assert world.apply("one") == ()
    assert world.change("one").taken
    assert not list(answers), "no answer was lost"


def test_a_cluster_that_takes_nothing_leaves_an_entry_that_says_so() -> None:
    world = _World()
    differences = live_differences(cluster(), world.administration)

    class Broken(MemoryAdministration):
        def alter_client_quotas(self, changes: object) -> None:
            raise Unavailable("no broker answers")

    with pytest.raises(Unavailable):
        apply_quotas(
            cluster(),
            differences,
            Broken(world.kafka),
            world.store,
            ManualClock(9),
            operation_id="one",
            by="ann",
            reason="noisy",
        )
    assert not world.change("one").taken
    assert world.apply("one") == ()
    assert world.change("one").taken


def test_another_clusters_quotas_are_left_alone() -> None:
    declared = FleetCluster(businesses=("shop",), cluster_id="Other", quotas=DECLARED)
    with pytest.raises(Refused, match="quotas of another cluster"):
        live_differences(declared, _World().administration)


def test_an_unknown_commit_is_never_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it was repeated; thirty rounds would wait for seconds."""
    monkeypatch.setattr(updates, "ATTEMPTS_MAX", 3)
    world = _World()
    world.ensemble.fault = lambda _: "before"
    with pytest.raises(CommitUnknown):
        world.apply("one")
    assert world.administration.client_quotas() == ()

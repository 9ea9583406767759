"""Places of receivers: what is shared, what the policy refuses, and how plans spread over racks."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rtolap.base.errors import Refused, RtolapError
from rtolap.cli import receivers
from rtolap.coordinator.assigners import ReplicaSetLoad, assign_default, rebalance
from rtolap.coordinator.placement.racks import spread
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.members.places import PlacementPolicy, refused_places, shared_places
from rtolap.metadata.records import ReceiverRecord
from rtolap.protocols.coordinator.messages import ReassignRequest
from typer.testing import CliRunner

from tests.coordinator.test_metrics import page
from tests.coordinator.test_retirement import ALL, all_serve, leave
from tests.support.cubes.coordinator_harness import CUBE, NAME, Cluster
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

# -- the spread over racks ------------------------------------------------------------------------------

costs_and_racks = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, "", "a", "b"])), max_size=7)


def fullest(racks: list[str | None]) -> int:
    return max(Counter(rack for rack in racks if rack is not None).values(), default=0)


@settings(max_examples=400)
@given(drawn=costs_and_racks, count=st.integers(0, 8), beside=st.lists(st.sampled_from("ab"), max_size=3))
def test_no_choice_of_equal_cost_has_a_rack_that_holds_more(
    drawn: list[tuple[int, str | None]], count: int, beside: list[str]
) -> None:
    candidates = sorted((cost, number, rack) for number, (cost, rack) in enumerate(drawn))
    chosen = spread(candidates, count, cost=lambda one: one[0], rack=lambda one: one[2], beside=beside)
    cheapest = [cost for cost, _, _ in candidates[:count]]
    assert [cost for cost, _, _ in chosen] == cheapest, "no balance is lost"
    assert len(set(chosen)) == len(cheapest)
    best = min(
        fullest([*beside, *(rack for _, _, rack in choice)])
        for choice in itertools.combinations(candidates, len(cheapest))
        if sorted(cost for cost, _, _ in choice) == cheapest
    )
    assert fullest([*beside, *(rack for _, _, rack in chosen)]) == best


def sets(*racks: str | None) -> list[ReplicaSetLoad]:
    return [ReplicaSetLoad(f"rs{number}", rack=rack) for number, rack in enumerate(racks)]


def test_plans_take_replica_sets_of_different_racks() -> None:
    of_racks = sets("a", "a", "b", "b")
    assert set(assign_default(range(4), 2, of_racks)) == {"rs0", "rs2"}
    assert set(rebalance({"rs0": (0, 1, 2, 3)}, range(4), 2, of_racks)) == {"rs0", "rs2"}


def test_balance_comes_before_racks() -> None:
    full = [
        ReplicaSetLoad("rs0", 0, 0, "a"),
        ReplicaSetLoad("rs1", 0, 0, "a"),
        ReplicaSetLoad("rs2", 9, 9, "b"),
    ]
    assert set(assign_default(range(4), 2, full)) == {"rs0", "rs1"}
    assert set(rebalance({}, range(4), 2, full)) == {"rs0", "rs1"}


# -- what is shared -------------------------------------------------------------------------------------


def placed(*places: tuple[str, str]) -> dict[str, ReceiverRecord]:
    return {
        f"r{number}": ReceiverRecord(f"r{number}", "127.0.0.1", 7080, "rs1", machine=machine, rack=rack)
        for number, (machine, rack) in enumerate(places)
    }


@pytest.mark.parametrize(
    ("places", "living", "shared"),
    [
        ([("m1", "a"), ("m2", "b")], "r0 r1", []),
        ([("m1", ""), ("m1", "")], "r0 r1", ["r0, r1 share machine m1"]),
        ([("m1", ""), ("m1", "")], "r1", []),
        ([("", ""), ("", "")], "r0 r1", []),
        ([("m1", "a"), ("m2", "a")], "r1", ["r0, r1 share rack a"]),
        ([("m1", "a"), ("m2", "a"), ("m3", "b")], "r0 r1", []),
        ([("m1", "a"), ("m1", "a"), ("m2", "")], "r0 r1 r2", ["r0, r1 share machine m1"]),
        ([("m1", "a")], "r0", []),
        ([("m1", "a"), ("m1", "a")], "r0 r1", ["r0, r1 share machine m1", "r0, r1 share rack a"]),
    ],
)
def test_two_living_receivers_share_a_machine_and_all_registered_ones_a_rack(
    places: list[tuple[str, str]], living: str, shared: list[str]
) -> None:
    assert list(map(str, shared_places(placed(*places), living.split()))) == shared


@pytest.mark.parametrize(
    ("policy", "kinds"), [("warn", []), ("strict", ["machine"]), ("strict_racks", ["machine", "rack"])]
)
def test_the_policy_says_what_is_refused(policy: PlacementPolicy, kinds: list[str]) -> None:
    shared = shared_places(placed(("m1", "a"), ("m1", "a")), ["r0", "r1"])
    assert [one.kind for one in refused_places(shared, policy)] == kinds


# -- at the start of a receiver -------------------------------------------------------------------------


def started(metadata: ClusterMetadata, name: str, machine: str, rack: str, policy: PlacementPolicy) -> None:
    """Do as a receiver that starts under a strict policy."""
    metadata.announce_live(name, f"instance of {name}")
    metadata.register_apart(
        ReceiverRecord(name, "127.0.0.1", 7080, "rs1", machine=machine, rack=rack), policy
    )


@pytest.fixture
def metadata() -> Iterator[ClusterMetadata]:
    store = MemoryStore(MemoryEnsemble())
    yield ClusterMetadata(store, ManualClock(0))
    store.close()


def test_a_second_receiver_on_a_machine_is_refused_by_name_and_changes_nothing(
    metadata: ClusterMetadata,
) -> None:
    started(metadata, "r1", "m1", "a", "strict")
    with pytest.raises(Refused, match=r"replica set rs1.*RTOLAP_PLACEMENT=strict.*r1, r2 share machine m1"):
        started(metadata, "r2", "m1", "a", "strict")
    assert metadata.replica_sets()["rs1"].receivers == ("r1",)
    assert set(metadata.receivers()) == {"r1"}
    started(metadata, "r2", "m2", "a", "strict")
    started(metadata, "r1", "m1", "a", "strict")
    assert metadata.replica_sets()["rs1"].receivers == ("r1", "r2")


def test_all_receivers_in_one_rack_are_refused_where_that_is_asked(metadata: ClusterMetadata) -> None:
    started(metadata, "r1", "m1", "a", "strict_racks")
    with pytest.raises(Refused, match=r"r1, r2 share rack a"):
        started(metadata, "r2", "m2", "a", "strict_racks")
    started(metadata, "r2", "m2", "b", "strict_racks")
    started(metadata, "r3", "m3", "a", "strict_racks")


def test_one_that_has_stopped_does_not_keep_its_machine(metadata: ClusterMetadata) -> None:
    metadata.register_receiver(ReceiverRecord("r1", "127.0.0.1", 7080, "rs1", machine="m1"))
    started(metadata, "r2", "m1", "", "strict")
    with pytest.raises(Refused, match=r"share machine m1"):
        started(metadata, "r1", "m1", "", "strict")


@pytest.mark.parametrize("attempt", range(10))
def test_of_receivers_that_start_at_the_same_time_on_a_machine_one_is_registered(attempt: int) -> None:
    ensemble = MemoryEnsemble()
    stores = [MemoryStore(ensemble) for _ in range(3)]
    begin = threading.Barrier(len(stores))
    refused: list[RtolapError] = []

    def start(number: int, store: MemoryStore) -> None:
        begin.wait(30)
        try:
            started(ClusterMetadata(store, ManualClock(0)), f"r{number}", "m1", "", "strict")
        except Refused as error:
            refused.append(error)

    threads = [threading.Thread(target=start, args=numbered) for numbered in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    [registered] = ClusterMetadata(stores[0], ManualClock(0)).receivers()
    assert len(refused) == 2, registered
    for store in stores:
        store.close()


# -- in a cluster ---------------------------------------------------------------------------------------


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, placement="strict")
    yield cluster
    cluster.close()


def test_health_and_the_commands_name_the_receivers_that_share_a_machine(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.receiver("r1", "rs1", "m1", "a")
    cluster.receiver("r2", "rs1", "m1", "a")
    cluster.receiver("r3", "rs2", "m3", "a")
    shared = ("r1, r2 share machine m1", "r1, r2 share rack a")
    assert [found.shared_places for found in cluster.client.cluster().replica_sets] == [shared, ()]
    assert (cluster.client.receivers()[0].machine, cluster.client.receivers()[0].rack) == ("m1", "a")
    monkeypatch.setattr(cluster.client, "close", lambda: None)  # the command closes what it opens
    monkeypatch.setattr(receivers, "coordinator_client", lambda: cluster.client)
    listed = CliRunner().invoke(receivers.app, ["list"])
    assert "r1\t127.0.0.1:7080\tm1\ta\trs1" in listed.output
    assert "replica set rs1: r1, r2 share machine m1, and fail with it" in listed.output
    assert "rs2: r" not in listed.output
    shown = json.loads(CliRunner().invoke(receivers.app, ["replica-sets", "--json"]).stdout)
    assert [tuple(found["shared_places"]) for found in shown] == [shared, ()]
    cluster.coordinator._placement.look()
    found = page(cluster)
    labels = {"replica_set": "rs1", "kind": "machine", "place": "m1"}
    assert found("rtolap_coordinator_shared_place_receivers", **labels) == 2


def test_a_strict_policy_gives_no_partitions_to_receivers_on_one_machine(strict: Cluster) -> None:
    strict.receiver("r1", "rs1", "m1")
    strict.receiver("r2", "rs1", "m1")
    strict.define()
    with pytest.raises(Refused, match=r"r1, r2 share machine m1"):
        strict.client.enable_cube(NAME)
    strict.receiver("r3", "rs2", "m3")
    assert strict.client.enable_cube(NAME).assignment == {"rs2": ALL}
    for wanted in (
        ReassignRequest(assignment={"rs1": ALL}, dry_run=True),
        ReassignRequest(assignment={"rs1": (0,), "rs2": (1, 2, 3)}, warm_up=True),
        ReassignRequest(replica_sets=("rs1",), warm_up=False),
    ):
        with pytest.raises(Refused, match=r"replica set rs1 stand in one place.*r1, r2 share machine m1"):
            strict.client.reassign(NAME, wanted)
    with pytest.raises(Refused, match=r"r1, r2 share machine m1"):
        strict.client.put_replica_set("rs1", ["r1", "r2"])
    assert strict.client.reassign(NAME, ReassignRequest(dry_run=True)).moves == ()
    leave(strict, "r2")
    assert strict.client.reassign(NAME, ReassignRequest(assignment={"rs1": ALL}, warm_up=False)).applied


def test_new_partitions_go_to_replica_sets_that_stand_as_is_asked(strict: Cluster) -> None:
    strict.receiver("r1", "rs1", "m1")
    strict.receiver("r3", "rs2", "m3")
    strict.define()
    strict.client.enable_cube(NAME)
    strict.client.reassign(NAME, ReassignRequest(assignment={"rs1": (0,), "rs2": (1, 2, 3)}, warm_up=False))
    strict.receiver("r2", "rs1", "m1")
    strict.topics.logs["clicks"][4] = (0, 10)
    strict.coordinator.assignments.extend(NAME, range(5), "id-1")
    assert strict.client.cube(NAME).assignment == {"rs1": (0,), "rs2": (1, 2, 3, 4)}


def test_a_cube_that_is_spread_goes_to_another_rack(cluster: Cluster) -> None:
    for number, rack in enumerate(("a", "a", "b")):
        cluster.receiver(f"r{number}", f"rs{number}", f"m{number}", rack)
    cluster.define(consumer_tasks_max=1)
    cluster.client.enable_cube(NAME)
    cluster.client.create_cube({**CUBE, "name": "spread", "consumer_tasks_max": 2})
    all_serve(cluster)
    cluster.client.reassign(NAME, ReassignRequest(assignment={"rs0": ALL}, warm_up=False))
    assert set(cluster.client.enable_cube("spread").assignment) == {"rs1", "rs2"}
    all_serve(cluster)
    cluster.client.reassign("spread", ReassignRequest(assignment={"rs0": ALL}, warm_up=False))
    all_serve(cluster)
    planned = cluster.client.reassign("spread", ReassignRequest(dry_run=True))
    assert set(planned.after) == {"rs0", "rs2"}
    by_load = cluster.client.reassign("spread", ReassignRequest(dry_run=True, by="load"))
    assert set(by_load.after) <= {"rs0", "rs2"}

from __future__ import annotations

import pytest
from rtolap.base.errors import NotFound, Refused
from rtolap.coordinator.heartbeats import LAG_WARN_MS, SILENT_AFTER_MS
from rtolap.protocols.coordinator.messages import CubeReport, HeartbeatRequest, PartitionReport, ReceiverInfo

from tests.support.cubes.coordinator_harness import NAME, URL, Cluster
from tests.support.watermarks.application_reports import takeover


def beat(
    cluster: Cluster,
    receiver: str,
    *,
    partitions: tuple[int, ...] = (0, 1, 2, 3),
    state: str = "CONSUMING",
    watermark_ms: int = 0,
    position: int = 1,
    zone_rules: str = "",
) -> None:
    report = CubeReport(
        state=state,
        reason="disk full" if state != "CONSUMING" else "",
        partitions={p: PartitionReport(position=position, watermark_ms=watermark_ms) for p in partitions},
        zone_rules=zone_rules,
    )
    cluster.client.heartbeat(
        HeartbeatRequest(receiver_id=receiver, replica_set="rs1", is_leader=True, cubes={NAME: report})
    )


def only(cluster: Cluster) -> ReceiverInfo:
    [receiver] = cluster.client.receivers()
    return receiver


def test_health_follows_sessions_and_heartbeats(cluster: Cluster) -> None:
    cluster.enabled()
    assert only(cluster).health == "WARN"
    beat(cluster, "r1")
    assert (only(cluster).health, only(cluster).is_leader) == ("HEALTHY", True)
    cluster.clock.advance_ms(SILENT_AFTER_MS + 1)
    assert (only(cluster).health, only(cluster).is_leader) == ("UNREACHABLE", False)
    takeover(cluster)
    assert only(cluster).health == "DOWN"


@pytest.mark.parametrize(
    ("partitions", "state", "says"),
    [((0, 1), "CONSUMING", "assigned"), ((0, 1, 2, 3), "FAILED", "disk full"), ((), "PAUSED", "disk full")],
)
def test_a_receiver_that_does_not_do_what_it_should_is_warned_about(
    cluster: Cluster, partitions: tuple[int, ...], state: str, says: str
) -> None:
    cluster.enabled()
    beat(cluster, "r1", partitions=partitions, state=state)
    assert only(cluster).health == "WARN"
    assert says in only(cluster).reason
    assert (cluster.client.cube(NAME).problem is not None) is (state == "FAILED")


def test_a_replica_that_lags_is_warned_about(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.receiver("r2", "rs1")
    beat(cluster, "r1", watermark_ms=LAG_WARN_MS, position=9)
    beat(cluster, "r2", watermark_ms=0)
    first, second = cluster.client.receivers()
    assert (first.health, second.health) == ("HEALTHY", "WARN")
    assert "behind its replica" in second.reason


@pytest.mark.parametrize(
    ("rules", "health"), [(("a", "a"), "HEALTHY"), (("a", "b"), "WARN"), (("a", ""), "HEALTHY")]
)
def test_machines_with_other_rules_of_a_time_zone_are_warned_about(
    cluster: Cluster, rules: tuple[str, str], health: str
) -> None:
    """A receiver of an older version says nothing of its own."""
    cluster.enabled()
    cluster.receiver("r2", "rs1")
    for receiver, known in zip(("r1", "r2"), rules, strict=True):
        beat(cluster, receiver, zone_rules=known)
    first, second = cluster.client.receivers()
    assert (first.health, second.health) == (health, health)
    assert ("other rules of the time zone than that of r1" in second.reason) is (health == "WARN")
    assert ("package tzdata" in first.reason) is (health == "WARN")


def test_replica_sets_are_listed_and_written(cluster: Cluster) -> None:
    cluster.receiver("r1", "rs1")
    cluster.receiver("r2", "rs1")
    cluster.receiver("r3", "rs2")
    assert {s.name: s.receivers for s in cluster.client.replica_sets()} == {
        "rs1": ("r1", "r2"),
        "rs2": ("r3",),
    }
    with pytest.raises(Refused, match="one replica set only"):
        cluster.client.put_replica_set("rs2", ["r1"])
    assert cluster.client.put_replica_set("rs1", ["r1"]).receivers == ("r1",)
    cluster.define()
    cluster.client.enable_cube(NAME)
    with pytest.raises(Refused, match="emptied"):
        cluster.client.put_replica_set("rs1", [])


def test_a_receiver_that_moves_leaves_its_old_replica_set(cluster: Cluster) -> None:
    cluster.receiver("r1", "rs1")
    cluster.receiver("r1", "rs2")
    assert {s.name: s.receivers for s in cluster.client.replica_sets()} == {"rs1": (), "rs2": ("r1",)}


def test_the_leader_of_a_replica_set_is_the_first_candidate(cluster: Cluster) -> None:
    cluster.receiver("r1", "rs1")
    election = cluster.store.elect("/replica_sets_lead/rs1", "r1", lambda: None)
    cluster.ensemble.settle()
    assert cluster.client.replica_sets()[0].leader == "r1"
    election.close()
    assert cluster.client.replica_sets()[0].leader is None


def test_the_cluster_at_a_glance(cluster: Cluster) -> None:
    cluster.enabled()
    glance = cluster.client.cluster()
    assert glance.leader_url == URL
    assert glance.coordinators == (URL,)
    assert [cube.name for cube in glance.cubes] == [NAME]
    assert [receiver.receiver_id for receiver in glance.receivers] == ["r1"]


def test_an_unknown_replica_set_is_not_found(cluster: Cluster) -> None:
    response = cluster.http.get("/api/v1/replica-sets/none")
    assert response.status_code == NotFound.http_status

"""Records that receivers refuse are told where people look, though everybody is HEALTHY."""

from __future__ import annotations

import json

import pytest
from rtolap.cli import definitions, receivers
from rtolap.protocols.coordinator.messages import CubeReport, HeartbeatRequest, PartitionReport
from typer.testing import CliRunner

from tests.support.cubes.coordinator_harness import NAME, Cluster

WHY = "column price: expected decimal(10,2), found 1.23456"


def beat(cluster: Cluster, receiver: str, refused: dict[int, dict[str, int]]) -> None:
    report = CubeReport(
        state="CONSUMING",
        partitions={p: PartitionReport(position=9, refused=refused.get(p, {})) for p in range(4)},
        refused_example={"wrong_type": WHY} if refused else {},
    )
    cluster.client.heartbeat(HeartbeatRequest(receiver_id=receiver, replica_set="rs1", cubes={NAME: report}))


@pytest.fixture
def refusing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Two replicas; the second began later and has read less of the refused records."""
    monkeypatch.setattr(cluster.client, "close", lambda: None)  # commands close what they open
    for module in (definitions, receivers):
        monkeypatch.setattr(module, "coordinator_client", lambda: cluster.client)
    cluster.enabled()
    cluster.receiver("r2", "rs1")
    beat(cluster, "r1", {0: {"wrong_type": 7}, 1: {"wrong_type": 1, "tombstone": 2}})
    beat(cluster, "r2", {0: {"wrong_type": 5}})
    return cluster


def run(app: object, *arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "400"})  # type: ignore[arg-type]
    assert result.exit_code == 0, result.output
    return result.output


def test_a_cube_counts_each_refused_record_once_whatever_its_replicas(refusing: Cluster) -> None:
    status = refusing.client.cube(NAME)
    assert status.refused == {"tombstone": 2, "wrong_type": 8}
    assert status.refused_example == {"wrong_type": WHY}
    assert {receiver.health for receiver in refusing.client.receivers()} == {"HEALTHY"}


def test_describe_says_how_many_and_why(refusing: Cluster) -> None:
    shown = " ".join(run(definitions.app, "describe", NAME).split())
    assert f"at least 10 records refused (wrong_type 8, as {WHY}; tombstone 2)" in shown
    described = json.loads(run(definitions.app, "describe", NAME, "--json"))
    assert described["status"]["refused"] == {"tombstone": 2, "wrong_type": 8}


def test_the_list_of_receivers_says_how_many_and_why(refusing: Cluster) -> None:
    shown = " ".join(run(receivers.app, "list").split())
    assert f"wrong_type 8, as {WHY}" in shown
    assert "at least 5 records refused" in shown


def test_describe_says_that_a_cube_was_never_enabled(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.client, "close", lambda: None)
    monkeypatch.setattr(definitions, "coordinator_client", lambda: cluster.client)
    cluster.define()
    assert "never enabled" in run(definitions.app, "describe", NAME)

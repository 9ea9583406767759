"""The coordinator's commands, against a coordinator on memory stores."""

from __future__ import annotations

import json

import pytest
from rtolap.cli import receivers
from rtolap.cli import segments as segments_commands
from rtolap.cli.cubes import build
from typer.testing import CliRunner, Result

from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster


@pytest.fixture(autouse=True)
def client_of_the_tests(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.client, "close", lambda: None)  # commands close what they open
    for module in (build, receivers, segments_commands):
        monkeypatch.setattr(module, "coordinator_client", lambda: cluster.client)


def run(module: object, *arguments: str) -> Result:
    result = CliRunner().invoke(module.app, arguments, env={"COLUMNS": "200"})  # type: ignore[attr-defined]
    assert result.exit_code == 0, result.output
    return result


def test_segments_are_listed_shown_closed_requeued_and_purged(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    [listed] = json.loads(run(segments_commands, "list", NAME, "--json").stdout)
    assert (listed["segment"], listed["state"]) == (record.name, "REMOTE_PERSISTED")
    assert json.loads(run(segments_commands, "list", NAME, "--to", "1970-01-01", "--json").stdout) == []
    shown = json.loads(run(segments_commands, "show", NAME, record.name, "--json").stdout)
    assert [line["event"] for line in shown["state_history"]] == ["CLOSE", "PARTS_JOINED"]
    run(segments_commands, "list", NAME)
    run(segments_commands, "show", NAME, record.name)
    run(segments_commands, "close", NAME, record.name)
    assert cluster.metadata.control(NAME).close_before_ms == 3 * HOUR_MS
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    assert json.loads(run(segments_commands, "close", NAME, record.name, "--json").stdout)["version"] == 1
    run(segments_commands, "requeue", NAME, record.name)
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    requeued = json.loads(run(segments_commands, "requeue", NAME, record.name, "--json").stdout)
    assert (requeued["state"], requeued["version"]) == ("REMOTE_PERSISTED", 2)
    run(segments_commands, "purge", NAME, "--before", "1970-01-01T03:00", "--yes")
    assert cluster.client.segment(NAME, record.name).state == "PURGED"
    run(segments_commands, "cleanup", NAME)


def test_receivers_and_replica_sets_are_listed(cluster: Cluster) -> None:
    cluster.enabled()
    [receiver] = json.loads(run(receivers, "list", "--json").stdout)
    assert (receiver["receiver_id"], receiver["replica_set"]) == ("r1", "rs1")
    [replica_set] = json.loads(run(receivers, "replica-sets", "--json").stdout)
    assert replica_set["receivers"] == ["r1"]
    run(receivers, "list")
    run(receivers, "replica-sets")
    run(receivers, "put-replica-set", "rs1", "r1", "r2")
    assert cluster.metadata.replica_sets()["rs1"].receivers == ("r1", "r2")
    put = json.loads(run(receivers, "put-replica-set", "rs1", "r1", "--json").stdout)
    assert (put["name"], put["receivers"]) == ("rs1", ["r1"])


def test_the_queue_and_builds_are_shown(cluster: Cluster) -> None:
    cluster.enabled()
    record = cluster.closed(2)
    [entry] = json.loads(run(build, "queue", "--json").stdout)
    assert (entry["segment"], entry["building"]) == (record.name, False)
    cluster.build(record.name)
    run(build, "queue")
    [built] = json.loads(run(build, "status", NAME, "--json").stdout)
    assert built["build"]["version"] == 1
    assert "running" in run(build, "status", NAME).stdout

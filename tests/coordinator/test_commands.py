"""The coordinator's commands, against a coordinator on memory stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.cli import definitions, receivers
from rtolap.cli.cubes import alter, build
from rtolap.cli.cubes import segments as segments_commands
from typer.testing import CliRunner, Result

from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster


@pytest.fixture(autouse=True)
def client_of_the_tests(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.client, "close", lambda: None)  # commands close what they open
    for module in (alter, build, definitions, receivers, segments_commands):
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


CLICKS = """\
kind: table
name: clicks
topic: clicks
time: {column: at}
columns:
  - {name: at, type: bigint}
  - {name: page, type: string}
  - {name: price, type: "decimal(10,2)"}
  - {name: country, type: string}
---
kind: cube
name: clicks_by_page
table: clicks
dimensions: [land]
measures: [{function: count}, {function: sum, column: price}]
segment: {window: 1h}
retention: {after: 10h}
"""


def test_a_revision_is_planned_shown_made_and_described(cluster: Cluster, tmp_path: Path) -> None:
    cluster.enabled()
    cluster.report()
    cluster.closed(2)
    path = tmp_path / "clicks.yaml"
    path.write_text(CLICKS.replace("[land]", "[page, country]"))
    planned = run(alter, str(path), "--plan").stdout
    assert "the table gets: country" in planned
    assert "columns that older events do not have: country" in planned
    assert "clicks_by_page_r2 holds the events from 1970-01-01T03:00:00+00:00 on" in planned
    assert "`--new-revision` makes it" in planned
    made = run(alter, str(path), "--new-revision", "--since", "1970-01-01T05:00").stdout
    assert "from 1970-01-01T05:00:00+00:00 on" in made
    assert "clicks_by_page is changed" in made
    first = run(definitions, "describe", NAME).stdout
    assert "revision 1 of clicks_by_page: its events until 1970-01-01T05:00:00+00:00" in first
    assert "later events are in clicks_by_page_r2" in first
    second = run(definitions, "describe", f"{NAME}_r2").stdout
    assert "revision 2 of clicks_by_page: its events from 1970-01-01T05:00:00+00:00 on" in second
    described = json.loads(run(definitions, "describe", NAME, "--json").stdout)
    assert described["status"]["revisions"] == [f"{NAME}_r2"]


@pytest.mark.parametrize("source", ["topic", "batches"])
def test_older_events_are_filled_in(cluster: Cluster, tmp_path: Path, source: str) -> None:
    cluster.enabled()
    cluster.report()
    record = cluster.closed(2)
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    if source == "batches":
        cluster.topics.logs["clicks"][1] = (11, 1000)
    path = tmp_path / "clicks.yaml"
    path.write_text(CLICKS.replace("[land]", "[page, country]"))
    planned = run(alter, str(path), "--plan", "--older", "fill").stdout
    says = {"topic": "the topic has all events from", "batches": "apply batches to clicks_by_page_r2"}
    assert says[source] in planned
    assert "as it is filled, it holds the events from 1970-01-01T02:00:00+00:00 on" in planned
    run(alter, str(path), "--new-revision", "--older", "fill", "--since", "1970-01-01T02:00")
    second = run(definitions, "describe", f"{NAME}_r2").stdout
    assert "its events from 1970-01-01T03:00:00+00:00 on" in second
    by = {"topic": "the topic", "batches": "batches"}[source]
    assert f"it is filled from 1970-01-01T02:00:00+00:00 on, by {by}" in second


def test_a_revision_that_has_ended_is_described_so(cluster: Cluster, tmp_path: Path) -> None:
    cluster.enabled()
    cluster.report()
    cluster.closed(2)
    path = tmp_path / "clicks.yaml"
    path.write_text(CLICKS.replace("[land]", "[page, country]"))
    run(alter, str(path), "--new-revision")
    cluster.client.purge(NAME, 3 * HOUR_MS)
    cluster.coordinator._endings.run(NAME)
    assert "accepts no event any more" in run(definitions, "describe", NAME).stdout
    described = json.loads(run(definitions, "describe", NAME, "--json").stdout)
    assert described["status"]["ended"] is True


def test_a_renamed_column_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    cluster.enabled()
    cluster.report()
    path = tmp_path / "clicks.yaml"
    path.write_text(CLICKS.replace("name: country", "name: land, path: page"))
    plan = json.loads(run(alter, str(path), "--plan", "--json", "--renamed", "land=page").stdout)
    assert (plan[0]["added_columns"], plan[0]["gone_columns"]) == ([], [])
    plan = json.loads(run(alter, str(path), "--plan", "--json").stdout)
    assert (plan[0]["added_columns"], plan[0]["gone_columns"]) == (["land"], ["page"])
    path.write_text(CLICKS.replace("[land]", "[page]").replace("after: 10h", "after: 20h"))
    useless = CliRunner().invoke(alter.app, [str(path), "--since", "1970-01-02"])
    assert isinstance(useless.exception, DefinitionError)
    assert "nothing of this file takes a revision" in str(useless.exception)
    useless = CliRunner().invoke(alter.app, [str(path), "--older", "fill"])
    assert isinstance(useless.exception, DefinitionError)
    wrong = CliRunner().invoke(alter.app, [str(path), "--renamed", "land"])
    assert isinstance(wrong.exception, DefinitionError)
    assert "NEW=OLD" in str(wrong.exception)


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

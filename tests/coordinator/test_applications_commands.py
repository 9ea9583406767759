"""`rtolap watermark`, `create` and `drop` for applications, against a coordinator on memory stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rtolap.cli import definitions
from rtolap.cli.watermark.commands import app as watermark
from rtolap.watermark_client.client import WatermarkClient

from tests.support.cubes.coordinator_harness import TOKEN, Cluster
from tests.support.watermarks.application_commands import ask_this, run

NAME = "logs"
YAML = """
kind: application
name: logs
sources:
  - name: web
    rule: {host_precise: {delayed_hosts_ppm: 0}}
    hosts: {registry: {lease: 60s}}
operators:
  - {name: sessions}
sinks:
  - {name: store}
edges:
  - [web, sessions]
  - [sessions, store]
"""


@pytest.fixture(autouse=True)
def client_of_the_tests(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_this(cluster, monkeypatch)


@pytest.fixture
def reported(cluster: Cluster, tmp_path: Path) -> Cluster:
    """Host a is at the clock, b 40 minutes behind, c was never seen."""
    (tmp_path / "logs.yaml").write_text(YAML)
    assert "application logs" in run(definitions.app, "create", str(tmp_path / "logs.yaml")).stdout
    cluster.client.change_hosts(NAME, "web", "register", ["a", "b", "c"])
    now_ms = cluster.clock.now_ms()
    with WatermarkClient(["http://testserver"], TOKEN, NAME, transport=cluster.http._transport) as client:
        client.report_progress("web", 0, 0, ["a", "b"], [now_ms, now_ms - 2_400_000])
    cluster.coordinator.tick()
    return cluster


def test_levels_and_topology_are_shown(reported: Cluster) -> None:
    reported.client.change_hosts(NAME, "web", "remove", ["c"])
    reported.coordinator.tick()
    [shown] = json.loads(run(watermark, "show", NAME, "--json").stdout)
    assert shown["global_ms"] == reported.clock.now_ms() - 2_400_000
    assert "40m" in run(watermark, "show").stdout
    tree = run(watermark, "topology", NAME).stdout
    assert tree.index("web (host_precise)") < tree.index("sessions") < tree.index("store")
    levels = json.loads(run(watermark, "topology", NAME, "--json").stdout)["levels"]
    at_ms = shown["global_ms"]
    assert levels["store"] == {
        "role": "sink",
        "rule": None,
        "upstreams": ["sessions"],
        "units": 0,
        "holds": False,
        "input_ms": at_ms,
        "output_ms": at_ms,
    }
    assert (levels["web"]["rule"], levels["web"]["holds"]) == ("host_precise", True)


def test_hosts_that_hold_it_are_named_with_how_far_they_are_behind(reported: Cluster) -> None:
    info = json.loads(run(watermark, "hosts", NAME, "--json").stdout)
    assert [(one["host"], one["behind_ms"]) for one in info["behind"]] == [("c", None), ("b", 2_400_000)]
    text = run(watermark, "hosts", NAME, "--limit", "5").stdout
    assert "never seen" in text
    assert "40m" in text


def test_a_window_that_waits_is_explained_and_let_go_with_a_record(reported: Cluster) -> None:
    end = str(reported.clock.now_ms() - 1000)
    text = run(watermark, "explain", NAME, end, code=3).stdout
    assert "2 of 3 hosts behind by up to 40m, 1 of them never seen: c, b" in text
    assert run(watermark, "approve", NAME, end, "--reason", "c is gone", code=1, answer="n\n")
    waits = json.loads(run(watermark, "explain", NAME, end, "--json", code=3).stdout)
    assert waits["may_close"] is False
    assert "2 of 3 hosts behind" in waits["reasons"][0]
    run(watermark, "approve", NAME, end, "--reason", "c is gone", "--by", "ann", "--yes")
    [approval] = reported.client.application(NAME).approvals
    assert (approval.by, approval.reason) == ("ann", "c is gone")
    assert "approved by ann" in run(watermark, "explain", NAME, end).stdout
    assert "were approved" in run(watermark, "show", NAME).stdout


def test_an_application_is_described_and_dropped(reported: Cluster) -> None:
    described = json.loads(run(definitions.app, "describe", NAME, "--json").stdout)
    assert (described["kind"], described["name"]) == ("application", NAME)
    run(definitions.app, "drop", NAME, "--yes")
    assert "no application is declared" in run(watermark, "show").stdout
    assert json.loads(run(watermark, "show", "--json").stdout) == []

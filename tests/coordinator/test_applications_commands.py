"""`rtolap watermark`, `create` and `drop` for applications, against a coordinator on memory stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rtolap.cli import (
    definitions,
    watermark_history,
    watermark_hosts,
    watermark_show,
    watermark_topology,
    watermark_windows,
    watermark_words,
)
from rtolap.cli import watermark as commands
from rtolap.testing.coordinator_harness import TOKEN, Cluster
from rtolap.wire.watermark_client import WatermarkClient
from typer.testing import CliRunner, Result

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

COMMANDS = (
    watermark_history,
    watermark_hosts,
    watermark_show,
    watermark_topology,
    watermark_windows,
    watermark_words,
)


@pytest.fixture(autouse=True)
def client_of_the_tests(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.client, "close", lambda: None)  # commands close what they open
    for module in (definitions, *COMMANDS):
        monkeypatch.setattr(module, "coordinator_client", lambda **_: cluster.client)


def run(module: object, *arguments: str, code: int = 0, answer: str | None = None) -> Result:
    environment = {"COLUMNS": "200"}
    result = CliRunner().invoke(module.app, arguments, env=environment, input=answer)  # type: ignore[attr-defined]
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def reported(cluster: Cluster, tmp_path: Path) -> Cluster:
    """Host a is at the clock, b 40 minutes behind, c was never seen."""
    (tmp_path / "logs.yaml").write_text(YAML)
    assert "application logs" in run(definitions, "create", str(tmp_path / "logs.yaml")).stdout
    cluster.client.change_hosts(NAME, "web", "register", ["a", "b", "c"])
    now_ms = cluster.clock.now_ms()
    with WatermarkClient(["http://testserver"], TOKEN, NAME, transport=cluster.http._transport) as client:
        client.report_progress("web", 0, 0, ["a", "b"], [now_ms, now_ms - 2_400_000])
    cluster.coordinator.tick()
    return cluster


def test_levels_and_topology_are_shown(reported: Cluster) -> None:
    reported.client.change_hosts(NAME, "web", "remove", ["c"])
    reported.coordinator.tick()
    [shown] = json.loads(run(commands, "show", NAME, "--json").stdout)
    assert shown["global_ms"] == reported.clock.now_ms() - 2_400_000
    assert "40m" in run(commands, "show").stdout
    tree = run(commands, "topology", NAME).stdout
    assert tree.index("web (host_precise)") < tree.index("sessions") < tree.index("store")
    levels = json.loads(run(commands, "topology", NAME, "--json").stdout)["levels"]
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
    info = json.loads(run(commands, "hosts", NAME, "--json").stdout)
    assert [(one["host"], one["behind_ms"]) for one in info["behind"]] == [("c", None), ("b", 2_400_000)]
    text = run(commands, "hosts", NAME, "--limit", "5").stdout
    assert "never seen" in text
    assert "40m" in text


def test_a_window_that_waits_is_explained_and_let_go_with_a_record(reported: Cluster) -> None:
    end = str(reported.clock.now_ms() - 1000)
    text = run(commands, "explain", NAME, end).stdout
    assert "2 of 3 hosts behind by up to 40m, 1 of them never seen: c, b" in text
    assert run(commands, "approve", NAME, end, "--reason", "c is gone", code=1, answer="n\n")
    assert json.loads(run(commands, "explain", NAME, end, "--json").stdout)["may_close"] is False
    run(commands, "approve", NAME, end, "--reason", "c is gone", "--by", "ann", "--yes")
    [approval] = reported.client.application(NAME).approvals
    assert (approval.by, approval.reason) == ("ann", "c is gone")
    assert "let go by ann" in run(commands, "explain", NAME, end).stdout
    assert "were let go" in run(commands, "show", NAME).stdout


def test_an_application_is_described_and_dropped(reported: Cluster) -> None:
    described = json.loads(run(definitions, "describe", NAME, "--json").stdout)
    assert (described["kind"], described["name"]) == ("application", NAME)
    run(definitions, "drop", NAME, "--yes")
    assert "no application is declared" in run(commands, "show").stdout
    assert json.loads(run(commands, "show", "--json").stdout) == []

"""`rtolap sep status` and `plot` over a cluster in memory: what they print, keep, serve and draw."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.cli.main import app
from rtolap.cli.sep import status as sep_status
from rtolap.sep.status.collect import collect
from rtolap.sep.status.sources import ReplicationSources
from rtolap.stack.ports import free_port
from typer.testing import CliRunner

from tests.support.sep.replication_looks import SERVERS, LookedAtCluster

Run = Callable[..., Any]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> LookedAtCluster:
    cluster = LookedAtCluster()
    for name, sinks in (("orders", 2), ("customers", 0)):
        cluster.add_peer(name, sinks=sinks)
        for number, server in enumerate(SERVERS):
            cluster.queue(server, name, {1000: 5, 2000: None})
            cluster.report(server, name, replicationLag=1000 * number, timeStampOfNextToReplicate=5)
    opened = cluster.sources()
    monkeypatch.setattr(opened, "close", lambda: None)
    monkeypatch.setattr(ReplicationSources, "open", lambda *unused, **options: opened)
    return cluster


@pytest.fixture
def run(cluster: LookedAtCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    (tmp_path / "token").write_text("secret")
    monkeypatch.setenv("RTOLAP_TOKEN_FILE", str(tmp_path / "token"))

    def invoke(*arguments: str) -> Any:
        answer = CliRunner().invoke(app, ["sep", *arguments])
        if answer.exception is not None and not isinstance(answer.exception, SystemExit):
            raise answer.exception
        return answer

    return invoke


def test_the_summary_comes_first_then_the_worst_queues_and_what_was_not_asked(run: Run) -> None:
    answer = run("status", "--every", "200ms", "--limit", "3")
    lines = answer.stdout.splitlines()
    summary, queues = lines[1:3], lines[5:8]
    assert [line.split("\t")[0] for line in summary] == ["customers", "orders"]
    assert [line.split("\t")[1] for line in queues] == [str(SERVERS[2])] * 2 + [str(SERVERS[1])]
    assert "3 more queues" in answer.stderr
    assert "not asked: sizes of logs" in answer.stderr


def test_queues_are_chosen_by_peer_server_and_lag(run: Run) -> None:
    answer = run("status", "--every", "200ms", "--peer", "orders", "--behind", "1500ms", "--json")
    shown = json.loads(answer.stdout)
    assert [(row["peer"], row["server"]) for row in shown["queues"]] == [("orders", str(SERVERS[2]))]
    assert [row["peer"] for row in shown["peers"]] == ["orders"]
    answer = run("status", "--every", "200ms", "--server", "h1.", "--sort", "server", "--json")
    assert {row["server"] for row in json.loads(answer.stdout)["queues"]} == {str(SERVERS[1])}
    with pytest.raises(DefinitionError, match="sorted by what"):
        run("status", "--sort", "colour")


def test_looks_are_kept_and_drawn(run: Run, tmp_path: Path) -> None:
    looks, picture = tmp_path / "looks.jsonl", tmp_path / "lag.svg"
    run("status", "--every", "200ms", "--record", str(looks))
    assert len(looks.read_text().splitlines()) == 2
    answer = run("plot", str(looks), str(picture), "--peer", "orders", "--json")
    assert json.loads(answer.stdout)["peers"] == ["orders"]
    assert picture.read_bytes().startswith(b"<?xml")


def test_a_watch_goes_on_until_it_is_ended_and_serves_its_looks(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    pages: list[str] = []

    def until_served(*arguments: Any, **options: Any) -> Any:
        if len(pages) == 3:
            raise KeyboardInterrupt
        headers = {"Authorization": "Bearer secret"}
        pages.append(httpx.get(f"http://127.0.0.1:{port}/metrics", headers=headers).text)
        return collect(*arguments, **options)

    monkeypatch.setattr(sep_status, "collect", until_served)
    answer = run("status", "--watch", "--every", "200ms", "--metrics-port", str(port))
    assert answer.exit_code == 0
    sample = 'rtolap_replication_queue_lag_seconds{peer="orders",queue="orders",server="'
    assert sample not in pages[0]
    assert sample in pages[-1]
    with pytest.raises(DefinitionError, match="--watch with --metrics-port"):
        run("status", "--metrics-port", str(port))

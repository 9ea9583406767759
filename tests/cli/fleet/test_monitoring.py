"""`rtolap fleet stages`, `slow`, … over brokers in memory: what they print, keep, serve and draw."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.cli.fleet import clients as fleet_clients
from rtolap.cli.fleet import looking
from rtolap.cli.main import app
from rtolap.fleet.monitoring.clients import ClientBroker, ClientLook
from rtolap.fleet.monitoring.collect import StageLook, StageReader
from rtolap.fleet.monitoring.history import append_look
from rtolap.fleet.monitoring.readings import BrokerGauges
from rtolap.fleet.monitoring.stages import RequestType
from rtolap.protocols.coordinator.messages import MetricsTargets
from rtolap.stack.ports import free_port
from typer.testing import CliRunner

from tests.support.fleet.broker_metrics import MemoryBroker, look_at

Run = Callable[..., Any]
SOURCES = "brokers: {1: {jolokia: 'http://127.0.0.1:1/j'}, 2: {jolokia: 'http://127.0.0.1:1/j'}}"


class LiveBrokers:
    """Two brokers that get more requests between any two looks: the first is slow at its log."""

    def __init__(self) -> None:
        self.brokers = {1: MemoryBroker(), 2: MemoryBroker()}
        self.looks = 0
        self.looks_max = 100

    def look(self, _reader: StageReader, at_ms: int) -> StageLook:
        if self.looks == self.looks_max:
            raise KeyboardInterrupt
        self.looks += 1
        for broker, local_ms in ((1, 700), (2, 2)):
            self.brokers[broker].serve(RequestType.PRODUCE, 500, local=local_ms, remote=1)
            self.brokers[broker].serve(RequestType.FETCH_CONSUMER, 500, remote=5000)
        gauges = {1: BrokerGauges(offline_log_dirs=("/data/d1",))}
        return look_at(self.brokers, 1_700_000_000_000 + 5000 * self.looks, gauges)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> LiveBrokers:
    brokers = LiveBrokers()
    monkeypatch.setattr(StageReader, "look", lambda *arguments: brokers.look(*arguments))
    monkeypatch.setattr(looking, "_LEAST_EVERY_MS", 0)
    return brokers


@pytest.fixture
def run(brokers: LiveBrokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "sources.yaml").write_text(SOURCES)
    monkeypatch.setenv("RTOLAP_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("RTOLAP_FLEET_SOURCES", str(tmp_path / "sources.yaml"))

    def invoke(*arguments: str) -> Any:
        answer = CliRunner().invoke(app, ["fleet", *arguments, *(() if "--looks" in arguments else EVERY)])
        if answer.exception is not None and not isinstance(answer.exception, SystemExit):
            raise answer.exception
        return answer

    return invoke


EVERY = ("--every", "0ms")


def test_stages_are_shown_by_broker_and_request(run: Run) -> None:
    rows = [line.split("\t") for line in run("stages").stdout.splitlines()]
    assert rows[0][:3] == ["broker", "request", "requests"]
    assert rows[1][:4] == ["1", "Produce", "500", "100.0"]
    assert rows[1][rows[0].index("local")] == "700 ms / 700 ms"
    document = json.loads(run("stages", "--json", "--broker", "2").stdout)
    assert {row["broker"] for row in document["stages"]} == {2}
    assert document["stages"][1]["stages"]["remote"]["mean_ms"] == 5000


def test_a_slow_broker_is_named_with_its_stage_and_disk_and_the_exit_code_says_so(run: Run) -> None:
    answer = run("slow")
    assert answer.exit_code == 3
    (row,) = [line.split("\t") for line in answer.stdout.splitlines()[1:]]
    assert row[:3] == ["1", "Produce", "slow"]
    assert row[4:8] == ["701 ms", "local 700 ms", "100%", "the log, and /data/d1 is offline"]
    document = json.loads(run("slow", "--json", "--all").stdout)
    assert document["slow_brokers"] == [1]
    assert [row["is_slow"] for row in document["rows"]] == [True, False, False, False]
    assert document["rows"][0]["cause"]["log_dir"] == "/data/d1"


def test_nobody_is_slow_at_another_threshold_or_with_too_few_requests(run: Run) -> None:
    assert run("slow", "--threshold", "2s").exit_code == 0
    answer = run("slow", "--requests-min", "501")
    assert answer.exit_code == 0
    assert "nothing is known" in answer.stderr


def test_looks_are_kept_and_judged_and_drawn_later(run: Run, tmp_path: Path) -> None:
    looks, picture = tmp_path / "looks.jsonl", tmp_path / "stages.svg"
    run("slow", "--record", str(looks))
    assert len(looks.read_text().splitlines()) == 4
    assert run("slow", "--looks", str(looks)).exit_code == 3
    answer = run("stages", "--looks", str(looks), "--plot", str(picture), "--request", "produce")
    assert "2 panels" in answer.stdout
    assert "broker 2, Produce" in picture.read_text()
    with pytest.raises(DefinitionError, match="no such request"):
        run("stages", "--looks", str(looks), "--plot", str(picture), "--request", "Write")


def test_a_watch_goes_on_until_it_is_ended_and_serves_its_looks(
    run: Run, brokers: LiveBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, pages = free_port(), []
    look = brokers.look

    def until_served(reader: StageReader, at_ms: int) -> StageLook:
        headers = {"Authorization": "Bearer secret"}
        pages.append(httpx.get(f"http://127.0.0.1:{port}/metrics", headers=headers).text)
        return look(reader, at_ms)

    brokers.looks_max = 5
    monkeypatch.setattr(brokers, "look", until_served)
    answer = run("slow", "--watch", "--metrics-port", str(port), "--json")
    assert answer.exit_code == 0
    assert "rtolap_fleet_broker_slow" not in pages[1]
    assert 'rtolap_fleet_broker_slow{broker="1",request="Produce"} 1.0' in pages[-1]
    assert 'rtolap_fleet_stage_mean_seconds{broker="1",request="Produce",stage="local"} 0.7' in pages[-1]
    assert 'rtolap_fleet_broker_answers{broker="2"} 1.0' in pages[-1]
    with pytest.raises(DefinitionError, match="--watch with --metrics-port"):
        run("stages", "--metrics-port", str(port))


def test_without_sources_a_command_says_what_is_wanted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RTOLAP_FLEET_SOURCES")
    with pytest.raises(DefinitionError, match="--sources"):
        run("stages")


def test_a_file_of_one_look_is_refused(run: Run, tmp_path: Path) -> None:
    append_look(tmp_path / "looks", look_at({}, 1))
    with pytest.raises(DefinitionError, match="two looks"):
        run("stages", "--looks", str(tmp_path / "looks"))


def test_from_a_slow_client_one_command_goes_to_broker_stage_and_disk(
    run: Run, brokers: LiveBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = [
        MetricsTargets(targets=("c:1",), labels={"service": "coordinator"}),
        MetricsTargets(targets=("r:1",), labels={"service": "receiver"}),
    ]
    known = nullcontext(SimpleNamespace(metrics_targets=lambda: targets))
    monkeypatch.setattr(fleet_clients, "coordinator_client", lambda: known)

    def clients_of(urls: list[str], headers: dict[str, str]) -> ClientLook:
        assert urls == ["http://r:1/metrics"]
        assert headers == {"Authorization": "Bearer secret"}
        row = ClientBroker("http://r:1/metrics", "receiver", "flights", 1, requests=50, fetch_wait_ms=100)
        slow, quick = replace(row, rtt_p99_ms=900.0), replace(row, broker=2, rtt_p99_ms=101.0)
        return ClientLook((quick, slow, replace(slow, broker=2, topic="far")))

    look = brokers.look

    def slow_reads(reader: StageReader, at_ms: int) -> StageLook:
        brokers.brokers[1].serve(RequestType.FETCH_CONSUMER, 500, local=600, remote=9)
        return look(reader, at_ms)

    monkeypatch.setattr(brokers, "look", slow_reads)
    monkeypatch.setattr(fleet_clients, "read_clients", clients_of)
    answer = run("clients", "--json")
    assert answer.exit_code == 3
    far, flights, quick = sorted(json.loads(answer.stdout)["clients"], key=lambda row: -row["is_slow"])
    if far["topic"] != "far":
        far, flights = flights, far
    assert (flights["behind"]["stage"], flights["behind"]["log_dir"]) == ("local", "/data/d1")
    assert "the way to broker 2" in far["behind"]["text"]
    assert quick["behind"] is None
    lines = run("clients", "--slow").stdout.splitlines()
    assert len(lines) == 3
    assert "broker 1, local 600 ms: the log, and /data/d1 is offline" in "\n".join(lines)


def test_logs_are_counted_by_rule_and_go_on_from_where_they_were(run: Run, tmp_path: Path) -> None:
    log, positions = tmp_path / "server.log", tmp_path / "positions.json"
    log.write_text(
        "[2026-11-23 10:00:00,000] ERROR Stopping serving logs in dir /data/d1 (kafka.log.LogManager)\n"
    )
    answer = run("logs", "--log", f"4={log}", "--positions", str(positions), "--json")
    assert answer.exit_code == 3
    (found,) = json.loads(answer.stdout)["rules"]
    assert (found["broker"], found["rule"], found["lines"]) == (4, "disk_error", 1)
    assert found["log_dirs"] == ["/data/d1"]
    answer = run("logs", "--log", f"4={log}", "--positions", str(positions))
    assert (answer.exit_code, len(answer.stdout.splitlines())) == (0, 1)
    assert run("logs", "--log", f"4={log}", "--rule", "fenced").exit_code == 0
    assert "kafka.log.LogManager" in run("logs", "--rules").stdout
    with pytest.raises(DefinitionError, match="BROKER=FILE"):
        run("logs", "--log", str(log))
    with pytest.raises(DefinitionError, match="no such rule"):
        run("logs", "--log", f"4={log}", "--rule", "disk")
    with pytest.raises(DefinitionError, match="--log"):
        run("logs")

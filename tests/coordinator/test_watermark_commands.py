"""`rtolap watermark` for units, history, pictures and topologies, against a coordinator on memory stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer
from PIL import Image
from rtolap.base.errors import DefinitionError, NotFound, RtolapError
from rtolap.cli import watching
from rtolap.cli.watermark import commands
from rtolap.cli.watermark import history as watermark_history
from rtolap.cli.watermark import words as watermark_words
from rtolap.watermark_client.client import WatermarkClient
from typer.main import get_group
from typer.testing import CliRunner, Result

from tests.support.cubes.coordinator_harness import TOKEN, Cluster
from tests.support.watermarks import application_commands
from tests.support.watermarks.definitions import hosts_source

DAY_MS = 86_400_000
STEP_MS, SAMPLES = 4_000, 30
STALLED_FROM = 10
APPLICATION: dict[str, Any] = {
    "name": "logs",
    "sources": [
        hosts_source("web", lease_ms=DAY_MS),
        {"name": "bare"},
    ],
    "operators": [{"name": "sessions", "unit_lease_ms": DAY_MS}],
    "sinks": [{"name": "store"}],
    "edges": [["web", "sessions"], ["sessions", "store"], ["bare", "store"]],
}


def cluster_with_logs(folder: Path) -> Cluster:
    """Two minutes, of which `host-b` stands still for the last 80 s; worker-1/3 has work of 10 s before."""
    cluster = Cluster(folder)
    cluster.client.create_application(APPLICATION)
    names = ["host-a", "host-b"]
    cluster.client.change_hosts("logs", "web", "register", names)
    transport = cluster.http._transport
    with WatermarkClient(["http://testserver"], TOKEN, "logs", transport=transport) as client:
        for sample in range(SAMPLES):
            now_ms = cluster.clock.now_ms()
            moving = names if sample < STALLED_FROM else names[:1]
            client.report_progress("web", 0, 0, moving, [now_ms] * len(moving))
            client.report_progress("bare", 0, 0, ["*"], [now_ms])
            client.set_oldest_work("sessions", "worker-1", 3, now_ms - 10_000)
            client.set_oldest_work("sessions", "worker-2", 0, None)
            client.flush()
            cluster.coordinator.tick()
            cluster.clock.advance_ms(STEP_MS)
    return cluster


@pytest.fixture(scope="module")
def kept_logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = cluster_with_logs(tmp_path_factory.mktemp("logs"))
    yield cluster
    cluster.close()


@pytest.fixture
def logs(kept_logs: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """For tests that only ask: one for all of them."""
    kept_logs.serve()
    application_commands.ask_this(kept_logs, monkeypatch)
    return kept_logs


@pytest.fixture
def own_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """For a test that changes hosts, approvals or the clock."""
    cluster = cluster_with_logs(tmp_path)
    application_commands.ask_this(cluster, monkeypatch)
    yield cluster
    monkeypatch.undo()
    cluster.close()


def run(*arguments: str, code: int = 0, answer: str | None = None) -> Result:
    return application_commands.run(commands.app, *arguments, code=code, answer=answer)


def refused(error: type[RtolapError], *arguments: str, match: str) -> None:
    with pytest.raises(error, match=match):
        CliRunner().invoke(commands.app, arguments, catch_exceptions=False)


def document(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def texts(svg: Path) -> str:
    return "\n".join(ElementTree.parse(svg).getroot().itertext())


def test_units_are_shown_by_processor_and_key_group(logs: Cluster) -> None:
    lines = run("units", "logs").stdout.splitlines()
    [held] = [line for line in lines if "worker-1" in line]
    assert held.split("\t")[:3] == ["sessions", "worker-1", "3"]
    assert "no work" in next(line for line in lines if "worker-2" in line)
    assert "no unit of web reports" in run("units", "logs", "--level", "web").stdout
    found = document("units", "logs", "--limit", "1")
    assert (found["counts"]["sessions"], len(found["units"])) == (2, 1)
    shown = run("show", "logs", "--units").stdout
    assert shown.index("sessions") < shown.index("worker-1/3") < shown.index("store")
    [told] = document("show", "logs", "--units")
    assert [(one["processor"], one["key_group"]) for one in told["units"]] == [
        ("worker-1", 3),
        ("worker-2", 0),
    ]


def test_the_history_tells_who_held_from_when_and_how_far(logs: Cluster) -> None:
    [line] = [line for line in run("history", "logs").stdout.splitlines() if "host-b" in line]
    assert "1m20s" in line
    assert "the owner remembers since" in run("history", "logs").stdout
    found = document("history", "logs", "--since", "30s", "--level", "web")
    assert list(found["levels"]) == ["web"]
    assert found["at_ms"][-1] - found["at_ms"][0] == 30_000 // STEP_MS * STEP_MS - STEP_MS
    assert found["since_ms"] < found["at_ms"][0]
    until = document("history", "logs", "--until", "60s")
    assert until["at_ms"][-1] == found["now_ms"] - 60_000


def test_a_stalled_host_is_named_in_the_picture(logs: Cluster, tmp_path: Path) -> None:
    svg = tmp_path / "logs.svg"
    told = document("plot", "logs", "--out", str(svg), "--window", "10s")
    said = texts(svg)
    assert "held by host-b (1m20s)" in said
    assert "worker-1/3" in said
    for level in ("web (source)", "bare (source)", "sessions (operator)", "store (sink)"):
        assert level in said
    assert told["levels"]["web"][0]["name"] == "host-b"
    assert told["levels"]["sessions"][0]["name"] == "worker-1/3"
    assert told["windows"]
    assert all(one["could_close_at_ms"] >= one["end_ms"] for one in told["windows"])
    assert told["samples"] == SAMPLES


def test_a_png_of_one_level_opens(logs: Cluster, tmp_path: Path) -> None:
    png = tmp_path / "logs.png"
    assert "2 levels" in run("plot", "logs", "-o", str(png), "--level", "web", "--level", "store").stdout
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(png) as image:
        image.load()
        assert min(image.size) > 500


def test_a_history_that_was_kept_is_drawn_without_a_coordinator(
    logs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(run("history", "logs", "--json").stdout)
    monkeypatch.delattr(watermark_history, "coordinator_client")
    monkeypatch.chdir(tmp_path)
    levels = ("--level", "web", "--level", "sessions")
    run("plot", "--from", str(kept), *levels)
    first = (tmp_path / "logs.svg").read_bytes()
    run("plot", "--from", "-", "--out", "again.svg", *levels, answer=kept.read_text())
    assert (tmp_path / "again.svg").read_bytes() == first
    kept.write_text('{"application": "logs"}')
    refused(DefinitionError, "plot", "--from", str(kept), match="not a history of watermarks")
    refused(DefinitionError, "plot", "--from", str(tmp_path / "none"), match="cannot be read")


def test_what_cannot_be_drawn_is_told_and_leaves_no_file(logs: Cluster, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "a.svg"))
    refused(NotFound, "plot", "nothing", *out, match="nothing does not exist")
    refused(DefinitionError, "plot", "logs", *out, "--level", "x", match="web, bare, sessions, store")
    refused(DefinitionError, "plot", "logs", *out, "--level", "x", "--level", "web", match="no such level")
    refused(DefinitionError, "plot", "logs", *out, "--since", "soon", match="not an instant")
    refused(DefinitionError, "plot", "logs", *out, "--window", "0s", match="a window has a length")
    refused(DefinitionError, "plot", "logs", "--out", "a.gif", match=r"\.svg or \.png")
    refused(DefinitionError, "plot", "logs", *out, "--until", "1h", "--since", "2h", match="nothing is remem")
    refused(DefinitionError, "plot", "logs", *out, "--until", "2h", "--since", "1h", match="before it begins")
    nowhere = ("--out", str(tmp_path / "no" / "a.svg"), "--level", "bare")
    refused(RtolapError, "plot", "logs", *nowhere, match="cannot be written")
    assert list(tmp_path.glob("*.svg")) == []
    run("plot", code=2)
    run("plot", "logs", "--from", "x", code=2)


def test_a_topology_is_written_for_graphviz_and_as_a_picture(logs: Cluster, tmp_path: Path) -> None:
    run("topology", "logs", "--out", str(tmp_path / "logs.dot"))
    text = (tmp_path / "logs.dot").read_text()
    assert '"web" -> "sessions";' in text
    assert "1m24s behind" in text
    levels = document("topology", "logs", "--out", str(tmp_path / "logs.svg"))["levels"]
    assert [name for name, one in levels.items() if one["holds"]] == ["web"]
    assert levels["sessions"]["units"] == 2
    assert "host_precise source" in texts(tmp_path / "logs.svg")
    refused(DefinitionError, "topology", "logs", "--out", "logs.pdf", match=r"\.svg or \.png")
    assert "2 units" in run("topology", "logs").stdout


def test_watching_shows_what_changes_until_it_is_interrupted(
    own_logs: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[float] = []

    def turn(seconds: float) -> None:
        turns.append(seconds)
        if len(turns) == 3:
            raise KeyboardInterrupt
        own_logs.clock.advance_ms(3_600_000)

    monkeypatch.setattr(watching, "pause", turn)
    shown = run("show", "--watch", "--every", "1s").stdout
    assert "2h1m24s" in shown
    assert turns == [1.0, 1.0, 1.0]


def test_hosts_of_a_source_without_a_list_are_none(logs: Cluster) -> None:
    assert "the rule `partitions` has none" in run("hosts", "logs", "--level", "bare").stdout
    refused(DefinitionError, "hosts", "logs", match="which source")
    refused(DefinitionError, "hosts", "logs", "--level", "sessions", match="no such source")


def test_hosts_that_are_gone_leave_by_command(own_logs: Cluster) -> None:
    refused(DefinitionError, "remove", "logs", "host-b", "--yes", match="source is not given|which source")
    web = ("--level", "web")
    refused(NotFound, "remove", "logs", "host-x", *web, "--yes", match="host-x")
    run("remove", "logs", "host-b", *web, code=1, answer="n\n")
    assert document("hosts", "logs", *web)["counting"] == 2
    assert "1 count" in run("remove", "logs", "host-b", *web, "--yes").stdout
    own_logs.coordinator.tick()
    assert "host-b" not in run("hosts", "logs", *web).stdout
    drained = document("drain", "logs", "host-a", *web, "--end", str(own_logs.clock.now_ms() - STEP_MS))
    assert drained["counting"] == 1, "until it is read so far"
    own_logs.coordinator.tick()
    assert document("hosts", "logs", *web)["counting"] == 0


def test_an_application_that_nobody_reported_to_is_shown_as_unknown(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    application_commands.ask_this(cluster, monkeypatch)
    cluster.client.create_application(APPLICATION)
    assert "web" in run("show", "logs").stdout
    assert "unknown" in run("topology", "logs").stdout
    assert document("topology", "logs")["levels"]["store"]["output_ms"] is None
    empty = run("history", "logs")
    assert "remembers nothing" in empty.output
    assert "no host of web counts" in run("hosts", "logs", "--level", "web").stdout


def test_a_json_approval_asks_beside_its_document(own_logs: Cluster) -> None:
    until = str(own_logs.clock.now_ms() - 1000)
    arguments = ("approve", "logs", until, "--reason", "why", "--by", "ann", "--json")
    result = run(*arguments, answer="y\n")
    told = result.stdout[result.stdout.index("[") :]  # the runner echoes what is typed
    assert json.loads(told)[0]["by"] == "ann"
    assert "host-b" in result.stderr


def test_names_of_applications_and_levels_complete(logs: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermark_words, "adopt_running_stack", lambda: None)
    assert watermark_words.complete_application("l") == ["logs"]
    assert watermark_words.complete_application("x") == []
    command = get_group(commands.app).commands["hosts"]
    for application, offered in (("logs", ["sessions", "store"]), ("nothing", [])):
        context = typer.Context(command)
        context.params = {"application": application}
        assert watermark_words.complete_level(context, "s") == offered
    assert watermark_words.complete_level(typer.Context(command), "s") == []

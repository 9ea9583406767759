"""`rtolap stack` over real servers: the two Java ones suffice to see its life."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from rtolap.base.pids import lives
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessSpec as AgentProcess
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.class_recording import run_build
from rtolap.stack.layout import StackLayout
from rtolap.stack.ports import free_port
from rtolap.stack.secrets import SQL_USER, read_secret
from rtolap.stack.state import DEFAULT_PORTS
from rtolap.stack.together import marked_processes

from tests.support.waiting import patience_s, until

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("java")]
ONLY = ("--only", "zookeeper,kafka")
UP_TIMEOUT_S = 600.0  # the first to need HBase's jars fetches them
_ANSWERS_EVERYTHING = """
import http.server, sys
class Yes(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Yes)
print("listening", flush=True)
server.serve_forever()
"""


class Command:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rtolap.cli.main", "stack", verb, "--dir", str(self.folder)]
        return subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=UP_TIMEOUT_S, check=False
        )

    def status(self) -> tuple[int, dict[str, dict[str, object]]]:
        done = self("status", "--json")
        return done.returncode, {part["name"]: part for part in json.loads(done.stdout)["components"]}

    def left(self) -> list[psutil.Process]:
        return marked_processes(StackLayout(self.folder))


@pytest.fixture
def stack(tmp_path: Path, java: JavaArtifacts) -> Iterator[Command]:
    folder = tmp_path / "at" / "ein Stück"
    folder.parent.mkdir()
    command = Command(folder)
    yield command
    command("down")
    assert {path.name for path in folder.parent.iterdir()} <= {folder.name}, "nothing is written beside it"


def _ports() -> list[str]:
    """Ports of this test's own, so that a stack of the same machine is not in its way."""
    taken: set[int] = set()
    arguments = []
    for name in DEFAULT_PORTS:
        port = free_port(taken)
        taken.add(port)
        arguments += ["--port", f"{name}={port}"]
    return arguments


@pytest.mark.parametrize("more", [(), ("mariadb",)], ids=["in a file", "on mariadb"])
def test_a_endpoint_and_a_node_take_a_load(stack: Command, more: tuple[str, ...]) -> None:
    """As `up --stream-load` starts them, without what else it starts."""
    only = ("--only", ",".join((*more, "stream-load", "storage")))
    up = stack("up", *only, *_ports(), "--json")
    assert up.returncode == 0, up.stderr
    ports, layout = json.loads(up.stdout)["ports"], StackLayout(stack.folder)
    url = f"http://127.0.0.1:{ports['stream-load']}"
    with StoredTablesClient((url,), read_secret(layout, "token")) as tables:
        columns = (StoredColumn("id", "int", nullable=False),)
        tables.create(StoredTable(database="web", name="hits", columns=columns, keys=("id",)))
    with StreamLoadClient((url,), SQL_USER, read_secret(layout, "sql-password")) as client:
        answer = client.load("web", "hits", "first", b"1\n2\n", SendOptions(format="csv"))
    assert (answer.status, answer.number_loaded_rows) == ("Success", 2)
    assert stack("down").returncode == 0
    assert stack.left() == []


def test_up_status_crash_up_down(stack: Command) -> None:
    up = stack("up", *ONLY, *_ports(), "--json")
    assert up.returncode == 0, up.stderr
    told = [line.split()[2:4] for line in up.stderr.splitlines()]  # 1.5 s  kafka  ready …
    assert {("zookeeper", "starting"), ("kafka", "starting"), ("zookeeper", "ready"), ("kafka", "ready")} <= {
        tuple(words) for words in told
    }
    code, first = stack.status()
    assert code == 0
    assert {name: part["state"] for name, part in first.items()} == {"zookeeper": "ready", "kafka": "ready"}

    again = stack("up", *ONLY)
    assert again.returncode == 0, again.stderr
    _, second = stack.status()
    assert {part["pid"] for part in second.values()} == {part["pid"] for part in first.values()}

    kafka = psutil.Process(int(str(first["kafka"]["pid"])))
    os.kill(kafka.pid, signal.SIGKILL)
    until(lambda: not lives(kafka), "the last thread of the killed broker has ended")
    code, crashed = stack.status()
    assert code == 3
    assert (crashed["kafka"]["state"], crashed["zookeeper"]["state"]) == ("crashed", "ready")
    assert "ended by itself" in str(crashed["kafka"]["problem"])
    text = stack("status")
    assert text.returncode == 3
    assert "kafka is crashed" in text.stderr
    assert "zookeeper is" not in text.stderr

    mended = stack("up", *ONLY)
    assert mended.returncode == 0, mended.stderr
    code, third = stack.status()
    assert code == 0
    assert third["kafka"]["pid"] != first["kafka"]["pid"]
    assert third["kafka"]["address"] == first["kafka"]["address"]

    assert "kafka" in stack("logs", "-n", "5").stdout
    down = stack("down")
    assert down.returncode == 0, down.stderr
    assert stack.left() == []
    code, stopped = stack.status()
    assert code == 3
    assert {part["state"] for part in stopped.values()} == {"stopped"}
    assert stack("down").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--port", "kafak=9092"), "unknown port; expected zookeeper | kafka | "),
        (("--port", "kafka=99999"), "wrong --port; expected NAME=NUMBER; found 'kafka=99999'"),
        (("--only", "zookeper"), "unknown component; expected zookeeper | kafka | "),
    ],
)
def test_a_wrong_option_starts_nothing(stack: Command, arguments: tuple[str, ...], said: str) -> None:
    up = stack("up", *arguments)
    assert (up.returncode, up.stdout) == (1, "")
    assert said in " ".join(up.stderr.split())
    assert not stack.folder.exists()


def test_down_ends_what_outlived_its_component(stack: Command) -> None:
    assert stack("up", "--only", "zookeeper", *_ports()).returncode == 0
    orphan = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(300)"],
        start_new_session=True,
        env={**os.environ, "RTOLAP_STACK_ID": str(stack.folder)},
    )
    until(lambda: orphan.pid in {process.pid for process in stack.left()}, "it has its environment")
    assert json.loads(stack("down", "--json").stdout)["swept"] == 1
    assert orphan.wait(10) == -signal.SIGTERM
    assert stack.left() == []


def test_down_stops_what_the_agent_runs(stack: Command) -> None:
    up = stack("up", "--only", "agent", *_ports(), "--json")
    assert up.returncode == 0, up.stderr
    layout = StackLayout(stack.folder)
    url = f"http://127.0.0.1:{json.loads(up.stdout)['ports']['agent']}"
    with AgentClient(url, read_secret(layout, "token")) as agent:
        agent.ensure(
            "sleeper", AgentProcess(generation=1, argv=("rtolap", "agent", "sleep", "--seconds", "300"))
        )
        until(lambda: agent.get("sleeper").pid is not None, "it is started")
        child = agent.get("sleeper").pid
    assert child is not None
    assert psutil.pid_exists(child)
    down = stack("down", "--json")
    assert down.returncode == 0, down.stderr
    assert json.loads(down.stdout)["swept"] == 0  # the agent itself has stopped it
    assert stack.left() == []


def test_two_stacks_that_start_at_once_get_ports_of_their_own(tmp_path: Path, stack: Command) -> None:
    second = Command(tmp_path / "second")
    wanted = _ports()
    try:
        with ThreadPoolExecutor(2) as pool:
            ups = list(pool.map(lambda one: one("up", "--only", "agent", *wanted, "--json"), (stack, second)))
        assert [up.returncode for up in ups] == [0, 0], [up.stderr for up in ups]
        first_ports, second_ports = (set(json.loads(up.stdout)["ports"].values()) for up in ups)
        assert not first_ports & second_ports
        parts = [one.status() for one in (stack, second)]
        assert [code for code, _ in parts] == [0, 0]
    finally:
        second("down")


def test_another_program_on_a_parts_port_does_not_pass_for_it(stack: Command) -> None:
    assert stack("up", "--only", "zookeeper,agent", *_ports()).returncode == 0
    _, parts = stack.status()
    os.kill(int(str(parts["agent"]["pid"])), signal.SIGKILL)
    address, _, port = str(parts["agent"]["address"]).partition(":")
    stranger = subprocess.Popen(
        [sys.executable, "-c", _ANSWERS_EVERYTHING, port], stdout=subprocess.PIPE, text=True
    )
    try:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "listening\n"
        assert httpx.get(f"http://{address}:{port}/health", trust_env=False).status_code == 200
        code, parts = stack.status()
        assert (code, parts["agent"]["state"], parts["zookeeper"]["state"]) == (3, "crashed", "ready")
        up = stack("up", "--only", "agent")
        assert up.returncode == 1
        assert f"port {port} free; found it belongs to process {stranger.pid} (" in up.stderr
    finally:
        stranger.kill()
        stranger.wait(10)
    assert stack("up", "--only", "agent").returncode == 0
    assert stack.status()[0] == 0


def test_a_stack_of_another_version_is_told_so_and_can_be_stopped(stack: Command) -> None:
    assert stack("up", "--only", "zookeeper", *_ports()).returncode == 0
    file = stack.folder / "stack.json"
    file.write_text(file.read_text().replace('"zookeeper"', '"zk"'))
    for verb in ("status", "up"):
        done = stack(verb)
        assert done.returncode == 1
        assert "another version of rtolap" in done.stderr
        assert "Traceback" not in done.stderr
    down = stack("down", "--json")
    assert down.returncode == 0, down.stderr
    assert json.loads(down.stdout)["swept"] == 1  # the part whose name this version does not know
    assert stack.left() == []
    assert stack("up", "--only", "zookeeper").returncode == 0


def test_hbase_comes_and_goes_with_the_stack_where_it_is_asked_for(stack: Command) -> None:
    up = stack("up", "--only", "zookeeper", "--with", "hbase", "--json", *_ports())
    assert up.returncode == 0, up.stderr
    told = json.loads(up.stdout)
    assert (told["components"], set(told["ports"])) == (
        ["zookeeper", "hbase"],
        {"zookeeper", "hbase-zookeeper", "hbase-master", "hbase-info"},
    )
    cluster = f"127.0.0.1:{told['ports']['hbase-zookeeper']}/hbase"
    assert f"RTOLAP_HBASE={cluster}" in StackLayout(stack.folder).env_file.read_text()
    listed = subprocess.run(
        [sys.executable, "-m", "rtolap.cli.main", "sep", "list", "--cluster", cluster, "--json"],
        capture_output=True,
        text=True,
        timeout=patience_s(60),
        check=False,
    )
    assert (listed.returncode, json.loads(listed.stdout)) == (0, []), listed.stderr
    code, parts = stack.status()
    assert (code, parts["hbase"]["state"]) == (0, "ready")
    assert stack("down").returncode == 0
    assert not stack.left()


def test_what_is_asked_for_is_in_the_folder_of_the_stack_and_comes_back_from_it(stack: Command) -> None:
    """HBase is in the test above: here are those that read their folders in other ways."""
    asked = ("--only", "kafka", "--with", "kafka-2,spark", "--mariadb", "--json")
    for _ in range(2):  # the second start finds what the first has made
        up = stack("up", *asked, *_ports())
        assert up.returncode == 0, up.stderr
        code, parts = stack.status()
        assert (code, {part["state"] for part in parts.values()}) == (0, {"ready"})
        assert stack("down").returncode == 0
    assert (stack.folder / "run" / "kafka" / "data" / "meta.properties").exists()
    assert (stack.folder / "run" / "mariadb" / "data" / "mysql").is_dir()


def test_spark_records_its_classes_in_a_folder_of_any_letters(tmp_path: Path) -> None:
    archive = tmp_path / "ein Stück" / "spark.jsa"
    archive.parent.mkdir()
    run_build(tmp_path / "ein Ordner", [f"-XX:ArchiveClassesAtExit={archive}"])
    assert archive.stat().st_size > 1 << 20

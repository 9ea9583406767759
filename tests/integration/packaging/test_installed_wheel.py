"""The wheel in an Airflow that was there before it: no checkout, no plugins folder, no PYTHONPATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import pytest
from rtolap.model.offsets import PartRange
from rtolap.object_store.store import open_store
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessSpec as AgentProcess
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.spec import ProcessSpec

from tests.support.cubes.built import assert_recount
from tests.support.cubes.staging import Staging, raw_events
from tests.support.waiting import patience_s, until

pytestmark = [pytest.mark.integration]

PROJECT = Path(__file__).resolve().parents[3]
DEADLINE_S = 240.0
LOCAL_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"
_OWN = ("rtolap", "_rtolap", "_editable_impl_rtolap")  # how a checkout is installed for development


@dataclass(frozen=True)
class Installed:
    """`site`: the environment's site-packages; `home`: a working folder outside the checkout."""

    folder: Path
    site: Path
    home: Path

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def environment(self, **more: str) -> dict[str, str]:
        """Nothing of this checkout and nothing of the tests' own Airflow."""
        kept = {name: value for name in ("JAVA_HOME", "LANG") if (value := os.environ.get(name))}
        path = f"{self.folder / 'bin'}{os.pathsep}{os.defpath}"
        return {**kept, "PATH": path, "HOME": str(self.home), **more}

    def run(self, *command: str, **more: str) -> str:
        """What it prints; it must succeed."""
        done = subprocess.run(
            [self.program(command[0]), *command[1:]],
            env=self.environment(**more),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=patience_s(300),
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout

    def process(self, name: str, *command: str, port: int, health: str, **more: str) -> ManagedProcess:
        """A server, ready once GET `health` answers 200. It gets its environment and nothing else."""
        variables = [f"{key}={value}" for key, value in self.environment(**more).items()]

        def ready(_: float) -> str | None:
            try:
                answer = httpx.get(f"http://127.0.0.1:{port}{health}", timeout=5, trust_env=False)
            except httpx.HTTPError as error:
                return str(error)
            return None if answer.is_success else answer.text

        spec = ProcessSpec(
            name=name,
            folder=self.home / name,
            argv=("/usr/bin/env", "-i", *variables, self.program(command[0]), *command[1:]),
            ports=(port,),
            cwd=self.home,
            ready=ready,
            ready_timeout_s=DEADLINE_S,
        )
        return ManagedProcess(spec)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The locked packages, and the built wheel beside them, installed by pip."""
    folder, home, dist = (tmp_path_factory.mktemp(name) for name in ("env", "home", "dist"))
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(_OWN) and entry.name != "__pycache__":
            (site / entry.name).symlink_to(entry)
    made = Installed(folder, site, home)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)]
    subprocess.run(build, cwd=PROJECT, check=True, capture_output=True, timeout=patience_s(120))
    (wheel,) = dist.glob("*.whl")
    made.run(
        *("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-index", "--no-compile", str(wheel)),
    )
    return made


_UNFIT = """
import importlib.metadata, json
from packaging.requirements import Requirement
unfit, roles = [], ("airflow", "spark")
for text in importlib.metadata.requires("rtolap"):
    requirement = Requirement(text)
    if requirement.marker is None or any(requirement.marker.evaluate({"extra": role}) for role in roles):
        version = importlib.metadata.version(requirement.name)
        if version not in requirement.specifier:
            unfit.append([text, version])
print(json.dumps(unfit))
"""


def test_the_airflow_and_the_spark_that_are_there_are_what_the_package_asks_for(installed: Installed) -> None:
    assert json.loads(installed.run("python", "-c", _UNFIT)) == []


def test_nothing_of_the_checkout_is_seen(installed: Installed) -> None:
    code = "import json, sys, rtolap; print(json.dumps([rtolap.__file__, *sys.path]))"
    module, *paths = json.loads(installed.run("python", "-c", code))
    assert module == str(installed.site / "rtolap" / "__init__.py")
    assert [path for path in paths if path.startswith(str(PROJECT))] == []
    assert installed.run("rtolap", "--version").startswith("rtolap ")


@dataclass(frozen=True)
class Airflow:
    installed: Installed
    variables: dict[str, str]
    port: int

    def told(self, *command: str) -> Any:
        """The JSON that `airflow …` prints; warnings may stand before it."""
        printed = self.installed.run("python", "-m", "airflow", *command, **self.variables)
        return json.loads(printed[printed.index("[") :])


@pytest.fixture(scope="module")
def airflow(installed: Installed) -> Airflow:
    """As docs/airflow.md says: the wheel, and a bundle for its DAGs. No plugins folder exists."""
    dags = installed.run("rtolap", "airflow-settings", "dags-folder").strip()
    assert dags == str(installed.site / "rtolap" / "shipped" / "dags")
    port, home = free_port(), installed.home / "airflow"
    bundle = {"name": "rtolap", "classpath": LOCAL_BUNDLE, "kwargs": {"path": dags}}
    (installed.home / "token").write_text("t")
    made = Airflow(
        installed,
        {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__API_AUTH__JWT_SECRET": "of a test: " + "x" * 64,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
            "RTOLAP_TOKEN_FILE": str(installed.home / "token"),
            "RTOLAP_AGENT_PORT": str(free_port({port})),
        },
        port,
    )
    home.mkdir()
    installed.run("python", "-m", "airflow", "db", "migrate", **made.variables)
    return made


def test_airflow_lists_the_plugin_the_provider_and_the_connection_type(airflow: Airflow) -> None:
    plugins = {plugin["name"]: plugin for plugin in airflow.told("plugins", "-o", "json")}
    assert "EntryPoint" in plugins["rtolap"]["source"]
    providers = {one["package_name"] for one in airflow.told("providers", "list", "-o", "json")}
    assert "rtolap" in providers
    hooks = {one["connection_type"]: one for one in airflow.told("providers", "hooks", "-o", "json")}
    assert hooks["rtolap"]["class"] == "rtolap.airflow.hooks.rtolap.RtolapHook"
    assert not Path(airflow.variables["AIRFLOW_HOME"], "plugins").exists()


@pytest.fixture(scope="module")
def api(airflow: Airflow) -> Iterator[httpx.Client]:
    """Airflow's real API server, with the DAGs of the wheel parsed into its database."""
    command = ("python", "-m", "airflow")
    airflow.installed.run(*command, "dags", "reserialize", **airflow.variables)
    arguments = ("api-server", "--host", "127.0.0.1", "--port", str(airflow.port), "--workers", "1")
    server = airflow.installed.process(
        "api-server",
        *(*command, *arguments),
        port=airflow.port,
        health="/api/v2/monitor/health",
        **airflow.variables,
    )
    url = f"http://127.0.0.1:{airflow.port}"
    try:
        server.start()
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            token = client.get("/auth/token").raise_for_status().json()["access_token"]
            client.headers["authorization"] = f"Bearer {token}"
            yield client
    finally:
        server.stop()


def test_the_api_server_has_the_dags_the_form_and_the_plugins_routes(api: httpx.Client) -> None:
    dags = {dag["dag_id"] for dag in api.get("/api/v2/dags").raise_for_status().json()["dags"]}
    shipped = {"rtolap_receivers", "rtolap_segment_build", "rtolap_backfill", "rtolap_purge"}
    assert shipped <= dags
    assert api.get("/api/v2/importErrors").raise_for_status().json()["import_errors"] == []
    forms = api.get("/ui/connections/hook_meta").raise_for_status().json()
    assert "rtolap" in {form["connection_type"] for form in forms}

    route = "/rtolap/dags/rtolap_receivers/processes/receiver.r0/log"
    answer = api.get(route)  # no agent runs here, and the route is ours: it says so
    assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert answer.json()["code"] == "unavailable"


def test_an_agent_of_the_wheel_builds_a_segment_with_the_job_of_the_wheel(
    installed: Installed, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("t")
    port, uri = free_port(), (tmp_path / "store").as_uri()
    staging = Staging(open_store(uri), uri, tmp_path / "store")
    raw = raw_events(20130101, 0, 0, 200)
    part = staging.part(1, "rs1", raw, PartRange(0, 0, 200))
    spec = staging.spec("b1", part, covered={0: 200}, first_offsets={0: 0})
    settings = {
        "RTOLAP_DATA_DIR": str(tmp_path),
        "RTOLAP_TOKEN_FILE": str(tmp_path / "token"),
        "RTOLAP_AGENT_PORT": str(port),
        "RTOLAP_OBJECT_STORE": uri,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    server = installed.process(
        "agent", "rtolap", "agent", "serve", "--stop-on-exit", port=port, health="/health", **settings
    )
    options = ("--master", "local[2]", "--driver-memory", "700m", "--conf", "spark.ui.enabled=false")
    wanted = AgentProcess(
        generation=1,
        argv=("spark-submit", *options, "build_segment.py", "{files}/specs.json"),
        files={"specs.json": msgspec.json.encode([spec]).decode()},
        one_shot=True,
        orphan_s=DEADLINE_S,
    )
    try:
        server.start()
        with AgentClient(f"http://127.0.0.1:{port}", "t") as agent:
            build = agent.ensure("build.sales", wanted)
            assert build.pid is not None
            job = installed.site / "rtolap" / "shipped" / "spark_jobs" / "build_segment.py"
            assert str(job) in psutil.Process(build.pid).cmdline()
            until(lambda: not agent.get("build.sales").is_live, timeout_s=DEADLINE_S, poll_s=0.2)
            status = agent.get("build.sales")
            assert status.state == "SUCCEEDED", status
    finally:
        server.stop()
    assert_recount(staging, spec, raw)

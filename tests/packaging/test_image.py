"""Tests of what of the image and the compose file can be tried without an engine for containers."""

from __future__ import annotations

import http.server
import re
import shlex
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest
import yaml
from airflow.cli.cli_parser import get_parser
from airflow.configuration import conf
from cryptography.fernet import Fernet
from rtolap.agent.server import create_app
from rtolap.base.settings import Settings
from rtolap.base.users import password_hash
from rtolap.cli.main import load
from rtolap.coordinator.server import build_app
from rtolap.query.http.server import make_app
from rtolap.servers.limits import HttpLimits
from rtolap.stack.probes import AIRFLOW_HEALTH
from rtolap.stack.servers.airflow import EXECUTION_API
from rtolap.stack.state import DEFAULT_PORTS
from rtolap.stored.frontend.http.app import OPEN_PATHS
from rtolap.stored.frontend.process import here
from rtolap.stored.metastore.dialects import checked_address

from tests.support.pages.texts import text_of

_PROJECT = Path(__file__).resolve().parents[2]
_DOCKER = _PROJECT / "docker"
_PASSWORDS = ("/run/secrets/airflow_passwords", "/var/lib/airflow/passwords.json")  # Airflow writes to it


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    content: dict[str, Any] = yaml.safe_load((_DOCKER / "compose.yaml").read_text())
    found: dict[str, dict[str, Any]] = content["services"]
    return found


@pytest.fixture(scope="module")
def instructions() -> list[list[str]]:
    """Of the Dockerfile, in order, in words."""
    lines = (_DOCKER / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line and not line.startswith("#")]


def test_what_is_copied_before_the_install_is_all_that_the_install_needs(
    instructions: list[list[str]], tmp_path: Path
) -> None:
    (install,) = (
        number
        for number, words in enumerate(instructions)
        if words[0] == "RUN" and "install" in words and words[-1] == "."
    )
    image = tmp_path / "image"
    image.mkdir()
    for words in instructions[:install]:
        for source in words[1:-1] if words[0] == "COPY" else ():
            path = _PROJECT / source
            if path.is_dir():
                shutil.copytree(path, image / words[-1], ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, image / words[-1])
    built = [_wheel(folder, tmp_path / name) for folder, name in ((image, "a"), (_PROJECT, "b"))]
    assert built[0] == built[1]


def _wheel(project: Path, target: Path) -> set[str]:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    done = subprocess.run(build, cwd=project, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = target.glob("*.whl")
    # the image has no git, so its wheel has another version
    return {re.sub(r"^rtolap-[^/]*\.dist-info/", "", name) for name in zipfile.ZipFile(wheel).namelist()}


def _commands(service: dict[str, Any]) -> list[list[str]]:
    words = [str(word) for word in service["command"]]
    return [shlex.split(part) for part in words[2].split("&&")] if words[:2] == ["sh", "-c"] else [words]


def test_every_command_is_understood_with_its_options(services: dict[str, dict[str, Any]]) -> None:
    """Parsed by the programs' own parsers, which refuse what they do not know."""
    understood = set()
    for service in services.values():
        for program, *arguments in _commands(service) if "command" in service else ():
            if program == "rtolap":
                group, command, *options = arguments
                load(group).commands[command].make_context(command, options)
            elif program == "airflow":
                get_parser().parse_args(arguments)
            elif program == "install":
                assert arguments == ["-m", "0600", *_PASSWORDS]
            else:
                assert [program, *arguments] in (["sleep", "infinity"], ["--bind-address=127.0.0.1"])
            understood.add((program, *arguments[:3]))
    assert len(understood) == 15
    with pytest.raises(Exception, match="No such option"):
        load("agent").commands["serve"].make_context("serve", ["--job-dir", "x"])


def test_every_airflow_variable_is_an_option_of_airflow(
    services: dict[str, dict[str, Any]], instructions: list[list[str]]
) -> None:
    given = {name for service in services.values() for name in service.get("environment", ())}
    given |= {word.partition("=")[0] for words in instructions if words[0] == "ENV" for word in words[1:]}
    given |= set(re.findall(r"AIRFLOW__\w+", _page()))
    options = {
        name: name.removesuffix("_CMD").split("__")[1:] for name in given if name.startswith("AIRFLOW__")
    }
    assert len(options) > 5
    for name, (section, option) in options.items():
        assert option.lower() in conf.configuration_description[section.lower()]["options"], name


def test_every_image_is_one_of_a_digest(
    services: dict[str, dict[str, Any]], instructions: list[list[str]]
) -> None:
    """The tag beside it says which version that is; a stage of our own image would have none."""
    images = {service["image"] for service in services.values() if "build" not in service}
    images |= {words[1] for words in instructions if words[0] == "FROM"}
    assert {image.partition(":")[0] for image in images} == {
        *("python", "busybox", "zookeeper", "apache/kafka", "mariadb")
    }
    for image in images:
        assert re.fullmatch(r"[a-z/]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}", image), image


def test_no_container_has_capabilities_gains_any_or_writes_beside_its_volumes(
    services: dict[str, dict[str, Any]], instructions: list[list[str]]
) -> None:
    of_image = [words[1] for words in instructions if words[0] == "USER"][-1]
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert not {"privileged", "cap_add", "devices", "pid", "ipc", "userns_mode"} & set(service), name
        user = str(service.get("user", of_image if "build" in service else "root"))
        assert user.partition(":")[0] not in ("root", "0"), name
        mounts = [str(mount).split(":") for mount in service.get("volumes", ())]
        for source, *_ in mounts:  # a named volume, or one of the container's own: nothing of the host
            assert source in ("/tmp", "/datalog", "/logs") or not source.startswith((".", "/", "~")), name
        if name != "net":
            assert ["/tmp"] in mounts, name


def test_what_is_written_lies_in_a_volume(
    services: dict[str, dict[str, Any]], instructions: list[list[str]]
) -> None:
    variables = {
        name: value
        for words in instructions
        if words[0] == "ENV"
        for name, _, value in (word.partition("=") for word in words[1:])
    }
    for name, service in services.items():
        if "build" not in service:
            continue
        volumes = [mount.rpartition(":")[2] for mount in service["volumes"]]
        written = {**variables, **service["environment"]}
        folders = [written["RTOLAP_DATA_DIR"], written["RTOLAP_OBJECT_STORE"].removeprefix("file://")]
        if name.startswith("airflow-"):
            folders += [written["AIRFLOW_HOME"], written["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"][10:]]
            folders.append(written["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
        for folder in folders:
            assert any(Path(folder).is_relative_to(volume) for volume in volumes), (name, folder)


def test_airflows_keys_and_password_are_secrets_without_a_default(
    services: dict[str, dict[str, Any]],
) -> None:
    content = yaml.safe_load((_DOCKER / "compose.yaml").read_text())
    declared = {name: secret["file"] for name, secret in content["secrets"].items()}
    for name, service in services.items():
        assert "env_file" not in service, name
        if not name.startswith("airflow-"):
            continue
        environment = service["environment"]
        for option in ("API_AUTH__JWT_SECRET", "API__SECRET_KEY", "CORE__FERNET_KEY"):
            assert f"AIRFLOW__{option}" not in environment
            program, path = shlex.split(environment[f"AIRFLOW__{option}_CMD"])
            assert (program, Path(path).parent) == ("cat", Path("/run/secrets"))
            assert Path(path).name in service["secrets"]
            assert f"> docker/{declared[Path(path).name]}" in _page()
        assert environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"] == _PASSWORDS[1]
        assert environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] == "False"
        assert Path(_PASSWORDS[0]).name in service["secrets"]
    assert f"> docker/{declared['airflow_passwords']}" in _page()
    assert {path.removeprefix("secrets/") for path in declared.values()} == set(
        re.findall(r"> docker/secrets/(\w+)", _page())
    )


def test_the_recipe_for_airflows_key_makes_one_that_airflow_takes(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on this machine")
    (recipe,) = re.findall(r"^(openssl .*) > docker/secrets/airflow_fernet", _page(), re.MULTILINE)
    done = subprocess.run(["sh", "-c", recipe], capture_output=True, text=True, timeout=30, check=True)
    key = Fernet(done.stdout)  # with the end of the line, as Airflow reads it
    assert key.decrypt(key.encrypt(b"a connection")) == b"a connection"


def test_the_front_end_of_the_deployment_sends_loads_where_the_host_reaches_its_ports(
    services: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in services["stream-load"]["environment"].items():
        monkeypatch.setenv(name, str(value))
    published = {port.rpartition(":")[0] for port in services["net"]["ports"]}
    endpoint = here(Settings())
    assert {urlsplit(url).netloc for url in (endpoint.url, endpoint.body_url)} <= published


def test_storage_nodes_and_the_query_service_find_that_front_end_and_its_ledger_has_one_password(
    services: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in services["storage"]["environment"].items():
        monkeypatch.setenv(name, str(value))
    settings = Settings()
    assert settings.stream_load_urls() == ("http://127.0.0.1:7030",)
    address, maria = checked_address(settings.ledger), services["mariadb"]["environment"]
    assert (address.username, address.database) == (maria["MARIADB_USER"], maria["MARIADB_DATABASE"])
    assert str(settings.ledger_password_file) == maria["MARIADB_PASSWORD_FILE"]


def test_every_health_check_asks_a_route_that_exists_on_the_port_that_is_served(
    services: dict[str, dict[str, Any]],
) -> None:
    settings = Settings()
    # routes are declared without the service behind them, which has an address
    nothing: Any = Mock(url="http://127.0.0.1:1")
    served = {
        "coordinator": (settings.coordinator_port, _paths(build_app(nothing, "t", HttpLimits()))),
        "agent": (settings.agent_port, _paths(create_app(nothing, "t", lambda: None, HttpLimits()))),
        "query": (settings.query_http_port, _paths(make_app(nothing, nothing, "t", HttpLimits()))),
        "stream-load": (settings.stream_load_port, set(OPEN_PATHS)),
        "airflow-api": (conf.getint("api", "port"), {AIRFLOW_HEALTH}),
        "airflow-execution-api": (DEFAULT_PORTS["airflow-execution"], {EXECUTION_API.health}),
    }
    checked = {name for name, service in services.items() if "healthcheck" in service}
    assert checked == {*served, "mariadb"}  # whose image brings a check of its own
    for name, (port, paths) in served.items():
        url = urlsplit(services[name]["healthcheck"]["test"][-1])
        assert (url.hostname, url.port) == ("127.0.0.1", port), name
        assert url.path in paths, name


def _paths(app: Any) -> set[str]:
    return {route.path for route in app.routes if "GET" in route.methods}


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 503)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Answers) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_the_health_checks_command_tells_health_by_its_exit_code(
    services: dict[str, dict[str, Any]], server: str
) -> None:
    kind, program, *arguments, _ = services["agent"]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    for url, healthy in (
        (f"{server}/health", True),
        (f"{server}/other", False),
        ("http://127.0.0.1:1/", False),
    ):
        done = subprocess.run([sys.executable, *arguments, url], capture_output=True, timeout=30, check=False)
        assert (done.returncode == 0) is healthy, url


def test_the_recipe_for_the_users_file_makes_what_the_endpoint_checks(tmp_path: Path) -> None:
    for tool in ("sh", "xxd", "sha256sum"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this machine")
    password = "it's a secret"
    (recipe,) = re.findall(r"^(printf 'rtolap:.*) > docker/secrets/users$", _page(), re.MULTILINE)
    done = subprocess.run(
        ["sh", "-c", recipe],
        env={"SQL_PASSWORD": password, "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == f"rtolap:{password_hash(password)}\n"


def _page() -> str:
    return text_of("airflow")

"""The image, the compose file and airflow_settings.yaml agree with the package."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from airflow.sdk.definitions.connection import Connection
from rtolap.agent.options import RTOLAP_OPTIONS
from rtolap.airflow.declared import RECEIVERS
from rtolap.airflow.hooks.connection import from_connection
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.cli.airflow_settings import import_into, read_settings
from rtolap.cli.main import MOUNTS, load

ROOT = Path(__file__).resolve().parents[2]
_OTHERS = (("agent", "serve"), ("airflow-settings", "apply"), ("stream-load", "serve"), ("storage", "serve"))
COMMANDS = {*RTOLAP_OPTIONS, *_OTHERS}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    return content


def words_of(service: dict[str, Any]) -> list[list[str]]:
    """The commands that a service runs, split into words."""
    command = [str(word) for word in service.get("command", ())]
    if command[:2] != ["sh", "-c"]:
        return [command]
    return [part.split() for part in command[2].split("&&")]


def test_every_command_of_the_compose_file_exists(compose: dict[str, Any]) -> None:
    used = [words for service in compose["services"].values() for words in words_of(service)]
    ours = {(words[1], words[2]) for words in used if words[:1] == ["rtolap"]}
    assert ours == {
        ("coordinator", "serve"),
        ("agent", "serve"),
        ("query", "serve"),
        ("stream-load", "serve"),
        ("storage", "serve"),
        ("airflow-settings", "apply"),
    }
    assert ours <= COMMANDS
    for group, command in ours:
        if group in MOUNTS:
            assert command in load(group).commands


def test_nothing_is_published_beyond_the_hosts_loopback(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_service_depends_on_services_that_exist(compose: dict[str, Any]) -> None:
    names = set(compose["services"])
    for service in compose["services"].values():
        assert set(service.get("depends_on", ())) <= names
        assert service.get("network_mode", "service:net") == "service:net"


def test_settings_in_the_compose_file_are_settings(compose: dict[str, Any]) -> None:
    known = {f"RTOLAP_{name.upper()}" for name in Settings.model_fields}
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    used = set(re.findall(r"\bRTOLAP_[A-Z_]+\b", dockerfile))
    for service in compose["services"].values():
        used |= {name for name in service.get("environment", {}) if name.startswith("RTOLAP_")}
    assert used <= known


def test_the_image_copies_what_exists_and_does_not_run_as_root() -> None:
    lines = (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    instructions = [line.split() for line in lines if line and not line.startswith("#")]
    assert instructions[0][0] == "FROM"
    assert ":" in instructions[0][1]
    assert ["USER", "rtolap"] in instructions
    for words in instructions:
        if words[0] == "COPY":
            for source in words[1:-1]:
                # The README belongs to the release, everything else to the checkout.
                assert source == "README.md" or (ROOT / source).exists(), source


def test_the_shipped_settings_are_what_the_hook_and_the_dags_read(tmp_path: Path) -> None:
    settings = read_settings(ROOT / "airflow_settings.yaml")
    connection = settings.connections["rtolap_default"]

    given = Connection(
        conn_id="rtolap_default",
        conn_type=connection["conn_type"],
        host=connection["host"],
        port=connection["port"],
        extra=connection["extra"],
    )
    (tmp_path / "token").write_text("t")
    found = from_connection(given, Settings(token_file=tmp_path / "token"))
    assert found.coordinator_urls == ("http://127.0.0.1:7070",)
    assert len(RECEIVERS.parse(json.loads(settings.variables[RECEIVERS.variable]), "the file")) == 2
    assert "password" not in connection


class AstroConnection(msgspec.Struct, forbid_unknown_fields=True):
    """`Connection` of the Astro command line's `settings/types.go`; nil decodes to the zero value."""

    conn_id: str
    conn_type: str
    conn_host: str | None = None
    conn_schema: str | None = None
    conn_login: str | None = None
    conn_password: str | None = None
    conn_port: int | None = None
    conn_uri: str | None = None
    conn_extra: str | None = None  # `interface{}` there, which splits a map's keys at dots


class AstroPool(msgspec.Struct, forbid_unknown_fields=True):
    pool_name: str
    pool_slot: int
    pool_description: str | None = None


class AstroVariable(msgspec.Struct, forbid_unknown_fields=True):
    variable_name: str
    variable_value: str


class AstroAirflow(msgspec.Struct, forbid_unknown_fields=True):
    connections: list[AstroConnection] = []
    pools: list[AstroPool] = []
    variables: list[AstroVariable] = []


class AstroConfig(msgspec.Struct, forbid_unknown_fields=True):
    airflow: AstroAirflow


def test_the_shipped_settings_decode_with_the_types_of_astros_command_line() -> None:
    text = (ROOT / "airflow_settings.yaml").read_text()
    astro = msgspec.convert(yaml.safe_load(text), AstroConfig).airflow
    ours = read_settings(ROOT / "airflow_settings.yaml")
    assert {one.conn_id for one in astro.connections} == set(ours.connections)
    for connection in astro.connections:
        if connection.conn_extra:
            assert isinstance(json.loads(connection.conn_extra), dict)
            assert connection.conn_extra == ours.connections[connection.conn_id]["extra"]
    assert {one.variable_name: one.variable_value for one in astro.variables} == ours.variables
    # it writes each value between single quotes, for a shell
    assert "'" not in "".join(
        [
            *(one.conn_extra or "" for one in astro.connections),
            *(one.variable_value for one in astro.variables),
        ]
    )


@pytest.mark.parametrize(
    "entry",
    [
        "variables:\n  - {variable_name: a, variable_value: [1]}",
        "variables:\n  - {variable_name: a, variable_value: {b: c}}",
        "connections:\n  - {conn_id: a, conn_type: b, conn_extra: {c: s3cret}}",
        "connections:\n  - {conn_id: a, conn_type: b, conn_password: 5}",
        "connections:\n  - {conn_id: a, conn_type: b, conn_port: '7070'}",
        "pools:\n  - {pool_name: a, pool_slot: true}",
    ],
)
def test_what_astros_decoder_refuses_is_refused_by_name(entry: str, tmp_path: Path) -> None:
    text = f"airflow:\n  {entry}\n"
    with pytest.raises((msgspec.ValidationError, AssertionError)):
        msgspec.convert(yaml.safe_load(text), AstroConfig)
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(DefinitionError, match=r"s\.yaml, airflow\.\w+, entry 1: \w+; expec") as refused:
        read_settings(tmp_path / "s.yaml")
    assert "s3cret" not in str(refused.value)


def test_settings_are_imported_through_private_files() -> None:
    seen: dict[str, Any] = {}

    def run(arguments: list[str]) -> None:
        path = Path(arguments[-1])
        assert path.stat().st_mode & 0o077 == 0
        seen[" ".join(arguments[:-1])] = json.loads(path.read_text())

    import_into(read_settings(ROOT / "airflow_settings.yaml"), run)
    assert set(seen) == {"connections import --overwrite", "variables import"}
    assert "rtolap_default" in seen["connections import --overwrite"]


@pytest.mark.parametrize(
    "text",
    [
        "- a",
        "airflow: 3",
        "airflow:\n  pools: x",
        "airflow:\n  connections:\n  - {conn_id: a, colour: red}",
        "a: [",
    ],
)
def test_a_wrong_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(DefinitionError, match=r"s\.yaml"):
        read_settings(tmp_path / "s.yaml")

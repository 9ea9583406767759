"""Tests of what the stack writes: server configuration, variables, secrets."""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError, Refused
from rtolap.base.settings import Settings
from rtolap.base.users import password_hash
from rtolap.stack.components import COMPONENTS, needed_first
from rtolap.stack.environment import airflow_env, load_line, mysql_line, rtolap_settings, write_env_file
from rtolap.stack.layout import StackLayout
from rtolap.stack.lifecycle import Stack, checked_names
from rtolap.stack.secrets import ensure_secrets, read_secret
from rtolap.stack.servers.kafka import kafka_config
from rtolap.stack.servers.zookeeper import zookeeper_config
from rtolap.stack.state import DEFAULT_PORTS, StackState, load_state, save_state


@pytest.fixture
def layout(tmp_path: Path) -> StackLayout:
    made = StackLayout(tmp_path / "a stack")
    ensure_secrets(made)
    return made


def test_servers_listen_on_loopback_only(tmp_path: Path) -> None:
    assert "clientPortAddress=127.0.0.1\n" in zookeeper_config(tmp_path, 1)
    config = kafka_config(tmp_path, 1, 2, {})
    assert "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\n" in config


def test_overrides_replace_kafka_settings(tmp_path: Path) -> None:
    config = kafka_config(tmp_path, 1, 2, {"offsets.topic.num.partitions": 1})
    assert config.count("offsets.topic.num.partitions=") == 1
    assert "offsets.topic.num.partitions=1\n" in config


def test_secrets_are_made_once_and_private(layout: StackLayout) -> None:
    token = read_secret(layout, "token")
    ensure_secrets(layout)
    assert read_secret(layout, "token") == token
    assert len(read_secret(layout, "airflow-jwt")) >= 64
    for path in layout.secrets.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    assert stat.S_IMODE(layout.secrets.stat().st_mode) == 0o700


def test_the_users_file_holds_the_double_hash_of_the_sql_password(layout: StackLayout) -> None:
    expected = f"rtolap:{password_hash(read_secret(layout, 'sql-password'))}:define\n"
    assert layout.secret("users").read_text() == expected
    assert password_hash("a") == "bf5d3affb73efd2ec6c36ad3112dd933efed63c4e1cbffcfa88e2759c144f2d8"


def test_curl_finds_the_sql_password_in_a_file(layout: StackLayout) -> None:
    password = read_secret(layout, "sql-password")
    assert read_secret(layout, "netrc") == f"machine 127.0.0.1 login rtolap password {password}"
    assert password not in load_line(layout, DEFAULT_PORTS)


def test_settings_name_every_port_and_hold_no_secret(layout: StackLayout) -> None:
    variables = rtolap_settings(layout, DEFAULT_PORTS)
    values = {name.removeprefix("RTOLAP_").lower(): value for name, value in variables.items()}
    settings = Settings(**values)  # type: ignore[arg-type]
    assert settings.kafka == "127.0.0.1:9092"
    assert settings.agent_port == 7060
    assert settings.token() == read_secret(layout, "token")
    assert set(values) <= set(Settings.model_fields)
    for secret in ("token", "sql-password"):
        assert read_secret(layout, secret) not in json.dumps(variables)


def test_airflow_gets_loopback_its_connections_and_no_secret(layout: StackLayout) -> None:
    env = airflow_env(layout, rtolap_settings(layout, DEFAULT_PORTS), DEFAULT_PORTS)
    assert env["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert env["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:8081/execution/"
    connection = json.loads(env["AIRFLOW_CONN_RTOLAP_DEFAULT"])
    assert (connection["conn_type"], connection["port"]) == ("rtolap", 7070)
    assert "password" not in connection
    for path in layout.secrets.iterdir():
        assert read_secret(layout, path.name) not in json.dumps(env), path.name
    for option in ("CORE__FERNET_KEY", "API__SECRET_KEY", "API_AUTH__JWT_SECRET"):
        command = shlex.split(env[f"AIRFLOW__{option}_CMD"])
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert len(said.strip()) > 40
    assert connection["extra"]["agent_url"] == "http://127.0.0.1:7060"


def test_the_env_file_gives_a_shell_the_same_values(layout: StackLayout) -> None:
    settings = rtolap_settings(layout, DEFAULT_PORTS)
    write_env_file(layout, settings, DEFAULT_PORTS)
    assert stat.S_IMODE(layout.env_file.stat().st_mode) == 0o600
    done = subprocess.run(
        ["/bin/sh", "-c", '. "$0" && printf %s "$RTOLAP_DATA_DIR"', str(layout.env_file)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == settings["RTOLAP_DATA_DIR"]


def test_the_mysql_line_names_the_password_file_and_not_the_password(layout: StackLayout) -> None:
    line = mysql_line(layout, DEFAULT_PORTS)
    assert read_secret(layout, "sql-password") not in line
    assert "-P 7306 -u rtolap" in line


def test_the_state_survives_a_round_trip(layout: StackLayout) -> None:
    assert load_state(layout) is None
    state = StackState(dict(DEFAULT_PORTS), ("zookeeper",), rtolap_settings(layout, DEFAULT_PORTS))
    save_state(layout, state)
    assert load_state(layout) == state


def test_a_part_of_the_stack_waits_only_for_what_is_started_too() -> None:
    assert needed_first({"kafka", "coordinator"})["coordinator"] == frozenset({"kafka"})
    order = list(COMPONENTS)
    for component in COMPONENTS.values():
        assert all(order.index(need) < order.index(component.name) for need in component.needs)


def test_an_unknown_component_is_refused_by_name() -> None:
    with pytest.raises(DefinitionError, match="zookeper"):
        checked_names(["zookeper"])


def test_the_query_service_reads_on_spark_only_where_spark_is_asked_for(layout: StackLayout) -> None:
    assert "RTOLAP_HISTORY_SPARK" not in rtolap_settings(layout, DEFAULT_PORTS)
    with_spark = rtolap_settings(layout, DEFAULT_PORTS, spark=True)
    assert with_spark["RTOLAP_HISTORY_SPARK"] == f"sc://localhost:{DEFAULT_PORTS['spark']}"


def test_the_ledger_is_in_a_file_unless_mariadb_is_asked_for(layout: StackLayout) -> None:
    in_a_file = rtolap_settings(layout, DEFAULT_PORTS)
    assert in_a_file["RTOLAP_LEDGER"] == f"sqlite:///{layout.data}/ledger.db"
    on_a_server = rtolap_settings(layout, DEFAULT_PORTS, mariadb=True)
    assert on_a_server["RTOLAP_LEDGER"] == f"mysql://rtolap@127.0.0.1:{DEFAULT_PORTS['mariadb']}/rtolap"
    assert on_a_server["RTOLAP_LEDGER_PASSWORD_FILE"] == str(layout.secret("mariadb-password"))
    assert read_secret(layout, "mariadb-password") not in str(on_a_server)


def test_a_stack_keeps_the_database_of_its_stored_tables(layout: StackLayout) -> None:
    settings = rtolap_settings(layout, DEFAULT_PORTS)
    before = StackState(
        dict(DEFAULT_PORTS), ("mariadb", "stream-load"), settings | {"RTOLAP_LEDGER": "mysql://x"}
    )
    save_state(layout, before)
    with pytest.raises(Refused, match="in another database"):
        Stack(layout).up(("stream-load",), {}, lambda name, phase, note: None)

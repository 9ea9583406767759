"""Where the clients' addresses come from; the receivers that are declared; the provider's form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import airflow
import jsonschema  # type: ignore[import-untyped,unused-ignore]
import pytest
from airflow.sdk.definitions.connection import Connection
from rtolap.airflow.declared import RECEIVERS
from rtolap.airflow.hooks.connection import from_connection, from_settings
from rtolap.airflow.provider import get_provider_info
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "token").write_text("file-token\n")
    return Settings(token_file=tmp_path / "token", coordinator_port=7171, agent_port=7161)


def connection(**fields: Any) -> Connection:
    return Connection(conn_id="c", conn_type="rtolap", **fields)


def test_settings_serve_where_there_is_no_connection(settings: Settings) -> None:
    found = from_settings(settings)
    assert found.coordinator_urls == ("http://127.0.0.1:7171",)
    assert (found.agent_url, found.token) == ("http://127.0.0.1:7161", "file-token")


def test_a_connection_names_several_coordinators_an_agent_and_a_token(settings: Settings) -> None:
    extra = json.dumps({"coordinator_urls": "http://a:1, http://b:2", "agent_url": "http://h:3"})
    found = from_connection(connection(password="secret", extra=extra), settings)
    assert found.coordinator_urls == ("http://a:1", "http://b:2")
    assert (found.agent_url, found.token) == ("http://h:3", "secret")
    assert "secret" not in repr(found)


def test_host_and_port_name_one_coordinator(settings: Settings) -> None:
    found = from_connection(connection(host="10.0.0.5", port=7070), settings)
    assert found.coordinator_urls == ("http://10.0.0.5:7070",)
    assert (found.agent_url, found.token) == ("http://10.0.0.5:7161", "file-token")


def test_an_address_that_is_none_is_refused(settings: Settings) -> None:
    with pytest.raises(DefinitionError, match="http://host:port"):
        from_connection(connection(extra=json.dumps({"agent_url": "file:///etc/passwd"})), settings)


def test_the_provider_describes_itself_as_airflow_wants() -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    info = get_provider_info()
    jsonschema.validate(info, schema)
    fields = info["connection-types"][0]["conn-fields"]
    assert set(fields) == {"coordinator_urls", "agent_url"}


def test_receivers_come_from_the_variable_the_file_or_the_default(tmp_path: Path) -> None:
    assert [r["receiver_id"] for r in RECEIVERS.declared(None, tmp_path)] == ["r0", "r1"]
    (tmp_path / "receivers.yaml").write_text("receivers:\n- {id: a, replica_set: x, port: 1}\n")
    assert RECEIVERS.declared(None, tmp_path) == [
        {"receiver_id": "a", "replica_set": "x", "port": 1, "bounds": {}}
    ]
    assert RECEIVERS.declared([{"id": "b", "replica_set": "y"}], tmp_path)[0]["port"] == 0
    assert RECEIVERS.declared([], tmp_path) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        "r0",
        [{"id": "a"}],
        [{"id": "../a", "replica_set": "x"}],
        [{"id": "a", "replica_set": "x", "port": -1}],
        [{"id": "a", "replica_set": "x"}, {"id": "a", "replica_set": "y"}],
        [{"id": "a", "replica_set": "x", "more": 1}],
        [{"id": "a", "replica_set": "x", "bounds": {"flush": 1}}],
        [{"id": "a", "replica_set": "x", "bounds": {"flush_rows": "many"}}],
        [{"id": "a", "replica_set": "x", "bounds": ["--flush-rows"]}],
    ],
)
def test_a_wrong_declaration_is_named(wrong: object, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="Variable rtolap_receivers"):
        RECEIVERS.declared(wrong, tmp_path)

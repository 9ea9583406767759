"""Where the clients' addresses come from; the receivers that are declared; the provider's form."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import airflow
import jsonschema  # type: ignore[import-untyped,unused-ignore]
import pytest
from airflow.sdk.definitions.connection import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from rtolap.airflow.declared import RECEIVERS
from rtolap.airflow.hooks.connection import Endpoints, from_connection, from_settings
from rtolap.airflow.hooks.rtolap import RtolapHook
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


def test_front_ends_and_the_query_service_are_those_of_the_connection(settings: Settings) -> None:
    extra = {"stream_load_urls": "http://f:1, http://g:2", "query_url": "http://q:3"}
    found = from_connection(connection(host="a", password="secret", extra=json.dumps(extra)), settings)
    assert (found.front_ends(), found.query_service()) == (("http://f:1", "http://g:2"), "http://q:3")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"password": "another"},  # it names no coordinator: the settings' own
        {"host": "127.0.0.1", "port": 7171, "password": "another"},
        {"extra": json.dumps({"coordinator_urls": "http://127.0.0.1:7171/"}), "password": "another"},
        {"host": "elsewhere", "password": "file-token"},
        {"host": "elsewhere"},  # with the settings' token
    ],
)
def test_a_connection_to_the_settings_own_cluster_is_completed_by_them(
    fields: dict[str, Any], settings: Settings
) -> None:
    found = from_connection(connection(**fields), settings)
    assert found.front_ends() == settings.stream_load_urls()
    assert found.query_service() == settings.query_url()


OWN = "own"  # the host of everything that the settings name
_URL = st.builds("http://{}:{}".format, st.sampled_from(["x", "y", OWN]), st.sampled_from([1, 2]))
_URLS = st.lists(_URL, max_size=2).map(", ".join)
CALLS: tuple[Callable[[Endpoints], str | tuple[str, ...]], ...] = (
    Endpoints.agent,
    Endpoints.front_ends,
    Endpoints.query_service,
    lambda found: found.loader_url(9),
)


@hypothesis_settings(max_examples=400)
@given(
    host=st.sampled_from([None, None, "x", OWN]),
    port=st.sampled_from([None, 1]),
    password=st.sampled_from(["another", None, "own-token", "another"]),
    extra=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("coordinator_urls", "stream_load_urls"), _URLS)
        | dict.fromkeys(("agent_url", "query_url"), _URL),
    ),
)
def test_a_token_of_another_cluster_goes_to_no_address_that_only_the_settings_name(
    host: str | None,
    port: int | None,
    password: str | None,
    extra: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    token_file = tmp_path_factory.getbasetemp() / "own-token"
    token_file.write_text("own-token")
    ports = {"coordinator_port": 1, "agent_port": 2, "query_http_port": 3, "stream_load_port": 4}
    settings = Settings(token_file=token_file, host=OWN, **ports)  # type: ignore[arg-type]
    found = from_connection(
        connection(host=host, port=port, password=password, extra=json.dumps(extra)), settings
    )
    leads_away = set(found.coordinator_urls) - set(settings.coordinator_urls())
    for call in CALLS:
        try:
            asked = call(found)
        except DefinitionError:
            assert leads_away
            assert found.token == "another"
            continue
        for url in (asked,) if isinstance(asked, str) else asked:
            is_named = url in ", ".join(extra.values()) or f"//{host}:" in url
            is_loader = url.endswith(":9")  # on the host of the agent, which another call is about
            assert is_named or is_loader or not leads_away or found.token == "own-token"


def test_an_address_that_is_none_is_refused(settings: Settings) -> None:
    with pytest.raises(DefinitionError, match="http://host:port"):
        from_connection(connection(extra=json.dumps({"agent_url": "file:///etc/passwd"})), settings)


def test_the_provider_describes_itself_as_airflow_wants() -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    info = get_provider_info()
    jsonschema.validate(info, schema)
    fields = info["connection-types"][0]["conn-fields"]
    assert set(fields) == {"coordinator_urls", "agent_url", "stream_load_urls", "query_url"}


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


def test_variables_that_serve_for_a_connection_that_is_not_seen_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def unseen(_: RtolapHook, conn_id: str) -> object:
        raise AirflowNotFoundException(conn_id)

    monkeypatch.setattr(RtolapHook, "get_connection", unseen)
    monkeypatch.setattr(RtolapHook, "log", logging.getLogger("rtolap.test_connection"), raising=False)
    (tmp_path / "token").write_text("file-token")
    monkeypatch.setenv("RTOLAP_TOKEN_FILE", str(tmp_path / "token"))
    with caplog.at_level(logging.INFO, logger="rtolap.test_connection"):
        assert RtolapHook().endpoints.coordinator_urls == Settings().coordinator_urls()
    assert "connection rtolap_default is not seen here" in caplog.text
    with pytest.raises(AirflowNotFoundException):
        RtolapHook("another").endpoints  # noqa: B018

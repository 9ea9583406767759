"""A statement's warnings reach every client: MySQL's, HTTP's, PEP 249's and the command line's."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pyarrow as pa
import pymysql
import pytest
from rtolap import dbapi
from rtolap.cli import sql
from rtolap.protocols.query.client import QueryClient
from rtolap.protocols.query.messages import ARROW_STREAM
from rtolap.query.http.answers import WARNINGS_KEY
from typer.testing import CliRunner

from tests.support.query.query_endpoints import TOKEN, Endpoints

pytestmark = pytest.mark.integration

WARNS = "select count(distinct passenger) n from flights"
QUIET = "select count(*) n from flights"


def shown(cursor: pymysql.cursors.Cursor, statement: str) -> tuple[tuple[object, ...], ...]:
    cursor.execute(statement)
    return tuple(cursor.fetchall())


def test_mysql_counts_and_lists_them_until_the_next_statement(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection, connection.cursor() as cursor:
        cursor.execute(WARNS)
        assert connection._result is not None
        assert connection._result.warning_count == 1
        ((level, number, message),) = shown(cursor, "show warnings")
        assert (level, int(str(number))) == ("Note", 30003)
        assert "COUNT(DISTINCT passenger) is approximate" in str(message)
        assert shown(cursor, "show count(*) warnings") == ((1,),)
        assert shown(cursor, "select @@warning_count") == ((1,),)
        assert shown(cursor, "select @@session.warning_count") == ((1,),)
        assert shown(cursor, "show errors") == ()
        assert len(shown(cursor, "show warnings limit 5")) == 1, "asking for them does not clear them"
        assert len(shown(cursor, "show warnings limit 0")) == 0
        cursor.execute(QUIET)
        assert connection._result.warning_count == 0
        assert shown(cursor, "show warnings") == ()
        assert shown(cursor, "select @@warning_count") == ((0,),)


def test_mysql_lists_an_error_until_the_next_statement(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection, connection.cursor() as cursor:
        with pytest.raises(pymysql.err.ProgrammingError):
            cursor.execute("select count(*) from nope")
        assert shown(cursor, "select @@error_count") == ((1,),)
        ((level, number, _),) = shown(cursor, "show errors")
        assert (level, int(str(number))) == ("Error", 1146)
        cursor.execute(QUIET)
        assert shown(cursor, "show warnings") == ()


def test_http_answers_carry_them_in_json_and_in_arrow(endpoints: Endpoints) -> None:
    with QueryClient(endpoints.http_url, token=TOKEN) as client:
        (warning,) = client.query(WARNS).warnings
        assert client.query(QUIET).warnings == ()
    assert (warning.code, warning.level) == ("approximate", "Note")
    response = httpx.post(
        f"{endpoints.http_url}/api/v1/query",
        json={"sql": WARNS},
        headers={"Authorization": f"Bearer {TOKEN}", "Accept": ARROW_STREAM},
        trust_env=False,
    )
    schema = pa.ipc.open_stream(response.content).schema
    assert [one["message"] for one in json.loads(schema.metadata[WARNINGS_KEY])] == [warning.message]


def test_pep_249_keeps_them_as_the_messages_of_the_last_statement(endpoints: Endpoints) -> None:
    with dbapi.connect(endpoints.http_url, token=TOKEN) as connection:
        cursor = connection.cursor()
        cursor.execute(WARNS)
        ((kind, message),) = cursor.messages
        assert kind is dbapi.Warning
        assert isinstance(message, dbapi.Warning)
        assert (message.code, "approximate" in str(message)) == ("approximate", True)
        cursor.execute(QUIET)
        assert cursor.messages == []


def test_the_command_line_tells_them_on_stderr_and_in_its_json(
    endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("RTOLAP_HOST", "127.0.0.1")
    monkeypatch.setenv("RTOLAP_QUERY_HTTP_PORT", str(endpoints.http_port))
    monkeypatch.setenv("RTOLAP_TOKEN_FILE", str(tmp_path / "token"))
    plain = CliRunner().invoke(sql.app, ["-e", WARNS])
    assert plain.exit_code == 0, plain.output
    assert "approximate" in plain.stderr
    assert "approximate" not in plain.stdout
    as_json = CliRunner().invoke(sql.app, ["-e", WARNS, "--json"])
    assert [one["code"] for one in json.loads(as_json.stdout)["warnings"]] == ["approximate"]

"""HTTP: JSON, Arrow, credentials, errors, and the PEP 249 module over it."""

from __future__ import annotations

import json

import httpx
import pyarrow as pa
import pytest
from rtolap.base.errors import QueryError, QueryTimeout, Unauthorized
from rtolap.dbapi import ProgrammingError, connect
from rtolap.protocols.query.client import QueryClient
from rtolap.protocols.query.messages import ARROW_STREAM
from rtolap.query.http.answers import POSITIONS_KEY

from tests.support.cubes.flights import CARRIERS
from tests.support.query.query_endpoints import PASSWORD, SLOW, TOKEN, USER, Endpoints

pytestmark = pytest.mark.integration


def test_health_needs_no_credentials(endpoints: Endpoints) -> None:
    with QueryClient(endpoints.http_url) as client:
        assert client.health() == {"status": "ok", "role": "query"}


@pytest.mark.parametrize(
    "credentials",
    [{}, {"token": "wrong"}, {"user": USER, "password": "wrong"}, {"user": "x", "password": ""}],
)
def test_wrong_credentials_are_refused(endpoints: Endpoints, credentials: dict[str, str]) -> None:
    with QueryClient(endpoints.http_url, **credentials) as client, pytest.raises(Unauthorized):
        client.query("select 1")


@pytest.mark.parametrize("header", [b"Basic \xe9", b"Basic ===", b"Basic /w==", b"Bearer \xe9"])
def test_credentials_that_cannot_be_read_are_refused(endpoints: Endpoints, header: bytes) -> None:
    answer = httpx.post(
        f"{endpoints.http_url}/api/v1/query",
        json={"sql": "select 1"},
        headers={b"authorization": header},
        trust_env=False,
    )
    assert answer.status_code == 401


@pytest.mark.parametrize("credentials", [{"token": TOKEN}, {"user": USER, "password": PASSWORD}])
def test_json_answers_state_the_positions_they_hold(
    endpoints: Endpoints, credentials: dict[str, str]
) -> None:
    with QueryClient(endpoints.http_url, **credentials) as client:
        answer = client.query("select count(*) n, sum(delay) s from flights")
    assert answer.rows[0][0] == 400
    assert answer.positions == {"flights": endpoints.world.positions}
    assert [column.name for column in answer.columns] == ["n", "s"]


def test_parameters_by_place_and_by_name(endpoints: Endpoints) -> None:
    with QueryClient(endpoints.http_url, token=TOKEN) as client:
        by_place = client.query("select count(*) from flights where carrier = ? and gate = ?", ["AA", 1])
        by_name = client.query(
            "select count(*) from flights where carrier = :c and gate = :g", {"c": "AA", "g": 1}
        )
        injected = client.query("select count(*) from flights where carrier = ?", ["' or 1=1 -- "])
    assert by_place.rows == by_name.rows
    assert injected.rows == ((0,),)


def test_arrow_stream_carries_positions(endpoints: Endpoints) -> None:
    response = httpx.post(
        f"{endpoints.http_url}/api/v1/query",
        json={"sql": "select carrier, sum(price) p from flights group by carrier"},
        headers={"Authorization": f"Bearer {TOKEN}", "Accept": ARROW_STREAM},
    )
    table = pa.ipc.open_stream(response.content).read_all()
    assert table.num_rows == len({*CARRIERS, None})
    assert set(json.loads(table.schema.metadata[POSITIONS_KEY])) == {"flights"}


def test_errors_travel_with_their_kind(endpoints: Endpoints) -> None:
    with QueryClient(endpoints.http_url, token=TOKEN) as client:
        with pytest.raises(QueryError, match="unknown table"):
            client.query("select count(*) from nope")
        with pytest.raises(QueryTimeout):
            client.query(SLOW, timeout_ms=300)


def test_explain_analyze_shows_what_was_done(endpoints: Endpoints) -> None:
    with QueryClient(endpoints.http_url, token=TOKEN) as client:
        rows = dict(client.query("explain analyze select count(*) from flights where carrier = 'AA'").rows)
    assert rows["cube"] == "flights"
    assert "carrier" in rows["pushed filter"]
    assert rows["cuboid"] != "none"
    assert rows["receivers"].count("rs-") >= 2
    assert json.loads(rows["positions"]) == {str(p): o for p, o in endpoints.world.positions.items()}


def test_db_api(endpoints: Endpoints) -> None:
    with connect(endpoints.http_url, token=TOKEN) as connection:
        cursor = connection.cursor()
        cursor.execute(
            "select carrier, count(*) from flights where gate = ? group by carrier order by 1", (1,)
        )
        assert [column[0] for column in cursor.description or ()] == ["carrier", "count(*)"]
        first = cursor.fetchone()
        assert first is not None
        assert len(cursor.fetchall()) == cursor.rowcount - 1
        with pytest.raises(ProgrammingError):
            cursor.execute("select nope from flights")

"""The page's statements: through the routes to a query service's HTTP endpoint, as the person who asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pytest
from airflow.api_fastapi.core_api.security import get_user
from fastapi import HTTPException
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from rtolap.airflow.hooks.connection import Endpoints
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.page import ask, ask_routes
from rtolap.airflow.page.ask import AskAnswer, KnownTables, PastStatement, PastStatements, Turns
from rtolap.airflow.page.rights import asker, reader
from rtolap.airflow.plugin import app
from rtolap.base.errors import TooManyAtOnce
from rtolap.protocols.query.messages import ON_BEHALF_HEADER, QueryAnswer, QueryColumn

from tests.support.cubes.flights import flights_world
from tests.support.query.query_endpoints import PASSWORD, SLOW, TOKEN, USER, open_endpoints
from tests.support.query.query_endpoints import Endpoints as QueryEndpoints
from tests.support.scrape import Scrape
from tests.support.waiting import result_of, until

MARKUP = "<img src=x onerror=document.title='hurt'>"
PATHS = tuple(
    (route.path, min(route.methods or {"GET"}))
    for route in ask_routes.router.routes
    if isinstance(route, APIRoute)
)


class Person:
    def __init__(self, name: str) -> None:
        self._name = name

    def get_name(self) -> str:
        return self._name


@pytest.fixture(scope="module")
def service() -> Iterator[QueryEndpoints]:
    with contextlib.closing(flights_world(7, 800)) as world, open_endpoints(world) as opened:
        yield opened


@pytest.fixture
def page(service: QueryEndpoints, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    led_to(service.http_url, monkeypatch)
    signed_in("ada", monkeypatch)
    return TestClient(app)


def led_to(query_url: str, monkeypatch: pytest.MonkeyPatch, token: str = TOKEN) -> None:
    found = Endpoints(("http://127.0.0.1:1",), "", (), query_url, token)
    monkeypatch.setattr(RtolapHook, "endpoints", found)


def signed_in(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(app.dependency_overrides, reader, lambda: None)
    monkeypatch.setitem(app.dependency_overrides, asker, lambda: None)
    monkeypatch.setitem(app.dependency_overrides, get_user, lambda: Person(name))


def asked(page: TestClient, sql: str, **more: str) -> httpx.Response:
    return page.post("/page/ask/answers", json={"sql": sql, **more})


def answered(page: TestClient, sql: str, **more: str) -> AskAnswer:
    answer = asked(page, sql, **more)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return msgspec.json.decode(answer.content, type=AskAnswer)


def running(service: QueryEndpoints) -> float:
    registry = service.service.metrics.registry
    return Scrape(registry.render()[0].decode())("rtolap_query_queries_running")


def past(page: TestClient) -> list[PastStatement]:
    answer = page.get("/page/ask/history")
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=PastStatements).statements


def test_an_answer_has_columns_rows_and_warnings_and_does_not_go_back(page: TestClient) -> None:
    found = answered(page, f'select count(*) as n, null as nothing, "{MARKUP}" as text from flights')
    assert [column.name for column in found.columns] == ["n", "nothing", "text"]
    assert [row[1:] for row in found.rows] == [[None, MARKUP]]
    assert not found.cut
    again = answered(page, "select count(*) as n from flights", session_token=found.session_token)
    assert again.rows[0][0] == found.rows[0][0]
    warned = answered(page, "select count(distinct passenger) n from flights")
    assert [warning.code for warning in warned.warnings] == ["approximate"]


def test_rows_beyond_the_limit_are_cut_and_that_is_said(
    page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "select carrier, origin, count(*) as n from flights group by carrier, origin order by 1, 2"
    whole = answered(page, sql)
    assert len(whole.rows) > 5
    for limit in (1, 4, len(whole.rows) - 1, len(whole.rows), len(whole.rows) + 1):
        monkeypatch.setattr(ask, "ROWS_MAX", limit)
        monkeypatch.setattr(ask, "SHOWN", ask.SHOWN._replace(rows_max=limit + 1))
        monkeypatch.setattr(ask, "DOWNLOADED", ask.DOWNLOADED._replace(rows_max=limit))
        found = answered(page, sql)
        assert found.rows == whole.rows[:limit]
        assert found.cut is (limit < len(whole.rows))
        answer = page.post("/page/ask/arrow", json={"sql": sql})
        table = pa.ipc.open_stream(answer.content).read_all()
        assert [list(row.values()) for row in table.to_pylist()] == found.rows


def test_an_answer_of_too_many_bytes_is_an_error_that_says_how_many(
    page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "SHOWN", ask.SHOWN._replace(bytes_max=100 << 10))
    answer = asked(
        page, "select repeat('x', 60000) as t, carrier, origin, count(*) as n from flights group by 2, 3"
    )
    assert answer.status_code == 413, answer.text
    assert "at most 100 KiB" in answer.json()["message"]


def test_errors_come_in_the_words_of_the_service(page: TestClient) -> None:
    for sql, status, words in (
        ("select nope from flights", 400, "nope"),
        ("selec 1", 400, "bad SQL"),
        ("", 400, "the statement is empty"),
        ("select 1 from nowhere.t", 400, "nowhere"),
    ):
        answer = asked(page, sql)
        assert (answer.status_code, words in answer.json()["message"]) == (status, True), answer.text


@pytest.mark.parametrize(
    "sql",
    [
        "create database taken",
        "drop table named.t",
        "/* x */ truncate table named.t",
        "create table named.t (id int not null) duplicate key(id)",
        "alter table named.t add column x int",
    ],
)
def test_nobody_defines_anything_although_the_connection_has_the_clusters_token(
    page: TestClient, sql: str
) -> None:
    answer = asked(page, sql)
    assert answer.status_code == 403, answer.text
    assert "airflow:ada" in answer.json()["message"]


def test_each_person_sees_their_own_statements(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, failed = "select 11 as mine", "select nope from flights"
    answered(page, mine)
    asked(page, failed)
    found = {each.sql: each for each in past(page)}
    assert (found[mine].outcome, found[mine].rows) == ("ok", 1)
    assert found[failed].outcome == "unknown_column"
    assert "nope" in found[failed].error
    signed_in("bob' or user_name = 'airflow:ada", monkeypatch)
    assert past(page) == []
    answered(page, "select 12 as other")
    assert [each.sql for each in past(page)] == ["select 12 as other"]
    signed_in("ada", monkeypatch)
    assert "select 12 as other" not in {each.sql for each in past(page)}


def test_the_catalogue_names_tables_with_their_columns(
    page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = msgspec.json.decode(page.get("/page/ask/catalogue").content, type=KnownTables)
    (flights,) = [table for table in found.tables if table.name == "flights"]
    assert flights.db == "rtolap"
    assert {"carrier", "origin"} <= {column.name for column in flights.columns}
    assert not found.cut
    monkeypatch.setattr(ask, "COLUMNS_MAX", 3)
    monkeypatch.setattr(ask, "CATALOGUE", ask.CATALOGUE._replace(rows_max=4))
    found = msgspec.json.decode(page.get("/page/ask/catalogue").content, type=KnownTables)
    assert (sum(len(table.columns) for table in found.tables), found.cut) == (3, True)


def test_a_browser_that_goes_away_ends_its_statement_in_the_query_service(
    page: TestClient, service: QueryEndpoints
) -> None:
    body = json.dumps({"sql": SLOW}).encode()
    sent: list[dict[str, Any]] = []

    async def gone_once_it_runs() -> None:
        first = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, Any]:
            for message in first:
                return message
            await asyncio.to_thread(until, lambda: running(service), "the statement runs")
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/page/ask/answers",
            "raw_path": b"/page/ask/answers",
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"testserver")],
            "scheme": "http",
            "http_version": "1.1",
            "server": ("testserver", 80),
            "client": ("127.0.0.1", 1),
        }
        await app(scope, receive, send)

    asyncio.run(gone_once_it_runs())
    assert sent[0]["status"] == 499

    def ended() -> PastStatement:
        return next(each for each in past(page) if each.sql == SLOW)

    assert result_of(ended, StopIteration).outcome == "query_interrupted"
    until(lambda: not running(service), "nothing runs")
    assert ask_routes._turns.running() == ()


def test_two_statements_of_a_person_run_at_once_and_a_third_is_refused() -> None:
    turns = Turns(at_once_max=2)
    with turns.taken("ada"), turns.taken("bob"):
        with turns.taken("ada"), pytest.raises(TooManyAtOnce, match="2 statements of yours"):
            turns.taken("ada").__enter__()
        with turns.taken("ada"):
            assert sorted(turns.running()) == ["ada", "bob"]
    assert turns.running() == ()


def test_a_service_that_is_down_is_said_and_so_is_a_token_that_it_does_not_know(
    page: TestClient, service: QueryEndpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    led_to("http://127.0.0.1:1", monkeypatch)
    calls = [asked(page, "select 1"), page.get("/page/ask/catalogue"), page.get("/page/ask/history")]
    for answer in calls:
        assert answer.status_code == 503
        assert "http://127.0.0.1:1 does not answer" in answer.json()["message"]
    led_to(service.http_url, monkeypatch, token="another")
    answer = asked(page, "select 1")
    assert answer.status_code == 502, "401 would be about the session with Airflow"
    assert "token" in answer.json()["message"]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"sql": "select 1"}', "text/plain", 422),
        (b"{", "application/json", 422),
        (b'{"sql": 1}', "application/json", 422),
        (b'{"sql": "select 1", "timeout_ms": 1}', "application/json", 422),
        (b'{"sql": "\xff"}', "application/json", 422),
        (b" " * (ask.BODY_BYTES_MAX + 1), "application/json", 413),
    ],
)
def test_what_is_no_request_is_refused(page: TestClient, content: bytes, kind: str, status: int) -> None:
    for path in ("answers", "arrow"):
        answer = page.post(f"/page/ask/{path}", content=content, headers={"content-type": kind})
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(("path", "method"), PATHS)
def test_who_may_see_the_page_alone_may_not_ask(
    path: str, method: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise HTTPException(status)

    signed_in("viewer", monkeypatch)
    monkeypatch.setitem(app.dependency_overrides, asker, refuse)
    assert TestClient(app).request(method, f"/page{path}", json={"sql": "select 1"}).status_code == status


def test_a_user_of_the_service_may_not_ask_for_others_and_no_service_asks_as_a_user(
    service: QueryEndpoints,
) -> None:
    url, body = f"{service.http_url}/api/v1/query", {"sql": "select 1"}
    own, token = {"auth": (USER, PASSWORD)}, {"Authorization": f"Bearer {TOKEN}"}
    found = httpx.post(url, json=body, headers={ON_BEHALF_HEADER: "airflow:ada"}, **own)  # type: ignore[arg-type]
    assert found.status_code == 403
    for named in (USER, ":ada", "airflow:", "Airflow:x", "airflow:%00", f"airflow:{'x' * 300}"):
        found = httpx.post(url, json=body, headers={**token, ON_BEHALF_HEADER: named})
        assert found.status_code == 422, named


@given(
    st.one_of(
        st.none(), st.text(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
    )
)
def test_every_value_reaches_a_browser_as_it_is(value: object) -> None:
    """A browser reads whole numbers as floats, exactly up to 2^53 - 1. What is not finite comes as a text."""
    found = ask.shown(QueryAnswer((QueryColumn("v", "t"),), ((value,),)), "").rows[0][0]
    if isinstance(value, int) and not isinstance(value, bool) and int(float(value)) != value:
        assert found == str(value)
    else:
        assert found in (value, str(value))
        assert type(found) in (type(value), str)
    read = json.loads(msgspec.json.encode(found), parse_int=float)
    assert str(value) == read if isinstance(found, str) and found != value else read == value

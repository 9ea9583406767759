from __future__ import annotations

import asyncio
import socket

import httpx
import pytest
from rtolap.base.errors import Unauthorized, Unavailable
from rtolap.coordinator.assembly import Coordinator
from rtolap.coordinator.server import build_app
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.protocols.coordinator.client import AsyncCoordinatorClient, CoordinatorClient
from rtolap.servers.limits import HttpLimits

from tests.support.cubes.coordinator_harness import NAME, TOKEN, URL, Cluster
from tests.support.cubes.metadata_contract import eventually
from tests.support.twins.metadata import MemoryStore

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def every_route(cluster: Cluster) -> list[tuple[str, str]]:
    paths = cluster.http.get("/openapi.json").json()["paths"]
    return [(method, path) for path, methods in paths.items() for method in methods]


def test_every_route_but_health_asks_for_the_token(cluster: Cluster) -> None:
    routes = every_route(cluster)
    assert len(routes) >= 35
    stranger = httpx.Client(transport=cluster.http._transport, base_url="http://testserver")
    for method, path in [*routes, ("get", "/openapi.json"), ("get", "/metrics")]:
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            response = stranger.request(method, path, headers=header)
            if path == "/health":
                assert response.status_code == 200
            else:
                assert response.status_code == 401, (method, path)
                assert response.json()["code"] == "unauthorized"


def test_errors_travel_as_what_they_are(cluster: Cluster) -> None:
    response = cluster.http.get(f"/api/v1/cubes/{NAME}")
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    response = cluster.http.post(f"/api/v1/cubes/{NAME}/purge", json={"before_ms": "never"})
    assert (response.status_code, response.json()["code"]) == (422, "definition")
    assert "before_ms" in response.json()["message"]
    response = cluster.http.post("/api/v1/tables", json={"name": 3})
    assert (response.status_code, response.json()["code"]) == (422, "definition")
    response = cluster.http.get("/api/v1/cubes/..%2Fcoordinator")
    assert response.status_code in (404, 422)
    wrong = CoordinatorClient(["http://testserver"], "wrong", transport=cluster.http._transport)
    with pytest.raises(Unauthorized):
        wrong.queue()


def test_a_heartbeat_under_another_name_is_refused(cluster: Cluster) -> None:
    body = {"receiver_id": "r2", "replica_set": "rs1"}
    assert cluster.http.post("/api/v1/receivers/r1/heartbeat", json=body).status_code == 422


def ask_standby(cluster: Cluster, path: str) -> tuple[httpx.Response, httpx.Response]:
    """The standby's answers to `path` and to `/health`."""
    store = MemoryStore(cluster.ensemble)
    standby = Coordinator(
        ClusterMetadata(store, cluster.clock),
        lambda name: cluster.topics,
        object_store_uri=cluster.uri,
        url="http://127.0.0.1:7071",
        open_client=cluster.open_client,
        tick_s=3600,
    )
    try:
        eventually(lambda: standby.leadership.leader_url() is not None, "the standby knows the leader")
        app = build_app(standby, TOKEN, HttpLimits())

        async def ask() -> tuple[httpx.Response, httpx.Response]:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://s", headers=HEADERS) as http:
                return await http.get(path), await http.get("/health")

        return asyncio.run(ask())
    finally:
        standby.close()
        store.close()


def test_a_standby_names_a_leader_that_it_cannot_reach(cluster: Cluster) -> None:
    answer, health = ask_standby(cluster, "/api/v1/queue")
    assert answer.status_code == 503
    assert answer.json()["leader_url"] == URL
    assert answer.json()["code"] == "not_leader"
    assert health.json()["role"] == "standby"
    assert health.json()["leader_url"] == URL


def test_a_standby_sends_to_a_leader_that_answers(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        cluster.coordinator.leadership.close()
        election = cluster.store.elect("/coordinator/election", url, lambda: None)
        eventually(election.is_leader, "another leads")
        answer, _ = ask_standby(cluster, f"/api/v1/cubes/{NAME}%3F/segments?state=READY")
        assert answer.status_code == 307
        assert answer.headers["location"] == f"{url}/api/v1/cubes/{NAME}%3F/segments?state=READY"


def test_who_does_not_lead_says_so_at_once(cluster: Cluster) -> None:
    cluster.store.disconnect()
    response = cluster.http.get("/api/v1/queue")
    assert response.status_code == 503
    assert cluster.http.get("/health").json()["role"] == "standby"
    cluster.store.reconnect()
    eventually(cluster.coordinator.leadership.is_leader, "leads again")
    assert cluster.http.get("/api/v1/queue").status_code == 200


def test_the_client_follows_redirects_and_takes_the_token_along() -> None:
    asked: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.url.host, request.headers["authorization"]))
        if request.url.host == "down":
            raise httpx.ConnectError("refused")
        if request.url.host == "standby":
            return httpx.Response(307, headers={"location": "http://leader:1/api/v1/queue"})
        return httpx.Response(200, json={"entries": []})

    client = CoordinatorClient(
        ["http://down", "http://standby", "http://other", "http://leader:1"],
        TOKEN,
        transport=httpx.MockTransport(answer),
    )
    assert client.queue().entries == ()
    assert client.queue().entries == ()
    assert [host for host, _ in asked] == ["down", "standby", "leader", "leader"]
    assert {token for _, token in asked} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    "tells",
    [
        httpx.Response(307, headers={"location": "http://stranger/api/v1/queue"}),
        httpx.Response(
            503, json={"code": "not_leader", "message": "no", "leader_url": "http://127.0.0.1:8@stranger"}
        ),
    ],
)
def test_the_token_goes_to_configured_coordinators_only(tells: httpx.Response) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return tells

    client = CoordinatorClient(["http://a"], TOKEN, retry_s=0, transport=httpx.MockTransport(answer))
    with pytest.raises(Unavailable, match=r"names .*stranger as leader, which is not configured"):
        client.queue()
    assert set(asked) == {"a"}


def test_the_client_waits_for_a_leader_but_not_for_ever() -> None:
    answers = [503, 503, 200]

    def answer(request: httpx.Request) -> httpx.Response:
        status = answers.pop(0) if answers else 503
        body = (
            {"entries": []} if status == 200 else {"code": "not_leader", "message": "no", "leader_url": None}
        )
        return httpx.Response(status, json=body)

    client = CoordinatorClient(["http://a"], TOKEN, transport=httpx.MockTransport(answer))
    assert client.queue().entries == ()
    hopeless = CoordinatorClient(["http://a"], TOKEN, retry_s=0.3, transport=httpx.MockTransport(answer))
    with pytest.raises(Unavailable, match="no coordinator took"):
        hopeless.queue()


def test_the_asynchronous_client_does_the_same() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "standby":
            return httpx.Response(307, headers={"location": "http://leader/api/v1/queue"})
        return httpx.Response(200, json={"entries": []})

    async def ask() -> int:
        transport = httpx.MockTransport(answer)
        async with AsyncCoordinatorClient(
            ["http://standby", "http://leader"], TOKEN, transport=transport
        ) as client:
            return len((await client.queue()).entries)

    assert asyncio.run(ask()) == 0

"""Nodes tell endpoints that they live; a name belongs to one data folder; an endpoint that is down is passed
over.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from rtolap.base.errors import Refused, RtolapError, Unauthorized, Unavailable
from rtolap.protocols.storage import messages as wire
from rtolap.protocols.storage.messages import Heartbeat, HeartbeatAnswer
from rtolap.stored.frontend.http.nodes import nodes_router
from rtolap.stored.frontend.storage_nodes import LATELY_MS, LEASE_MS, StorageNodes
from rtolap.stored.node.process import Heartbeats, node_metrics
from rtolap.stored.stream_load.node_directory import KNOWN_FOR_S

from tests.support.stored.ledgers import open_ledger
from tests.support.stored.storage_nodes import InProcessNodes
from tests.support.stored.storage_rows import SCHEMA, rows, tablet
from tests.support.twins.clock import ManualClock

BEAT = Heartbeat("folder-1", "127.0.0.1:1", 100)
OTHER = Heartbeat("folder-2", "127.0.0.1:2", 100)


class World:
    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(1_000_000)
        self.ledger = open_ledger(folder / "ledger.db", clock=self.clock)
        self.now_s = 0.0
        self.nodes = StorageNodes(self.ledger, InProcessNodes(folder, ()), now_s=lambda: self.now_s)

    def alive(self) -> tuple[str, ...]:
        return self.ledger.read("read who lives", self.nodes.alive)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    yield found
    found.ledger.close()


def test_a_node_lives_as_long_as_its_heartbeats_come(world: World) -> None:
    assert world.nodes.heartbeat("n", BEAT) == HeartbeatAnswer(LEASE_MS)
    assert world.alive() == ("n",)
    assert world.nodes.addresses() == {"n": "127.0.0.1:1"}
    world.clock.advance_ms(LEASE_MS)
    assert world.alive() == ()
    assert world.nodes.addresses() == {}
    (info,) = world.nodes.all_nodes()
    assert (info.name, info.alive, info.free_bytes) == ("n", False, 100)
    world.nodes.heartbeat("n", BEAT)
    assert world.alive() == ("n",)


def test_a_name_belongs_to_a_data_folder_until_its_lease_is_over(world: World) -> None:
    world.nodes.heartbeat("n", BEAT)
    with pytest.raises(Refused, match="taken by another storage node"):
        world.nodes.heartbeat("n", OTHER)
    world.nodes.heartbeat("n", Heartbeat("folder-1", "127.0.0.1:9", 100))  # restarted at another port
    world.now_s += KNOWN_FOR_S
    assert world.nodes.address("n") == "127.0.0.1:9"
    world.clock.advance_ms(LEASE_MS)
    world.nodes.heartbeat("n", OTHER)
    world.now_s += KNOWN_FOR_S
    assert world.nodes.address("n") == "127.0.0.1:2"


def test_a_node_that_nobody_knows_is_unavailable(world: World) -> None:
    with pytest.raises(Unavailable, match="never sent a heartbeat"):
        world.nodes.client("n")


def test_a_node_that_is_away_is_remembered_for_a_day(world: World) -> None:
    world.nodes.heartbeat("n", BEAT)
    world.clock.advance_ms(LEASE_MS + LATELY_MS - 1)
    assert world.alive() == ()
    assert world.ledger.read("read who was heard", world.nodes.lately) == ("n",)
    world.clock.advance_ms(1)
    assert world.ledger.read("read who was heard", world.nodes.lately) == ()


def test_a_node_past_its_lease_is_not_asked_while_others_are_heard(world: World) -> None:
    world.nodes.heartbeat("n", BEAT)
    world.nodes.heartbeat("m", OTHER)
    world.clock.advance_ms(LEASE_MS)
    assert world.nodes.address("n") == "127.0.0.1:1", "nobody is heard: endpoints or ledger were away"
    world.nodes.heartbeat("m", OTHER)
    world.now_s += KNOWN_FOR_S
    for call in (world.nodes.client, world.nodes.address):
        with pytest.raises(Unavailable, match="storage node n has sent no heartbeat for too long"):
            call("n")
    assert world.nodes.address("m") == "127.0.0.1:2"
    world.nodes.heartbeat("n", BEAT)
    world.now_s += KNOWN_FOR_S
    assert world.nodes.address("n") == "127.0.0.1:1"


def test_a_endpoint_takes_heartbeats_of_who_has_the_token(world: World) -> None:
    def authorize(request: Request) -> None:
        if request.headers.get("authorization") != "Bearer secret":
            raise Unauthorized("the bearer token is missing or wrong")

    app = FastAPI()
    app.include_router(nodes_router(world.nodes, authorize))

    @app.exception_handler(RtolapError)
    def failed(request: Request, error: RtolapError) -> JSONResponse:
        return JSONResponse(error.to_dict(), error.http_status)

    path, token = "/api/v1/storage-nodes", {"Authorization": "Bearer secret"}
    body = b'{"node_id": "f", "address": "127.0.0.1:1", "free_bytes": 5}'
    with TestClient(app) as client:
        assert client.post(f"{path}/n/heartbeat", content=body).status_code == httpx.codes.UNAUTHORIZED
        assert client.get(path).status_code == httpx.codes.UNAUTHORIZED
        assert client.post(f"{path}/n/heartbeat", content=body, headers=token).json() == {
            "lease_ms": LEASE_MS
        }
        bad = client.post(f"{path}/n/heartbeat", content=b"{}", headers=token)
        assert bad.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        assert client.get(path, headers=token).json() == [
            {
                "name": "n",
                "address": "127.0.0.1:1",
                "alive": True,
                "free_bytes": 5,
                "body_url": "",
                "draining": False,
            }
        ]


def test_a_heartbeat_that_nobody_takes_is_reported_and_the_next_one_sent() -> None:
    sent: list[Heartbeat] = []

    def send(beat: Heartbeat) -> HeartbeatAnswer:
        sent.append(beat)
        if len(sent) == 1:
            raise Unavailable("no endpoint answers")
        return HeartbeatAnswer(1)

    beats = Heartbeats(send, lambda: BEAT)
    beats.run_once()
    assert beats.failure == "no endpoint answers"
    beats.run_once()
    assert beats.failure is None
    assert sent == [BEAT, BEAT]


def test_a_fault_while_the_disk_is_looked_at_does_not_silence_a_node() -> None:
    faults = [OSError("statvfs")]

    def beat() -> Heartbeat:
        if faults:
            raise faults.pop()
        return BEAT

    beats = Heartbeats(lambda beat: HeartbeatAnswer(1), beat)
    beats.run_once()
    assert beats.failure == "statvfs"
    beats.run_once()
    assert beats.failure is None


def test_what_a_node_does_shows_in_its_metrics(nodes: InProcessNodes) -> None:
    node = nodes.nodes["a"]
    metrics = node_metrics(node)
    stream = node.put(wire.PutHead(7, SCHEMA), rows().schema)
    stream.write(tablet(0), rows(1, 2))
    assert "rtolap_storage_loads_running 1.0" in metrics.render()[0].decode()
    stream.finish(wire.PutEnd((wire.TabletRows(tablet(0), 2),)))
    page = metrics.render()[0].decode()
    for line in ("loaded_rows_total 2.0", "prepared 1.0", "rows 0.0", "tablets 2.0", "loads_running 0.0"):
        assert f"rtolap_storage_{line}\n" in page, line
    node.publish(wire.Publish(7, ((tablet(0), 1),)))
    assert "rtolap_storage_rows 2.0" in metrics.render()[0].decode()

"""A client that queries what it knows the result of, and loads a little, however busy its servers are.

Beside it, where it is asked to: a service that calls others over Flight, a probe, a region server that ships.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import httpx
from rtolap.base.closeable import Closeable
from rtolap.protocols.receiver.client import ReceiverClients
from rtolap.protocols.storage.client import StorageClients
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions

from tests.support import http_calls
from tests.support.hostile.hostile_world import DATABASE, GOOD, GOOD_LOADER, GOOD_TABLE, HostileWorld
from tests.support.query.asked_statements import number
from tests.support.sep.replication_client import RegionServer
from tests.support.sep.wal_calls import Cell, Entry
from tests.support.stored.stream_load_cluster import PASSWORD, TOKEN

_LOAD_EVERY = 10
_TIMEOUT_S = 90.0


class WellBehaved(Closeable):
    """`step` queries over HTTP and over MySQL. Raises AssertionError for a wrong result.

    `capture_port`: of a consumer of change capture, to which it ships an edit with each step; it calls every
    Flight server and asks for `/health` then, too.
    """

    def __init__(self, world: HostileWorld, capture_port: int | None = None) -> None:
        self._world = world
        self._expected = world.world.expected(world.world.ends())
        self._http = http_calls.Client(base_url=world.query_url, auth=(GOOD, PASSWORD), timeout=_TIMEOUT_S)
        self._mysql = world.mysql(GOOD)
        self._loads = StreamLoadClient(world.stored.urls, GOOD_LOADER, PASSWORD)
        self._asked: Counter[str] = Counter()
        self.loaded_rows = 0
        self.latencies_s: dict[str, list[float]] = {"http": [], "mysql": [], "load": []}
        self._capture_port = capture_port
        self._shipped = 0
        self._receivers, self._nodes = ReceiverClients(TOKEN), StorageClients(TOKEN)
        self._flight = {} if capture_port is None else world.flight_addresses()
        if capture_port is not None:
            self.latencies_s |= {"health": [], "flight": [], "capture": []}
            self._region_server = RegionServer(capture_port, timeout_s=_TIMEOUT_S)

    def step(self) -> None:
        self._timed("http", self._ask_http)
        self._timed("mysql", self._ask_mysql)
        if self._capture_port is not None:
            for name, work in (("health", self._probe), ("flight", self._call), ("capture", self._ship)):
                self._timed(name, work)
        if len(self.latencies_s["http"]) % _LOAD_EVERY == 1:
            self._timed("load", self._load)

    def p99_s(self, kind: str) -> float:
        found = sorted(self.latencies_s[kind])
        return found[int(len(found) * 0.99)] if found else 0.0

    def forget(self) -> None:
        """Forget the latencies so far."""
        for found in self.latencies_s.values():
            found.clear()

    def close(self) -> None:
        self._http.close()
        self._mysql.close()
        self._loads.close()
        self._receivers.close()
        self._nodes.close()
        if self._capture_port is not None:
            self._region_server.socket.close()

    def _timed(self, kind: str, work: Any) -> None:
        began_s = time.monotonic()
        work()
        self.latencies_s[kind].append(time.monotonic() - began_s)

    def _ask_http(self) -> None:
        answer = self._http.post("/api/v1/query", json={"sql": self._world.world.sql})
        assert answer.status_code == httpx.codes.OK, answer.text
        assert _answer(answer.json()["rows"]) == self._expected, "a wrong answer over HTTP"

    def _ask_mysql(self) -> None:
        with self._mysql.cursor() as cursor:
            cursor.execute("use rtolap")
            cursor.execute(self._world.world.sql)
            assert _answer(cursor.fetchall()) == self._expected, "a wrong answer over MySQL"
            if not self.loaded_rows:
                return
            cursor.execute(f"select count(*), sum(amount) from {DATABASE}.{GOOD_TABLE}")
            ((rows, amount),) = cursor.fetchall()
            assert (rows, number(amount)) == (self.loaded_rows, self.loaded_rows), "loads are wrong"

    def _probe(self) -> None:
        answer = self._http.get("/health")
        assert answer.json() == {"status": "ok", "role": "query"}

    def _call(self) -> None:
        assert self._receivers.at(self._flight["r1"]).stats().receiver_id == "r1"
        self._nodes.at(self._flight["node-0"]).status()

    def _ship(self) -> None:
        self._shipped += 1
        entries = [Entry((Cell(b"r"),), self._shipped)]
        header, _ = self._region_server.ship(self._shipped, entries)
        assert not header.HasField("exception"), header

    def _load(self) -> None:
        label = f"good-{self.loaded_rows}"
        options = SendOptions(format="csv", headers={"column_separator": ","}, timeout_s=60)
        answer = self._loads.load(DATABASE, GOOD_TABLE, label, b"1,a,1\n2,b,1", options)
        assert answer.status == "Success", answer
        self.loaded_rows += 2


def _answer(rows: Any) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    return {(row[0], row[1]): tuple(number(cell) for cell in row[2:]) for row in rows}

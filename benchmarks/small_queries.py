"""A small statement over MySQL and HTTP while nothing else happens: how long one client waits for it.

    python -m benchmarks.small_queries [--events 60000] [--statements 200] [--rounds 5] [--clients 1] [--json]

Three processes as on a real machine: a receiver that holds the events behind its Flight server, the query
service with both of its endpoints, and the client. The receiver reads Kafka in memory, and no event arrives
meanwhile. In turns: the service as it is, and one that leaves merges to the embedded engine; beside
both, DuckDB in one process over the receiver's roll-up rows. `ratio`: of the plain GROUP BY by MySQL, the
engine's median over the merge's.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pymysql
from rtolap.base.clock import SystemClock
from rtolap.base.metrics import Metrics
from rtolap.base.users import Users, password_hash
from rtolap.cli.serving import switch_often
from rtolap.cubes.receiver.answers.query_service import answer
from rtolap.cubes.receiver.answers.result_cache import ResultCache
from rtolap.cubes.receiver.core.ingest import CubeReceiver
from rtolap.cubes.receiver.flight import ReceiverFlightServer
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.kafka.interfaces import OutRecord
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, ReceiverRecord
from rtolap.object_store.store import open_store
from rtolap.protocols.receiver.client import ReceiverClients
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery
from rtolap.query.cluster.view import Cluster
from rtolap.query.cubes import merged_answer
from rtolap.query.cubes.history import EmbeddedHistory
from rtolap.query.cubes.realtime import FlightSource
from rtolap.query.http.server import make_app
from rtolap.query.lookups import Lookups
from rtolap.query.mysql.server import MySqlServer
from rtolap.query.statement_service import QueryLimits, QueryService
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits

from benchmarks import events
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryProducer
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

TOKEN, USER, PASSWORD = "bench", "bench", "bench"
SET = "rs"
SPAN_MS = 3 * 3_600_000
STATEMENTS = {
    "literal": "SELECT 1",
    "group by": "SELECT country, COUNT(*), SUM(duration_ms) FROM events_cube GROUP BY country",
    "ordered": "SELECT page, COUNT(*) n, SUM(price) p FROM events_cube WHERE device = 'tv' GROUP BY page "
    "ORDER BY n DESC LIMIT 10",
}
BY_DUCKDB = {
    "group by": "SELECT country, SUM(__rows), SUM(duration_ms__sum) FROM cube GROUP BY country",
    "ordered": "SELECT page, SUM(__rows) n, SUM(price__sum) p FROM cube WHERE device = 'tv' "
    "GROUP BY page ORDER BY n DESC LIMIT 10",
}
CONTROL = CubeControl(enabled=True, assignment={SET: (0,)}, assignment_epoch=1)
WARM_UP = 30
LIMITS = QueryLimits(queries_max=32, queries_per_user_max=32, queue_wait_s=60)


class _Desk:
    """The receiver's side of a query, without what it does beside."""

    def __init__(self, core: CubeReceiver) -> None:
        self._core = core
        self._results = ResultCache(core.schema, core.settings.result_bytes_max)

    def query(self, query: PartialQuery) -> pa.Table:
        return answer(
            self._core.schema,
            self._core.state,
            query,
            owned=self._core.owned,
            receiver_id="r",
            progress=self._core.progress,
            cache=self._results,
        )

    def _nothing(self, *arguments: Any) -> Any:
        raise NotImplementedError("the benchmark only asks")

    stats = pause = checkpoint = close_segments = _nothing


def serve_receiver(count: int) -> None:
    """Say the port, and serve until the parent is gone."""
    broker = MemoryBroker()
    broker.create("bench", 1)
    for value in events.values(count, seed=1, span_ms=SPAN_MS):
        broker.append("bench", OutRecord(value, partition=0, timestamp_ms=events.START_MS))
    with tempfile.TemporaryDirectory() as folder:
        core = CubeReceiver(
            events.schema("bench"),
            replica_set=SET,
            consumer=MemoryConsumer(broker, "bench", with_create_ms=True),
            producer=MemoryProducer(broker),
            folder=Path(folder),
            clock=SystemClock(),
            settings=ReceiverSettings(disk_free_bytes_min=0),
        )
        serve(core, CubeView(control=CONTROL, start_offsets={0: 0}))


def serve(core: CubeReceiver, view: CubeView) -> None:
    """Read all there is, say the port, and serve until the parent is gone."""
    while core.step(view):
        pass
    switch_often()
    desk = _Desk(core)
    server = ReceiverFlightServer(desk, host="127.0.0.1", port=0, token=TOKEN, metrics=Metrics("receiver"))
    print(server.port, flush=True)
    sys.stdin.read()
    server.shutdown()


@contextmanager
def receiver(count: int) -> Iterator[int]:
    command = [sys.executable, "-m", "benchmarks.small_queries", "--receiver", "--events", str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


@contextmanager
def endpoints(receiver_port: int, folder: Path, limits: QueryLimits = LIMITS) -> Iterator[tuple[int, int]]:
    """Yield the query service's ports of MySQL and HTTP."""
    clock, schema = SystemClock(), events.schema("bench")
    metadata = ClusterMetadata(MemoryStore(MemoryEnsemble()), clock)
    metadata.create_table(schema.table)
    metadata.create_cube(schema.cube)
    metadata.register_receiver(ReceiverRecord("r", "127.0.0.1", receiver_port, SET))
    metadata.announce_live("r", "first")
    metadata.update_control(schema.cube.name, lambda _: CONTROL)
    clients = ReceiverClients(TOKEN)
    history = EmbeddedHistory(open_store(folder.as_uri()))
    service = QueryService(
        *(Cluster(metadata, clock), history, FlightSource(clients), Lookups(folder), clock, limits)
    )
    users = Users({USER: bytes.fromhex(password_hash(PASSWORD))}, {})
    mysql = MySqlServer(service, users, host="127.0.0.1", port=0)
    mysql.start()
    connections = HttpConnections(service.metrics.registry, HttpLimits())
    server = HttpServer(make_app(service, users, TOKEN, HttpLimits()), connections)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.02)
    try:
        yield mysql.port, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)
        mysql.close()
        service.close()
        clients.close()


def timed(call: Callable[[], object], count: int) -> list[float]:
    times_ms = []
    for _ in range(count + WARM_UP):
        began_s = time.perf_counter()
        call()
        times_ms.append((time.perf_counter() - began_s) * 1000)
    return times_ms[WARM_UP:]


def ask(ports: tuple[int, int], count: int, clients: int) -> dict[str, dict[str, Any]]:
    """Return one client's times of each statement over both; of several at once, MySQL's statements a
    second."""
    found: dict[str, dict[str, Any]] = {"mysql": {}, "http": {}}
    with closing(connected(ports[0])) as connection, connection.cursor() as cursor:
        for name, sql in STATEMENTS.items():
            found["mysql"][name] = timed(partial(cursor.execute, sql), count)
    credentials = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    headers = {"Content-Type": "application/json", "Authorization": f"Basic {credentials}"}
    web = http.client.HTTPConnection("127.0.0.1", ports[1])

    def post(sql: str) -> None:
        web.request("POST", "/api/v1/query", json.dumps({"sql": sql}), headers)
        response = web.getresponse()
        assert response.read()
        assert response.status == 200

    for name, sql in STATEMENTS.items():
        found["http"][name] = timed(partial(post, sql), count)
    web.close()
    if clients > 1:
        found["per_s"] = {str(many): _rate(ports[0], count, many) for many in (1, clients)}
    return found


def _rate(port: int, count: int, clients: int) -> float:
    """Return the rate of clients, which are processes, so that they do not wait for each other."""
    began_s = time.perf_counter()
    pids = []
    for _ in range(clients):
        pid = os.fork()
        if not pid:
            connection = connected(port)
            with connection.cursor() as cursor:
                for _ in range(count):
                    cursor.execute(STATEMENTS["group by"])
            os._exit(0)
        pids.append(pid)
    failed = [pid for pid in pids if os.waitpid(pid, 0)[1]]
    assert not failed, "a client ended with an error"
    return clients * count / (time.perf_counter() - began_s)


def connected(port: int) -> Any:
    return pymysql.connect(host="127.0.0.1", port=port, user=USER, password=PASSWORD, ssl_disabled=True)


def ask_duckdb(table: pa.Table, count: int) -> dict[str, list[float]]:
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.register("rows", table)
        connection.execute("CREATE TABLE cube AS SELECT * FROM rows")
        return {name: timed(partial(_fetched, connection, sql), count) for name, sql in BY_DUCKDB.items()}


def _fetched(connection: Any, sql: str) -> object:
    return connection.execute(sql).fetchall()


def rolled_up(port: int) -> pa.Table:
    schema = events.schema("bench")
    query = PartialQuery(
        cube=schema.cube.name,
        dimensions=schema.cube.all_dimensions,
        partials=tuple(each.name for each in schema.partials),
        snapshot=HistorySnapshot(assignment_epoch=1),
    )
    with closing(ReceiverClients(TOKEN)) as clients:
        return clients.at(f"127.0.0.1:{port}").query(query)[0]


def in_client(ports: tuple[int, int], count: int, clients: int) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.small_queries", "--client", *map(str, ports)]
    command += ["--statements", str(count), "--clients", str(clients)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return msgspec.json.decode(done.stdout, type=dict[str, dict[str, Any]])


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    times: dict[tuple[str, str, str], list[float]] = {}
    rates: dict[tuple[str, str], list[float]] = {}
    bytes_max = merged_answer.BYTES_MAX
    with (
        tempfile.TemporaryDirectory() as folder,
        receiver(arguments.events) as port,
        endpoints(port, Path(folder)) as ports,
    ):
        table = rolled_up(port)
        for _ in range(arguments.rounds):
            for way, most in (("merge", bytes_max), ("engine", -1)):
                merged_answer.BYTES_MAX = most
                found = in_client(ports, arguments.statements, arguments.clients)
                for client in ("mysql", "http"):
                    for name, took_ms in found[client].items():
                        times.setdefault((way, client, name), []).append(statistics.median(took_ms))
                for many, rate in found.get("per_s", {}).items():
                    rates.setdefault((way, many), []).append(rate)
            for name, took_ms in ask_duckdb(table, arguments.statements).items():
                times.setdefault(("duckdb", "in process", name), []).append(statistics.median(took_ms))
    medians = {" ".join(key): round(statistics.median(values), 3) for key, values in times.items()}
    return {
        "roll_up_rows": table.num_rows,
        "ms": medians,
        "per_s": {" ".join(key): round(statistics.median(values)) for key, values in rates.items()},
        "ratio": round(medians["engine mysql group by"] / medians["merge mysql group by"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=60_000)
    parser.add_argument("--statements", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=1, help="also: so many at once, statements a second")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--receiver", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--client", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.receiver:
        serve_receiver(arguments.events)
    elif arguments.client:
        print(json.dumps(ask(tuple(arguments.client), arguments.statements, arguments.clients)))
    else:
        figures = run(arguments)
        if arguments.json:
            print(json.dumps(figures))
            return
        for what, figure in {**figures["ms"], **figures["per_s"], "ratio": figures["ratio"]}.items():
            print(f"{what}: {figure}")


if __name__ == "__main__":
    main()

"""A cluster with a cube and stored tables on real servers, its users, and five hostile ones among them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pymysql
from rtolap.base.addresses import host_port
from rtolap.base.closeable import Closeable
from rtolap.base.users import password_hash
from rtolap.query.workers.session import DIED, MEMORY, SUM
from rtolap.stack.ports import free_port
from rtolap.stack.probes import http_missing

from tests.support.cubes.service_world import World
from tests.support.cubes.services import Services, wait_for
from tests.support.hostile.hostile_http import basic
from tests.support.hostile.hostile_user import HostileUser, Task
from tests.support.hostile.user_attacks import Targets
from tests.support.paths import PYTHONPATH
from tests.support.scrape import scrape
from tests.support.stored.stream_load_cluster import HOST, PASSWORD, TOKEN, StreamLoadCluster
from tests.support.waiting import patience_s

# Rights by user. GOOD_* behave; the others are hostile.
GOOD, GOOD_LOADER, DEFINER = "good", "carrier", "dora"
PLAIN, OTHER_PLAIN, LOADER = "eve", "otto", "larry"
_RIGHTS = {GOOD: "", GOOD_LOADER: "load", DEFINER: "define", PLAIN: "", OTHER_PLAIN: "", LOADER: "load"}
DATABASE, GOOD_TABLE, HOSTILE_TABLE = "web", "good", "hostile"
_COLUMNS = "id int not null, host varchar(100), amount decimal(10,2)"
_EVENTS = 400
MEMORY_MB = 64  # of the query service: small, so that what goes beyond it does so soon
_LOAD_PAGES = (
    "PUT /api/web/hostile/_stream_load",
    "PUT /api/web/_stream_load_2pc",
    "PUT /api/_ack_labels",
    "POST /api/v1/stored-tables",
)
_COORDINATOR_PAGES = (
    *("POST /api/v1/cubes", "POST /api/v1/tables", "PUT /api/v1/replica-sets/x", "POST /api/v1/lookups"),
    "POST /api/v1/receivers/r1/heartbeat",
)


class HostileWorld(Closeable):
    """Two harnesses with one token: `services` has coordinator, receiver, query and agent, `stored` a Stream
    Load endpoint and a storage node. `cube` is caught up with all its events."""

    def __init__(
        self,
        folder: Path,
        zookeeper: str,
        kafka: str,
        create_topic: object,
        query_options: Sequence[str] = ("--memory-mb", str(MEMORY_MB)),
    ) -> None:
        """Start the servers. `query_options` are those of `rtolap query serve`; none for its default
        settings."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._query_options = tuple(query_options)
        root = f"/hostile-{uuid.uuid4().hex}"
        self.stored = StreamLoadCluster(
            folder / "stored", f"sqlite:///{folder / 'ledger.db'}", publish_timeout_s=60
        )
        self.services = Services(
            folder, zookeeper=zookeeper, root=root, kafka=kafka, coordinators=1, token=TOKEN, host=HOST
        )
        self.services.environment["RTOLAP_SESSION_TIMEOUT_S"] = "30"  # a busy machine is no fault here
        users = "".join(f"{name}:{password_hash(PASSWORD)}:{rights}\n" for name, rights in _RIGHTS.items())
        for one in (folder, folder / "stored"):
            (one / "users").write_text(users)
        name = f"cube_{uuid.uuid4().hex[:8]}"
        create_topic(name, partitions=4)  # type: ignore[operator]
        self.world = World(self.services, kafka, name, 5, {"only": ("r1",)})
        self.cube = name
        self._agent_port = free_port()

    def start(self) -> None:
        self.stored.start(endpoints=1, nodes=1)
        self.services.environment["RTOLAP_STREAM_LOAD_ENDPOINTS"] = ",".join(self.stored.urls)
        self.services.start_coordinators()
        self.world.start_receivers("only")
        self.services.coordinator.put_replica_set("only", ["r1"])
        self.services.start_query(*self._query_options)
        self.services.start("agent", "agent", "serve", env={"RTOLAP_AGENT_PORT": str(self._agent_port)})
        url = f"http://{HOST}:{self._agent_port}/health"
        wait_for("the agent answers", lambda: http_missing(url) is None)
        self.world.declare()
        self.world.produce(_EVENTS)
        wait_for("all events are read", self.world.caught_up)
        with self.mysql(DEFINER) as connection, connection.cursor() as cursor:
            for table in (GOOD_TABLE, HOSTILE_TABLE):
                cursor.execute(
                    f"create table {DATABASE}.{table} ({_COLUMNS}) duplicate key(id) "
                    "distributed by hash(id) buckets 1"
                )

    def mysql(self, user: str) -> pymysql.connections.Connection:
        port = int(self.services.environment["RTOLAP_QUERY_MYSQL_PORT"])
        connection: pymysql.connections.Connection = pymysql.connections.Connection(
            host=HOST, port=port, user=user, password=PASSWORD, read_timeout=90
        )
        return connection

    @property
    def query_url(self) -> str:
        return f"http://{HOST}:{self.services.environment['RTOLAP_QUERY_HTTP_PORT']}"

    def pids(self) -> dict[str, int]:
        """Return the process ids of every server, by name."""
        found = self.services.pids()
        for name, managed in self.stored.processes.items():
            pid = managed.pid()
            assert pid is not None, f"{name} has ended"
            found[name] = pid
        return found

    def logs(self) -> dict[str, str]:
        paths = [*self.folder.glob("*.log"), *self.folder.glob("stored/*/*.log")]
        return {path.stem: path.read_text(errors="replace") for path in paths}

    def definitions(self) -> dict[str, object]:
        """Return the definitions that no hostile user may change."""
        client = self.services.coordinator
        with self.mysql(DEFINER) as connection, connection.cursor() as cursor:
            shown: list[object] = []
            for statement in ("show databases", f"show tables from {DATABASE}", "show tables from rtolap"):
                cursor.execute(statement)
                shown.append(cursor.fetchall())
            for table in (GOOD_TABLE, HOSTILE_TABLE):
                cursor.execute(f"show create table {DATABASE}.{table}")
                shown.append(cursor.fetchall())
        tables = [client.table(name) for name in sorted(client.tables())]
        cubes = sorted((cube.name, str(cube.definition), cube.enabled) for cube in client.cubes())
        return {"sql": shown, "tables": tables, "cubes": cubes, "lookups": client.lookups()}

    def greedy_workers(self) -> float:
        """Return how many workers of the query service have ended because of their statements' memory."""
        told = scrape(self.query_url, TOKEN)
        return sum(told("rtolap_query_workers_ended_total", reason=reason) for reason in (MEMORY, SUM, DIED))

    # -- hostility ------------------------------------------------------------------------------------

    def hostile_users(self, inputs: int, seed: int) -> list[HostileUser]:
        """Return five users, from whom each server takes at least `inputs` together."""
        return [
            HostileUser(name=name, seed=seed + number, tasks=tuple(tasks))
            for number, (name, tasks) in enumerate(self._tasks(inputs).items())
        ]

    def _tasks(self, inputs: int) -> dict[str, list[Task]]:
        mysql_port = int(self.services.environment["RTOLAP_QUERY_MYSQL_PORT"])
        body_port = int(urlsplit(self.stored.body_urls[0]).port or 0)
        query_port = int(urlsplit(self.query_url).port or 0)
        coordinator_port = int(urlsplit(self.services.environment["RTOLAP_COORDINATORS"]).port or 0)

        def mysql(share: float, user: str | None) -> Task:
            return Task(
                server="query-mysql", protocol="mysql", host=HOST, port=mysql_port, table=self.cube,
                inputs=math.ceil(inputs * share), user=user, password=PASSWORD, bombs=True,
            )  # fmt: skip

        def http(server: str, port: int, share: float, pages: Collection[str], **more: object) -> Task:
            return msgspec.convert(
                {"server": server, "protocol": "http", "host": HOST, "port": port, "table": self.cube,
                 "inputs": math.ceil(inputs * share), "pages": tuple(pages), "bombs": True, **more}, Task,
            )  # fmt: skip

        def flight(server: str, address: str, share: float) -> Task:
            host, _, port = address.partition(":")
            return Task(
                server=server, protocol="flight", host=host, port=int(port),
                inputs=math.ceil(inputs * share), bombs=True,
            )  # fmt: skip

        query = ("POST /api/v1/query",)
        agent = ("PUT /api/v1/processes/x", "POST /api/v1/processes/x/stop")
        (receiver,) = self.services.coordinator.receivers()
        node = self.stored.processes["node-0"].address

        def password(user: str) -> str:
            return basic(user, PASSWORD).decode()

        def outside() -> list[Task]:
            return [
                mysql(0.25, None),
                http("query", query_port, 0.3, query, body_share=0.01),
                http("endpoint-0", body_port, 0.35, _LOAD_PAGES, body="load", body_share=0.01),
                http("coordinator-0", coordinator_port, 0.45, _COORDINATOR_PAGES, body_share=0.01),
                http("agent", self._agent_port, 0.5, agent, body_share=0.01),
                flight("r1", host_port(receiver.host, receiver.port), 0.5),
                flight("node-0", node, 0.5),
            ]

        return {
            PLAIN: [
                mysql(0.25, PLAIN),
                http("query", query_port, 0.2, query, credentials=password(PLAIN), body_share=0.2),
                http("endpoint-0", body_port, 0.2, _LOAD_PAGES, credentials=password(PLAIN), body="load"),
                http("coordinator-0", coordinator_port, 0.1, _COORDINATOR_PAGES, credentials=password(PLAIN)),
            ],
            OTHER_PLAIN: [
                mysql(0.25, OTHER_PLAIN),
                http("query", query_port, 0.2, query, credentials=password(OTHER_PLAIN), body_share=0.2),
            ],
            LOADER: [
                http(
                    "endpoint-0", body_port, 0.1, _LOAD_PAGES[:3], credentials=password(LOADER), body="load"
                ),
            ],
            "nobody": outside(),
            "wrong": outside(),
        }  # fmt: skip

    def attack(self, users: Collection[HostileUser]) -> Attack:
        return Attack(self.folder, users)

    def flight_addresses(self) -> dict[str, str]:
        """Return the address of each receiver and storage node, by its name."""
        (receiver,) = self.services.coordinator.receivers()
        return {
            "r1": host_port(receiver.host, receiver.port),
            "node-0": self.stored.processes["node-0"].address,
        }

    def targets(self, capture_port: int, seed: int) -> Targets:
        """Return what attacks of a plain user are aimed at."""
        return Targets(
            host=HOST,
            mysql_port=int(self.services.environment["RTOLAP_QUERY_MYSQL_PORT"]),
            query_url=self.query_url,
            flight_ports=tuple(
                int(address.rpartition(":")[2]) for address in self.flight_addresses().values()
            ),
            capture_port=capture_port,
            user=PLAIN,
            password=PASSWORD,
            token=TOKEN,
            seed=seed,
        )

    def close(self) -> None:
        self.world.close()
        self.services.close()
        self.stored.close()


class Attack:
    """The processes of hostile users."""

    def __init__(self, folder: Path, users: Collection[HostileUser]) -> None:
        self._began_s = time.monotonic()
        self.lasted_s = 0.0
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for user in users:
            path = folder / f"{user.name}.json"
            path.write_bytes(msgspec.json.encode(user))
            with (
                (folder / f"{user.name}.out").open("wb") as out,
                (folder / f"{user.name}.err").open("wb") as err,
            ):
                self._processes[user.name] = subprocess.Popen(
                    [sys.executable, "-m", "tests.support.hostile.hostile_user", str(path)],
                    cwd=folder,
                    env={**os.environ, "PYTHONPATH": PYTHONPATH},
                    stdout=out,
                    stderr=err,
                )

    def goes_on(self) -> bool:
        self.lasted_s = time.monotonic() - self._began_s
        return any(process.poll() is None for process in self._processes.values())

    def taken(self) -> Counter[str]:
        """Return how many inputs each server took, when all are done. Raises AssertionError for a user's
        failure.
        """
        found: Counter[str] = Counter()
        for name, process in self._processes.items():
            failed = (self._folder / f"{name}.err").read_text(errors="replace")
            assert process.poll() == 0, f"{name}: {failed[-2000:]}"
            found.update(
                msgspec.json.decode((self._folder / f"{name}.out").read_bytes(), type=dict[str, int])
            )
        return found

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait(patience_s(30))

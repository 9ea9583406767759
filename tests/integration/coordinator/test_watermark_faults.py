"""Two coordinators as processes on real ZooKeeper: no fault makes a watermark fall or come early.

Two clients report from a thread each; every batch may be sent twice, and older ones again. The oracle is
what was read by then: the slowest listed host. The leader is killed once it has persisted and before it has
published, killed at any moment, and stopped for longer than its session; hosts are added and removed
meanwhile.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from rtolap.base.errors import Unavailable
from rtolap.metadata.applications import ApplicationRecords
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.stack.ports import free_port
from rtolap.watermark_client.client import WatermarkClient

from tests.support.cubes.coordinator_harness import TOKEN
from tests.support.cubes.metadata_contract import eventually
from tests.support.hostile.cluster_store import store_of
from tests.support.waiting import patience_s, until
from tests.support.watermarks.definitions import hosts_source

pytestmark = pytest.mark.integration

SESSION_S = 2.0
NAME = "logs"
LOGS = {
    "name": NAME,
    "sources": [hosts_source("web")],
    "sinks": [{"name": "store"}],
    "edges": [["web", "store"]],
}
# `rtolap coordinator serve`, which dies by its own hand once a file is there and it has persisted an advance.
SERVE = """
import os, signal, sys
from rtolap.metadata.applications import ApplicationRecords

publish, flag = ApplicationRecords.publish, sys.argv[1]

def fatal(self, name, wanted):
    before = self.state(name).global_ms or 0
    after = publish(self, name, wanted)
    if os.path.exists(flag) and (after.global_ms or 0) > before:
        os.kill(os.getpid(), signal.SIGKILL)
    return after

ApplicationRecords.publish = fatal
sys.argv = ["rtolap", "coordinator", "serve"]

from rtolap.cli.main import main

main()
"""


class Pair:
    def __init__(self, folder: Path, zookeeper: str, root: str) -> None:
        self.folder = folder
        self.fatal = folder / "die-after-persisting"
        (folder / "token").write_text(TOKEN)
        self.environment = {
            **os.environ,
            "RTOLAP_ZOOKEEPER": zookeeper,
            "RTOLAP_ZOOKEEPER_ROOT": root,
            "RTOLAP_KAFKA": f"127.0.0.1:{free_port()}",  # no cube, no question to Kafka
            "RTOLAP_SESSION_TIMEOUT_S": str(SESSION_S),
            "RTOLAP_OBJECT_STORE": f"file://{folder}/store",
            "RTOLAP_DATA_DIR": str(folder / "data"),
            "RTOLAP_TOKEN_FILE": str(folder / "token"),
        }
        first = free_port()
        self.ports = [first, free_port({first})]
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for url in self.urls:
            self.start(url)

    def start(self, url: str) -> None:
        port = url.rpartition(":")[2]
        with (self.folder / f"coordinator-{port}.log").open("ab") as log:
            self.processes[url] = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(self.fatal)],
                env={**self.environment, "RTOLAP_COORDINATOR_PORT": port},
                stdout=log,
                stderr=log,
            )

    def role(self, url: str) -> str:
        try:
            with CoordinatorClient([url], TOKEN, retry_s=0) as probe:
                return probe.health(url).role
        except Unavailable:
            return "silent"

    def leader(self) -> str:
        found: list[str] = []
        eventually(
            lambda: bool(found.extend(url for url in self.urls if self.role(url) == "leader") or found),
            "somebody leads",
            timeout_s=90,
        )
        return found[0]

    def again(self) -> None:
        """Start who has ended."""
        for url, process in self.processes.items():
            if process.poll() is not None:
                self.start(url)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(patience_s(30))


class Repeating(httpx.BaseTransport):
    """A network that delivers batches twice, and old ones again."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._network = httpx.HTTPTransport()
        self._old: list[tuple[httpx.URL, httpx.Headers, bytes]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        self._old.append((request.url, request.headers, body))
        for url, headers, old in self._random.sample(self._old, min(2, len(self._old))):
            try:
                repeated = self._network.handle_request(
                    httpx.Request("POST", url, headers=headers, content=old)
                )
                repeated.read()
                repeated.close()
            except httpx.TransportError:
                continue  # to one that is down
        again = httpx.Request(request.method, request.url, headers=request.headers, content=body)
        again.extensions = request.extensions
        return self._network.handle_request(again)


class World:
    def __init__(self, pair: Pair, seed: int) -> None:
        self.random = random.Random(seed)
        self.asking = CoordinatorClient(pair.urls, TOKEN, retry_s=60)
        self.clients = [
            WatermarkClient(pair.urls, TOKEN, NAME, every_s=0.1, timeout_s=3, transport=Repeating(seed + n))
            for n in range(2)
        ]
        began_ms = time.time_ns() // 1_000_000 - 10_000_000
        self.read = {f"h{n}": began_ms for n in range(20)}
        self.extra: list[str] = []
        self.oracle_ms = self.seen_ms = 0
        self.asking.create_application(LOGS)
        self.asking.change_hosts(NAME, "web", "register", sorted(self.read))

    def read_on(self) -> None:
        for host in self.random.sample(sorted(self.read), 10):
            self.read[host] += self.random.randint(0, 2000)
        self.tell()

    def step(self) -> None:
        self.read_on()
        if self.random.random() < 0.1:
            self.extra.append(f"extra-{self.random.random()}")
            self.asking.change_hosts(NAME, "web", "register", self.extra[-1:])
        elif self.extra and self.random.random() < 0.3:
            self.asking.change_hosts(NAME, "web", "remove", [self.extra.pop()])

    def tell(self) -> None:
        for number, client in enumerate(self.clients):
            hosts = [host for n, host in enumerate(sorted(self.read)) if n % 2 == number]
            client.report_progress("web", number, 0, hosts, [self.read[host] for host in hosts])
        self.know()

    def know(self) -> None:
        if not self.extra:
            self.oracle_ms = max(self.oracle_ms, min(self.read.values()))

    def check(self, marks_ms: int | None) -> None:
        self.know()
        published = marks_ms or 0
        assert published >= self.seen_ms, "a regression"
        assert published <= self.oracle_ms, "early"
        self.seen_ms = published

    def go_on_until(self, is_so: Callable[[], object], what: object) -> None:
        """Read on, step by step, and check every watermark that is seen meanwhile."""

        def step() -> object:
            self.step()
            self.check(self.asking.application_watermarks(NAME).global_ms)
            for client in self.clients:
                assert (client.global_watermark() or 0) <= self.oracle_ms
            return is_so()

        until(step, what, poll_s=0.05)

    def go_on_until_it_advances(self) -> None:
        before_ms = self.seen_ms
        self.go_on_until(
            lambda: self.seen_ms > before_ms, lambda: [client.problem for client in self.clients]
        )

    def finish(self) -> None:
        while self.extra:
            self.asking.change_hosts(NAME, "web", "remove", [self.extra.pop()])
        self.read = dict.fromkeys(self.read, max(self.read.values()) + 1)
        self.tell()
        end_ms = self.oracle_ms

        def arrived() -> bool:
            self.check(self.asking.application_watermarks(NAME).global_ms)
            return self.seen_ms == end_ms

        eventually(arrived, "the watermark is where everything was read to", timeout_s=60)
        assert self.clients[0].may_close(end_ms, timeout_s=30)

    def close(self) -> None:
        for client in self.clients:
            client.close(timeout_s=1)
        self.asking.close()


@pytest.fixture
def pair(tmp_path: Path, zookeeper: str, unique_name: str) -> Iterator[Pair]:
    pair = Pair(tmp_path, zookeeper, f"/{unique_name}")
    yield pair
    pair.stop()


def test_killed_stopped_and_repeated_it_never_falls_and_is_never_early(pair: Pair) -> None:
    world = World(pair, seed=7)
    store = store_of(pair.environment)
    records = ApplicationRecords(store)
    try:
        world.go_on_until_it_advances()
        while world.extra:
            world.asking.change_hosts(NAME, "web", "remove", [world.extra.pop()])
        # 1. killed between persisting and publishing
        dying = pair.leader()
        pair.fatal.touch()

        def has_died() -> bool:
            world.read_on()
            return pair.processes[dying].poll() is not None

        until(has_died, "it dies", poll_s=0.05)
        pair.fatal.unlink()
        state = records.state(NAME)
        assert state is not None
        assert (state.global_ms or 0) >= world.seen_ms, "persisted, and told to nobody"
        world.check(world.asking.application_watermarks(NAME).global_ms)
        assert world.seen_ms >= (state.global_ms or 0), "the next leader begins with it"
        world.go_on_until_it_advances()
        pair.again()
        # 2. killed at any moment
        leader = pair.leader()
        pair.processes[leader].kill()
        pair.processes[leader].wait(patience_s(30))
        world.go_on_until_it_advances()
        pair.again()
        eventually(lambda: "standby" in map(pair.role, pair.urls), "it stands by", timeout_s=90)
        # 3. stopped for longer than its session
        leader = pair.leader()
        other = next(url for url in pair.urls if url != leader)
        pair.processes[leader].send_signal(signal.SIGSTOP)
        eventually(lambda: pair.role(other) == "leader", "the other leads", timeout_s=30)
        with CoordinatorClient([other], TOKEN, retry_s=30) as through_other:
            world.check(through_other.application_watermarks(NAME).global_ms)
        pair.processes[leader].send_signal(signal.SIGCONT)
        world.go_on_until(lambda: pair.role(leader) == "standby", "who was stopped stands by")
        world.go_on_until_it_advances()
        world.finish()
    finally:
        store.close()
        world.close()

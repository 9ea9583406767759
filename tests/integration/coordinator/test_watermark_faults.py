"""Two or three coordinators as processes on real ZooKeeper: no fault makes a watermark fall or come early.

Two clients of each application report from a thread each; every batch may be sent twice, and older ones
again. The oracle is what was read by then: the slowest listed host. Owners are killed once they have
persisted and before they have published, killed at any moment, and stopped for longer than their session;
hosts are added and removed meanwhile.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from rtolap.base.errors import Unavailable
from rtolap.coordinator.applications.owned import chosen_owner
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


def definition(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "sources": [hosts_source("web")],
        "sinks": [{"name": "store"}],
        "edges": [["web", "store"]],
    }


class Coordinators:
    def __init__(self, folder: Path, zookeeper: str, root: str, number: int) -> None:
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
        ports: set[int] = set()
        while len(ports) < number:
            ports.add(free_port(ports))
        self.urls = [f"http://127.0.0.1:{port}" for port in sorted(ports)]
        self.store = store_of(self.environment)
        self.records = ApplicationRecords(self.store)
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

    def answers(self, url: str) -> bool:
        try:
            with CoordinatorClient([url], TOKEN, retry_s=0, timeout_s=2) as probe:
                return probe.health(url).zookeeper
        except Unavailable:
            return False

    def owner(self, name: str) -> str | None:
        """Return None while it moves."""
        state = self.records.state(name)
        owner = None if state is None else self.records.standing_owner(state)
        return None if owner is None else owner.url

    def owned(self, name: str, *, by_other_than: str | None = None) -> str:
        found: list[str] = []

        def is_owned() -> bool:
            owner = self.owner(name)
            if owner is not None and owner != by_other_than:
                found.append(owner)
            return bool(found)

        eventually(is_owned, f"somebody owns {name}", timeout_s=90)
        return found[0]

    def signal(self, url: str, number: signal.Signals) -> None:
        self.processes[url].send_signal(number)

    def kill(self, url: str) -> None:
        self.processes[url].kill()
        self.processes[url].wait(patience_s(30))

    def again(self) -> None:
        """Start who has ended."""
        for url, process in self.processes.items():
            if process.poll() is not None:
                self.start(url)

    def await_all(self) -> None:
        eventually(lambda: all(map(self.answers, self.urls)), "all answer", timeout_s=90)

    def stop(self) -> None:
        self.store.close()
        for process in self.processes.values():
            process.kill()
            process.wait(patience_s(30))


NOT_AWAITED = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), 0.3)}  # it may be stopped


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
                    httpx.Request("POST", url, headers=headers, content=old, extensions=NOT_AWAITED)
                )
                repeated.read()
                repeated.close()
            except httpx.TransportError:
                continue  # to one that is down
        again = httpx.Request(request.method, request.url, headers=request.headers, content=body)
        again.extensions = request.extensions
        return self._network.handle_request(again)


class World:
    def __init__(self, urls: Sequence[str], seed: int, name: str = NAME) -> None:
        self.name = name
        self.random = random.Random(seed)
        self.asking = CoordinatorClient(urls, TOKEN, retry_s=60)
        self.clients = [
            WatermarkClient(urls, TOKEN, name, every_s=0.1, timeout_s=3, transport=Repeating(seed + n))
            for n in range(2)
        ]
        began_ms = time.time_ns() // 1_000_000 - 10_000_000
        self.read = {f"h{n}": began_ms for n in range(20)}
        self.extra: list[str] = []
        self.oracle_ms = self.seen_ms = 0
        self.asking.create_application(definition(self.name))
        self.asking.change_hosts(self.name, "web", "register", sorted(self.read))

    def read_on(self) -> None:
        for host in self.random.sample(sorted(self.read), 10):
            self.read[host] += self.random.randint(0, 2000)
        self.tell()

    def step(self) -> None:
        self.read_on()
        if self.random.random() < 0.1:
            self.extra.append(f"extra-{self.random.random()}")
            self.asking.change_hosts(self.name, "web", "register", self.extra[-1:])
        elif self.extra and self.random.random() < 0.3:
            self.asking.change_hosts(self.name, "web", "remove", [self.extra.pop()])

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

    def check_if_known(self, marks_ms: int | None) -> None:
        if marks_ms is not None:
            self.check(marks_ms)

    def go_on_until(self, is_so: Callable[[], object], what: object) -> None:
        """Read on, step by step, and check every watermark that is seen meanwhile."""

        def step() -> object:
            self.step()
            self.check(self.asking.application_watermarks(self.name).global_ms)
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
            self.asking.change_hosts(self.name, "web", "remove", [self.extra.pop()])
        self.read = dict.fromkeys(self.read, max(self.read.values()) + 1)
        self.tell()
        end_ms = self.oracle_ms

        def arrived() -> bool:
            self.check(self.asking.application_watermarks(self.name).global_ms)
            return self.seen_ms == end_ms

        eventually(arrived, "the watermark is where everything was read to", timeout_s=60)
        assert self.clients[0].may_close(end_ms, timeout_s=30)

    def close(self) -> None:
        for client in self.clients:
            client.close(timeout_s=1)
        self.asking.close()


@pytest.fixture
def pair(tmp_path: Path, zookeeper: str, unique_name: str) -> Iterator[Coordinators]:
    pair = Coordinators(tmp_path, zookeeper, f"/{unique_name}", 2)
    yield pair
    pair.stop()


@pytest.fixture
def three(tmp_path: Path, zookeeper: str, unique_name: str) -> Iterator[Coordinators]:
    three = Coordinators(tmp_path, zookeeper, f"/{unique_name}", 3)
    yield three
    three.stop()


def test_killed_stopped_and_repeated_it_never_falls_and_is_never_early(pair: Coordinators) -> None:
    world = World(pair.urls, seed=7)
    try:
        world.go_on_until_it_advances()
        while world.extra:
            world.asking.change_hosts(NAME, "web", "remove", [world.extra.pop()])
        # 1. killed between persisting and publishing
        dying = pair.owned(NAME)
        pair.fatal.touch()

        def has_died() -> bool:
            world.read_on()
            return pair.processes[dying].poll() is not None

        until(has_died, "it dies", poll_s=0.05)
        pair.fatal.unlink()
        state = pair.records.state(NAME)
        assert state is not None
        assert (state.global_ms or 0) >= world.seen_ms, "persisted, and told to nobody"
        world.check(world.asking.application_watermarks(NAME).global_ms)
        assert world.seen_ms >= (state.global_ms or 0), "the next owner begins with it"
        world.go_on_until_it_advances()
        pair.again()
        pair.await_all()
        # 2. killed at any moment
        pair.kill(pair.owned(NAME))
        world.go_on_until_it_advances()
        pair.again()
        pair.await_all()
        # 3. stopped for longer than its session
        stopped = pair.owned(NAME)
        other = next(url for url in pair.urls if url != stopped)
        pair.signal(stopped, signal.SIGSTOP)
        assert pair.owned(NAME, by_other_than=stopped) == other
        with CoordinatorClient([other], TOKEN, retry_s=30) as through_other:
            world.check(through_other.application_watermarks(NAME).global_ms)
        pair.signal(stopped, signal.SIGCONT)
        world.go_on_until(lambda: pair.answers(stopped), "who was stopped is back")
        world.go_on_until_it_advances()
        world.finish()
    finally:
        world.close()


def read_at(url: str, name: str) -> int | None:
    """Return the watermark to a reader who begins at this coordinator and goes where it is sent; None where
    nobody answers at this moment."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    path = f"{url}/api/v1/applications/{name}/watermarks"
    for _ in range(3):
        try:
            answer = httpx.get(path, headers=headers, timeout=patience_s(10))
        except httpx.ConnectError:
            return None  # it stands for election, and does not listen yet
        if answer.status_code == httpx.codes.OK:
            marks_ms = answer.json()["global_ms"]
            return 0 if marks_ms is None else int(marks_ms)
        assert answer.json()["code"] in ("not_owner", "not_leader"), answer.text
        if answer.status_code != httpx.codes.TEMPORARY_REDIRECT:
            return None
        path = answer.headers["location"]
    return None


def test_three_share_applications_and_one_that_is_killed_or_stopped_loses_its_own_alone(
    three: Coordinators,
) -> None:
    three.await_all()
    names: dict[str, str] = {}  # by the coordinator that should own it
    for number in range(1000):
        names.setdefault(chosen_owner(f"app{number}", three.urls), f"app{number}")
    worlds = {name: World(three.urls, seed, name) for seed, name in enumerate(names.values())}

    def all_advance() -> None:
        before_ms = {name: world.seen_ms for name, world in worlds.items()}

        def step() -> bool:
            for name, world in worlds.items():
                world.read_on()
                for url in three.urls:
                    if three.processes[url].poll() is None and url not in stopped:
                        world.check_if_known(read_at(url, name))
            return all(world.seen_ms > before_ms[name] for name, world in worlds.items())

        until(step, lambda: [client.problem for one in worlds.values() for client in one.clients])

    def epochs() -> dict[str, int]:
        states = {name: three.records.state(name) for name in worlds}
        return {name: state.epoch for name, state in states.items() if state is not None}

    stopped: set[str] = set()
    killed_url, stopped_url, _ = three.urls
    try:
        for url, name in names.items():
            eventually(lambda url=url, name=name: three.owner(name) == url, f"{name} is where it should be")
        with CoordinatorClient(three.urls, TOKEN, retry_s=60) as client:
            assert {one.application: one.owner for one in client.cluster().applications} == {
                name: url for url, name in names.items()
            }
        all_advance()
        # 1. one is killed: its application moves, the two others go on where they are
        before = epochs()
        three.kill(killed_url)
        taker = three.owned(names[killed_url], by_other_than=killed_url)
        assert taker == chosen_owner(names[killed_url], [url for url in three.urls if url != killed_url])
        all_advance()
        after = epochs()
        assert {name for name in before if before[name] != after[name]} == {names[killed_url]}
        # 2. it is back, and gets its own again
        three.again()
        eventually(lambda: three.owner(names[killed_url]) == killed_url, "it has its own", timeout_s=90)
        all_advance()
        # 3. one is stopped for longer than its session
        three.signal(stopped_url, signal.SIGSTOP)
        stopped.add(stopped_url)
        name = names[stopped_url]
        three.owned(name, by_other_than=stopped_url)
        all_advance()
        three.signal(stopped_url, signal.SIGCONT)
        stopped.clear()
        for _ in range(20):  # what it says as it wakes is no smaller either
            worlds[name].check_if_known(read_at(stopped_url, name))
        eventually(lambda: three.owner(name) == stopped_url, "it has its own again", timeout_s=90)
        all_advance()
        for world in worlds.values():
            world.finish()
    finally:
        for world in worlds.values():
            world.close()

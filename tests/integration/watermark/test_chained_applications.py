"""Two applications, joined by a topic on real Kafka, their watermarks on a real coordinator.

`up`: hosts → an operator with two key groups → two sinks, processes of their own, which write to a topic of
four partitions, one of which is always idle. `down`: two consumers of that topic, whose records are counted
by window until the window may close. The oracle is what the hosts logged.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.watermark.records.columns import batch_statements
from rtolap.watermark.records.leases import ProducerLeases
from rtolap.watermark.records.reader import WatermarkReader
from rtolap.watermark_client.client import WatermarkClient

from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration

PARTITIONS = 4
IDLE = PARTITIONS - 1
WINDOW_MS = 10_000
WINDOWS = 30
LEASE_MS = 5_000  # of who may be killed
GROUPS = 2
PRECISE = {"host_precise": {"delayed_hosts_ppm": 0}}
UP: dict[str, Any] = {
    "name": "up",
    "sources": [{"name": "web", "rule": PRECISE, "hosts": {"registry": {"lease_ms": 3_600_000}}}],
    "operators": [{"name": "split"}],
    "sinks": [{"name": "store", "unit_lease_ms": LEASE_MS}],
    "edges": [["web", "split"], ["split", "store"]],
}
DOWN: dict[str, Any] = {
    "name": "down",
    "sources": [
        {
            "name": "results",
            "rule": PRECISE,
            "hosts": {"registry": {"lease_ms": LEASE_MS}},
            "heartbeat_ms": 1000,  # its control records
        }
    ],
    "sinks": [{"name": "windows"}],
    "edges": [["results", "windows"]],
}


class Event(NamedTuple):
    id: int
    at_ms: int
    group: int
    partition: int


class Sinks:
    """One process a key group; what it has been sent and has not acknowledged is sent again to the next."""

    def __init__(self, command: Callable[[str], list[str]], log: Path) -> None:
        self._command = command
        self._log = log
        self._lock = threading.Lock()
        self.waiting: dict[int, dict[int, Event]] = {group: {} for group in range(GROUPS)}
        self._processes = {group: self._started(group) for group in range(GROUPS)}
        self.sent_again = 0

    def _started(self, group: int) -> subprocess.Popen[str]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command(f"store-{group}"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        threading.Thread(target=self._hear, args=(group, process), daemon=True).start()
        return process

    def _hear(self, group: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._lock:
                self.waiting[group].pop(int(line), None)

    def send(self, event: Event) -> None:
        with self._lock:
            self.waiting[event.group][event.id] = event
        self._write(event)

    def _write(self, event: Event) -> None:
        pipe = self._processes[event.group].stdin
        assert pipe is not None
        line = {"id": event.id, "at": event.at_ms, "partition": event.partition}
        try:
            pipe.write(json.dumps(line) + "\n")
            pipe.flush()
        except BrokenPipeError:
            pass  # it is dead, and the event waits for the next one

    def oldest_ms(self, group: int) -> int | None:
        with self._lock:
            return min((event.at_ms for event in self.waiting[group].values()), default=None)

    def kill(self, group: int) -> int:
        """Returns how many events it had not acknowledged."""
        self._processes[group].kill()
        self._processes[group].wait(30)
        return len(self.waiting[group])

    def start_again(self, group: int) -> None:
        self._processes[group] = self._started(group)
        with self._lock:
            again = list(self.waiting[group].values())
        self.sent_again += len(again)
        for event in again:
            self._write(event)

    def end(self) -> None:
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes.values():
            assert process.wait(patience_s(60)) == 0

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait(patience_s(30))


class Upstream:
    """The source and the operator of `up`, in this process."""

    def __init__(self, services: Services, urls: list[str], sinks: Sinks, seed: int) -> None:
        self.random = random.Random(seed)
        self.sinks = sinks
        began_ms = (time.time_ns() // 1_000_000 - 7_200_000) // WINDOW_MS * WINDOW_MS
        self.began_ms = began_ms
        self.logs: dict[str, list[Event]] = {}
        self.read: dict[str, int] = {}
        number = 0
        for host in ("h0", "h1", "h2", "h3"):
            times = sorted(
                self.random.randrange(WINDOWS * WINDOW_MS) for _ in range(self.random.randint(150, 300))
            )
            self.logs[host] = []
            for offset_ms in [*times, (WINDOWS + 1) * WINDOW_MS]:
                group = self.random.randrange(GROUPS)
                self.logs[host].append(
                    Event(number, began_ms + offset_ms, group, self.random.randrange(IDLE))
                )
                number += 1
            self.read[host] = 0
        services.coordinator.create_application(UP)
        services.coordinator.change_hosts("up", "web", "register", sorted(self.logs))
        self.client = WatermarkClient(urls, TOKEN, "up", every_s=0.1)

    def step(self, share: float, *, but: str | None = None) -> None:
        """Every host but one is read up to that share of its log, and a little more or less."""
        fresh: list[Event] = []
        for host, log in self.logs.items():
            if host != but:
                upto = (
                    min(len(log), int(len(log) * share) + self.random.randrange(-3, 6))
                    if share < 1
                    else len(log)
                )
                fresh += log[self.read[host] : upto]
                self.read[host] = max(self.read[host], upto)
        self.random.shuffle(fresh)  # events of different hosts come in any order
        for event in fresh:
            self.sinks.send(event)
        self.say()

    def say(self) -> None:
        """First the work, then the progress that lies beyond it."""
        for group in range(GROUPS):
            self.client.set_oldest_work("split", "op", group, self.sinks.oldest_ms(group))
        seen = {host: log[self.read[host] - 1].at_ms for host, log in self.logs.items() if self.read[host]}
        self.client.report_progress("web", 0, 0, list(seen), list(seen.values()), partitions=1)

    def oracle_ms(self) -> int:
        """Nothing before this is still to come to the topic."""
        hosts = [
            log[read - 1].at_ms if read else 0
            for log, read in zip(self.logs.values(), self.read.values(), strict=True)
        ]
        work = [oldest for group in range(GROUPS) if (oldest := self.sinks.oldest_ms(group)) is not None]
        return min(hosts + work)

    def by_window(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        for log in self.logs.values():
            for event in log:
                found[event.at_ms // WINDOW_MS * WINDOW_MS].add(event.id)
        return found


class Downstream:
    """Consumers of the topic and the windows that they count into. A consumer that dies loses its positions
    since the last commit, so that records are read again."""

    def __init__(self, services: Services, urls: list[str], kafka: str, topic: str) -> None:
        self._services, self._urls, self._kafka, self._topic = services, urls, kafka, topic
        services.coordinator.create_application(DOWN)
        self.generation = 0
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        self.counted: dict[int, set[int]] = defaultdict(set)
        self.closed: dict[int, set[int]] = {}
        self.read_again = 0
        self._seen: set[tuple[int, int]] = set()
        self.consumers = {name: Consumer(services, urls, kafka, topic) for name in ("a", "b")}
        self.share({"a": [0, 1], "b": [2, 3]})

    def share(self, partitions: dict[str, list[int]]) -> None:
        """A rebalance: everybody stops, and goes on from what is committed, in a new generation."""
        self.generation += 1
        for name, mine in partitions.items():
            self.consumers[name].assign({at: self.committed[at] for at in mine}, self.generation)

    def die(self, name: str) -> None:
        self.consumers.pop(name).close()

    def begin(self, name: str) -> None:
        self.consumers[name] = Consumer(self._services, self._urls, self._kafka, self._topic)

    def commit(self) -> None:
        for consumer in self.consumers.values():
            self.committed |= consumer.kafka.position()

    def step(self) -> None:
        for consumer in self.consumers.values():
            batch = consumer.kafka.poll(500, 0.01)
            told = batch_statements(batch)
            assert told is not None
            for value, partition, offset, is_control in zip(
                batch.values, batch.partitions.tolist(), batch.offsets.tolist(), told.control, strict=True
            ):
                if is_control:
                    assert value is None
                    continue
                event = json.loads(value or b"")
                self.counted[event["at"] // WINDOW_MS * WINDOW_MS].add(event["id"])
                self.read_again += (partition, offset) in self._seen
                self._seen.add((partition, offset))
            consumer.reader.took(told.statements)
        self.close_windows()

    def watermarks_ms(self) -> list[int]:
        """As the consumers know it."""
        return [one.client.global_watermark() or 0 for one in self.consumers.values()]

    def close_windows(self) -> None:
        client = next(iter(self.consumers.values())).client
        for start_ms in sorted(self.counted):
            if start_ms not in self.closed and client.may_close(start_ms + WINDOW_MS):
                self.closed[start_ms] = set(self.counted[start_ms])

    def close(self) -> None:
        for name in list(self.consumers):
            self.die(name)


class Consumer:
    def __init__(self, services: Services, urls: list[str], kafka: str, topic: str) -> None:
        self.kafka = KafkaConsumer(kafka, topic, with_statements=True)
        self.client = WatermarkClient(urls, TOKEN, "down", every_s=0.1)
        self.leases = ProducerLeases(services.coordinator.change_hosts, "down", "results")
        self.reader = WatermarkReader(self.client, "results", leases=self.leases)

    def assign(self, offsets: dict[int, int], generation: int) -> None:
        self.kafka.assign(offsets)
        self.reader.assign(dict.fromkeys(offsets, generation), PARTITIONS)

    def close(self) -> None:
        self.kafka.close()
        self.leases.close()
        self.client.close(timeout_s=1)


class World:
    def __init__(
        self, folder: Path, zookeeper: str, kafka: str, topic: str, *, seed: int, silent: bool
    ) -> None:
        self.services = Services(folder, zookeeper=zookeeper, root=f"/{topic}", kafka=kafka, coordinators=1)
        try:
            self.services.start_coordinators()
            urls = self.services.environment["RTOLAP_COORDINATORS"].split(",")

            def command(name: str) -> list[str]:
                module = [sys.executable, "-m", "tests.support.watermarks.watermark_sink"]
                where = [kafka, topic, name, "up", "store", ",".join(urls), TOKEN]
                return [*module, *where, *(["--silent"] if silent else [])]

            self.sinks = Sinks(command, folder / "sinks.log")
            self.up = Upstream(self.services, urls, self.sinks, seed)
            self.down = Downstream(self.services, urls, kafka, topic)
        except BaseException:
            self.services.close()
            raise

    def close(self) -> None:
        self.sinks.close()
        self.down.close()
        self.up.client.close(timeout_s=1)
        self.services.close()


@pytest.fixture
def world(
    tmp_path: Path, zookeeper: str, kafka: str, create_topic: Callable[..., str]
) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(**options: Any) -> World:
        topic = create_topic(partitions=PARTITIONS)
        made.append(World(tmp_path, zookeeper, kafka, topic, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def go_on(world: World, share_from: float, share_to: float, *, steps: int, but: str | None = None) -> None:
    """Read that part of the hosts' logs, step by step, and count downstream what has come."""
    for step in range(steps):
        world.up.step(share_from + (share_to - share_from) * (step + 1) / steps, but=but)
        count(world)


def count(world: World) -> None:
    world.down.step()
    told_ms = world.down.watermarks_ms()
    assert max(told_ms) <= world.up.oracle_ms(), "early"


def go_on_until(world: World, what: str, condition: Callable[[], bool]) -> None:
    """Nothing new is logged; both applications work on."""

    def met() -> bool:
        world.up.say()
        count(world)
        return condition()

    wait_for(what, met, timeout_s=90)


def catch_up(world: World, *, lost: int | None = None) -> None:
    """Downstream is told all that is true, so that a little more would be found out. `lost`: the sink that
    is dead, whose work nobody finishes."""

    def level() -> bool:
        working = any(events for group, events in world.sinks.waiting.items() if group != lost)
        return not working and set(world.down.watermarks_ms()) == {world.up.oracle_ms()}

    go_on_until(world, "downstream is where upstream is", level)
    world.down.close_windows()


def test_a_window_downstream_never_closes_before_the_last_event_of_it_was_read(
    world: Callable[..., World],
) -> None:
    run = world(seed=11, silent=False)
    up, down, sinks = run.up, run.down, run.sinks
    wanted = up.by_window()
    go_on(run, 0.0, 0.2, steps=40)
    catch_up(run)
    assert len(down.closed) > 2
    # A host that is late upstream holds the windows downstream.
    held = up.logs["h3"][up.read["h3"] - 1].at_ms
    go_on(run, 0.2, 0.4, steps=40, but="h3")
    catch_up(run)
    assert up.oracle_ms() == held
    assert max(down.closed) + WINDOW_MS <= held, "a host has not logged so far"
    assert max(down.counted) > held + 2 * WINDOW_MS, "others have"
    down.commit()
    # A producer is killed with events on their way, and its successor is sent them again.
    closed = len(down.closed)
    up.step(0.5)
    unacknowledged = sinks.kill(0)
    assert unacknowledged, "it died with work"
    lost_ms = sinks.oldest_ms(0)
    go_on(run, 0.5, 0.55, steps=20)
    catch_up(run, lost=0)  # which ends the leases of the dead one too
    assert up.oracle_ms() == lost_ms, "work that nobody has finished holds both applications"
    sinks.start_again(0)
    assert sinks.sent_again >= unacknowledged
    go_on(run, 0.55, 0.6, steps=20)
    catch_up(run)
    assert len(down.closed) > closed + 2
    # Downstream a consumer dies: the other goes on from what was committed, so records are read again.
    down.die("b")
    go_on(run, 0.6, 0.65, steps=20)
    down.share({"a": [0, 1, 2, 3]})
    closed = len(down.closed)
    go_on(run, 0.65, 0.8, steps=30)
    catch_up(run)
    assert len(down.closed) > closed + 2
    assert down.read_again, "records were read twice"
    # And two again.
    down.commit()
    down.begin("b")
    down.share({"b": [0, 3], "a": [1, 2]})
    go_on(run, 0.8, 1.0, steps=30)
    catch_up(run)
    last = max(wanted)  # holds the last event of each host, and cannot be over
    assert {start_ms: ids for start_ms, ids in wanted.items() if start_ms != last} == down.closed
    # Producers that have ended are no longer waited for.
    sinks.end()
    go_on_until(
        run,
        "both producers leave",
        lambda: run.services.coordinator.application_hosts("down", "results").counting == 0,
    )


def test_without_control_records_the_idle_partition_holds_everything_and_is_named(
    world: Callable[..., World],
) -> None:
    run = world(seed=12, silent=True)
    go_on(run, 0.0, 1.0, steps=60)
    go_on_until(run, "everything is in the log", lambda: not any(run.sinks.waiting.values()))
    upstream_ms = run.up.began_ms + WINDOWS * WINDOW_MS
    go_on_until(run, "upstream knows", lambda: (run.up.client.global_watermark() or 0) >= upstream_ms)
    run.up.logs["h0"].extend(
        Event(-1 - at, upstream_ms + WINDOW_MS, at % GROUPS, at % IDLE) for at in range(GROUPS * IDLE)
    )
    run.up.step(1.0)  # every producer states it in every partition that has records
    go_on_until(
        run, "the others are read", lambda: len(run.down.counted[upstream_ms + WINDOW_MS]) >= GROUPS * IDLE
    )

    def reasons() -> tuple[str, ...]:
        return run.services.coordinator.explain_window("down", run.up.began_ms + WINDOW_MS).reasons

    named = f"results: 1 partitions have not reported to this owner yet: {IDLE}"
    go_on_until(run, "the reason names the idle partition", lambda: named in reasons())
    assert run.down.closed == {}
    assert run.services.coordinator.application_watermarks("down").global_ms is None

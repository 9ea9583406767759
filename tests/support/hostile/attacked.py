"""One attack of a plain user on a whole cluster, and what it costs others: answers, latency, memory.

The bounds of memory are those of "Memory of each service" in docs/security.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from confluent_kafka.cimpl import NewTopic
from rtolap.query.memory_budget import BudgetLimits
from rtolap.query.statement_service import QueryLimits
from rtolap.query.workers.pool import bound_bytes
from rtolap.sep.consumer.limits import ConsumerSettings

from tests.support.hostile.hostile_world import HostileWorld
from tests.support.hostile.process_memory import private_bytes_of_children, watched
from tests.support.hostile.well_behaved import WellBehaved
from tests.support.kafka_topics import create_topic
from tests.support.paths import PYTHONPATH
from tests.support.sep.held_consumer import HeldConsumer, held_consumer
from tests.support.waiting import patience_s

MIB = 1 << 20
STEPS_MIN = 5  # of the others, however soon an attack is over
QUERY, WORKERS, CAPTURE = "query", "workers", "capture"
# What an attack of one user may add to a process, with its default settings.
BOUND_MIB = {
    QUERY: BudgetLimits().user_bytes // MIB + 256,
    WORKERS: bound_bytes(QueryLimits().memory_bytes) // MIB,
    "coordinator-0": 256,
    "r1": 256,
    "agent": 128,
    "endpoint-0": 512,
    "node-0": 512,
    CAPTURE: ConsumerSettings().bytes_in_flight_max // MIB + 128,
}
# Of the query service, where what it would keep is less than that: trees of eight texts took 300 MiB.
CLOSER_BOUND_MIB = {"prepared trees": 128, "set doubling": 128, "nested set": 128, "heavy texts": 128}


class Attacked(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured beside one attack.

    Attributes:
        came: what the attacker was answered.
        asked: how often each kind of well-behaved client asked; all answers were right.
        p99_ms: of these.
        peak_mib: the highest resident memory of each process (VmHWM); of workers, private memory of all.
        growth_mib: that, above what it was when the attack began.
    """

    attack: str
    came: dict[str, int]
    asked: dict[str, int]
    p99_ms: dict[str, float]
    peak_mib: dict[str, int]
    growth_mib: dict[str, int]

    def check(self) -> None:
        """Raise AssertionError where a process had more memory than its bound, or a client no answer."""
        assert sum(self.came.values()) > 0, f"{self.attack}: it did nothing"
        bounds = {**BOUND_MIB, QUERY: CLOSER_BOUND_MIB.get(self.attack, BOUND_MIB[QUERY])}
        over = {name: size for name, size in self.growth_mib.items() if size > bounds[name]}
        assert not over, f"{self.attack}: grew by {over} MiB, expected at most {bounds}"
        few = {kind: count for kind, count in self.asked.items() if count < (kind != "load") * STEPS_MIN}
        assert not few, f"{self.attack}: the others were answered {few} times only"


class AttackedCluster:
    """A cluster on real servers with the default settings of its services, and who uses it well."""

    def __init__(self, world: HostileWorld, consumer: HeldConsumer, client: WellBehaved) -> None:
        self.world = world
        self._consumer = consumer
        self._client = client

    def attack(self, name: str, seed: int) -> Attacked:
        """Let the attack run to its end. Raises AssertionError for a wrong answer to a well-behaved client,
        and for an attacker who was neither answered nor refused.
        """
        self._client.forget()
        pids = {**self.world.pids(), CAPTURE: self._consumer.process.pid}
        processes = {process: watched(pid) for process, pid in pids.items()}
        at_rest = workers = private_bytes_of_children(pids[QUERY])
        attacker = self._started(name, seed)
        try:
            while attacker.poll() is None or len(self._client.latencies_s["http"]) < STEPS_MIN:
                self._client.step()
                workers = max(workers, private_bytes_of_children(pids[QUERY]))
        finally:
            attacker.kill()
            out, failed = attacker.communicate(timeout=patience_s(30))
        assert attacker.returncode == 0, f"{name}: {failed.decode()[-2000:]}"
        growth = {process: each.growth_bytes() // MIB for process, each in processes.items()}
        peaks = {process: each.peak_bytes() // MIB for process, each in processes.items()}
        latencies = self._client.latencies_s
        return Attacked(
            attack=name,
            came=msgspec.json.decode(out, type=dict[str, int]),
            asked={kind: len(found) for kind, found in latencies.items()},
            p99_ms={kind: round(self._client.p99_s(kind) * 1000) for kind in latencies},
            peak_mib={**peaks, WORKERS: workers // MIB},
            growth_mib={**growth, WORKERS: (workers - at_rest) // MIB},
        )

    def _started(self, name: str, seed: int) -> subprocess.Popen[bytes]:
        path = self.world.folder / "targets.json"
        path.write_bytes(msgspec.json.encode(self.world.targets(self._consumer.port, seed)))
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.hostile.user_attacks", str(path), name],
            cwd=self.world.folder,
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@contextmanager
def attacked_cluster(folder: Path, zookeeper: str, kafka: str) -> Iterator[AttackedCluster]:
    """Yield a cluster of its own on these servers, with a consumer of change capture beside it."""

    def topic(name: str, partitions: int) -> None:
        create_topic(kafka, NewTopic(name, num_partitions=partitions, replication_factor=1))

    with ExitStack() as opened:
        world = opened.enter_context(HostileWorld(folder, zookeeper, kafka, topic, query_options=()))
        world.start()
        consumer = opened.enter_context(held_consumer(ConsumerSettings(), graces=True))
        consumer.go()
        client = opened.enter_context(WellBehaved(world, consumer.port))
        client.step()
        yield AttackedCluster(world, consumer, client)


def table_of(reports: Sequence[Attacked]) -> str:
    """Return a line for each attack: p99 of each kind of client, then the highest memory of each process."""
    kinds, processes = list(reports[0].p99_ms), list(BOUND_MIB)
    lines = [["attack", *(f"{kind} ms" for kind in kinds), *(f"{process} MiB" for process in processes)]]
    lines += [
        [
            report.attack,
            *(f"{report.p99_ms[kind]:.0f}" for kind in kinds),
            *(f"{report.peak_mib[process]} (+{report.growth_mib[process]})" for process in processes),
        ]
        for report in reports
    ]
    lines.append(["may grow by", *("" for _ in kinds), *(str(size) for size in BOUND_MIB.values())])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )

"""Processor time and memory of services while nothing happens, by the number of cubes.

    python -m benchmarks.idle [--cubes 1,10,30] [--seconds 20] [--profile] [--json]

Real ZooKeeper, Kafka, coordinator, receiver and query service on loopback. All cubes are of one topic of four
partitions, in which there are some thousand events; each has read them. Then nobody sends or asks anything.
`first_event_ms` is the median of the time from sending an event, behind seconds without any, until SQL counts
it. `--profile` prints where the receiver spends its time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import msgspec
import psutil
from confluent_kafka import Producer
from rtolap.model.cube import Schema

from benchmarks import events, hooks, sampled
from benchmarks.first_answers import declared
from benchmarks.servers import fill, kafka, zookeeper
from tests.support.cubes.services import Services, wait_for

TOPIC = "idle"
PARTITIONS = 4
EVENTS = 5_000
PLACES = 40  # of the profile
FIRST_EVENTS = 7
COUNTED_S_MAX = 30.0
SILENT_S = 6.0  # a cube is idle then
SETTLE_S = 12.0  # the last batch's checkpoint and its merges are over


class Idle:
    """Services whose cubes grow in number."""

    def __init__(self, services: Services, schema: Schema, bootstrap: str) -> None:
        self._services, self._schema, self._cubes, self._events = services, schema, 0, EVENTS
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        services.coordinator.put_replica_set("rs", ("r0",))
        services.coordinator.create_table(msgspec.to_builtins(schema.table))
        wait_for("the receiver lives", lambda: len(services.coordinator.receivers()) == 1)

    def grow(self, cubes: int) -> None:
        """Have so many cubes that have read all events."""
        client = self._services.coordinator
        while self._cubes < cubes:
            cube = msgspec.structs.replace(self._schema.cube, name=f"{TOPIC}_{self._cubes}")
            client.create_cube(msgspec.to_builtins(cube))
            client.enable_cube(cube.name)
            wait_for("all events are read", partial(self._has_read, cube.name))
            self._cubes += 1

    def _has_read(self, cube: str) -> bool:
        rows = self._services.sql(f"SELECT COUNT(*) FROM {cube}")["rows"]
        return bool(rows[0][0] == self._events)

    def measure(self, seconds: float) -> dict[str, float]:
        processes = {name: psutil.Process(pid) for name, pid in self._services.pids().items()}
        before = {name: _spent_s(process) for name, process in processes.items()}
        began_s = time.monotonic()
        time.sleep(seconds)
        took_s = time.monotonic() - began_s
        found = {
            f"{name}_ms_per_s": (_spent_s(p) - before[name]) / took_s * 1000 for name, p in processes.items()
        }
        found |= {f"{name}_mb": p.memory_info().rss / 1e6 for name, p in processes.items()}
        return {"cubes": self._cubes, **found, "first_event_ms": self._first_event_ms()}

    def _first_event_ms(self) -> float:
        took_ms = []
        for number in range(FIRST_EVENTS):
            time.sleep(SILENT_S)
            began_s = time.monotonic()
            self._producer.produce(TOPIC, events.values(1, seed=number)[0], partition=number % PARTITIONS)
            self._producer.poll(0)
            self._events += 1
            while not self._has_read(f"{TOPIC}_0"):
                if time.monotonic() - began_s > COUNTED_S_MAX:
                    raise SystemExit(f"an event was not counted within {COUNTED_S_MAX} s")
            took_ms.append((time.monotonic() - began_s) * 1000)
        self._producer.flush(COUNTED_S_MAX)
        return statistics.median(took_ms)


def _spent_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def measure(
    bootstrap: str, ensemble: str, folder: Path, cubes: list[int], seconds: float, *, profiled: bool
) -> list[dict[str, float]]:
    schema = declared(TOPIC)
    fill(bootstrap, TOPIC, events.values(EVENTS, seed=1), partitions=PARTITIONS)
    services = Services(folder, zookeeper=ensemble, root="/bench", kafka=bootstrap, coordinators=1)
    samples = folder / "samples"
    if profiled:
        services.environment |= hooks.environment([sampled.hook(samples)])
    try:
        services.start_coordinators()
        services.start_receiver("r0", "rs")
        services.start_query()
        idle, found = Idle(services, schema, bootstrap), []
        for number in cubes:
            idle.grow(number)
            time.sleep(SETTLE_S)
            before = sampled.taken_ns(samples) if profiled else None
            found.append(idle.measure(seconds))
            if before is not None:
                sampled.report(before, sampled.taken_ns(samples), seconds, PLACES)
        return found
    finally:
        services.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cubes", default="1,10,30", help="numbers of cubes, the least first")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--profile", action="store_true", help="where the receiver spends its time")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    cubes = [int(number) for number in arguments.cubes.split(",")]
    with kafka() as bootstrap, zookeeper() as ensemble, tempfile.TemporaryDirectory() as folder:
        found = measure(
            bootstrap, ensemble, Path(folder), cubes, arguments.seconds, profiled=arguments.profile
        )
    for one in found:
        print(", ".join(f"{name} {value:.1f}" for name, value in one.items()))
    if arguments.json:
        each_ms = {
            name: round((found[-1][name] - found[0][name]) / max(1, cubes[-1] - cubes[0]), 2)
            for name in found[0]
            if name.endswith(("_ms_per_s", "_mb"))
        }
        print(json.dumps({"benchmark": "idle", "for_each_further_cube": each_ms, "found": found}))


if __name__ == "__main__":
    main()

"""A receiver that begins far behind: its memory while it catches up, and what the peak is made of.

Run by `python -m benchmarks.catch_up --behind 8000000 [--pages 400] [--settle-s 5]`. Real ZooKeeper, Kafka,
coordinator, receiver and query service on loopback. All events are in the topic before the cube is enabled.
The receiver's memory is noted every 20 ms until a statement counts all events, and for `--settle-s` more,
because merges follow the reading. `peak_mb` is the kernel's own high-water mark.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

import msgspec

from benchmarks import events
from benchmarks.freshness.asking import Asker, answering
from benchmarks.freshness.run import CATCH_UP_S
from benchmarks.freshness.stream import PARTITIONS, TOPIC, send_held
from benchmarks.process_figures import cpu_s, memory_mb, service_process
from benchmarks.servers import create_topic, kafka, zookeeper
from tests.support.cubes.services import Services, wait_for

NOTED_S = 0.02
ASKED_S = 0.1


class MemoryWatch:
    """Records the receiver's memory of its own and of mapped files at the moment of its largest own."""

    def __init__(self) -> None:
        self.own_mb = self.mapped_mb = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        status = Path("/proc") / str(service_process("receiver").pid) / "status"
        while not self._stopping.wait(NOTED_S):
            lines = status.read_text().splitlines()
            kb = {line.split()[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}
            if kb["RssAnon:"] / 1024 > self.own_mb:
                self.own_mb = kb["RssAnon:"] / 1024
                self.mapped_mb = kb["RssFile:"] / 1024


def run(count: int, pages: int, settle_s: float) -> dict[str, float]:
    count = count // PARTITIONS * PARTITIONS
    with (
        kafka() as bootstrap,
        zookeeper() as ensemble,
        tempfile.TemporaryDirectory(prefix="rtolap-bench-") as folder,
    ):
        create_topic(bootstrap, TOPIC, PARTITIONS)
        send_held(bootstrap, count, pages)
        services = Services(Path(folder), zookeeper=ensemble, root="/bench", kafka=bootstrap, coordinators=1)
        try:
            return _caught_up(services, count, settle_s)
        finally:
            services.close()


def _caught_up(services: Services, count: int, settle_s: float) -> dict[str, float]:
    services.start_coordinators()
    services.start_receiver("r0", "rs")
    services.start_query()
    schema, client = events.schema(TOPIC), services.coordinator
    client.put_replica_set("rs", ("r0",))
    client.create_table(msgspec.to_builtins(schema.table))
    client.create_cube(msgspec.to_builtins(schema.cube))
    wait_for("the receiver lives", lambda: len(client.receivers()) == 1)
    idle = memory_mb("receiver")
    watch, receiver = MemoryWatch(), service_process("receiver")
    used_s, begun_s = cpu_s(receiver), time.monotonic()
    client.enable_cube(schema.cube.name)
    asker = Asker(services, schema.cube.name)
    wait_for("the cube answers", lambda: answering(asker))

    def read() -> bool:
        time.sleep(ASKED_S)
        return sum(asker.ask()) == count

    wait_for("all events are counted", read, CATCH_UP_S)
    took_s, used_s = time.monotonic() - begun_s, cpu_s(receiver) - used_s
    time.sleep(settle_s)
    watch.stop()
    settled = memory_mb("receiver")
    return {
        "events": count,
        "seconds": took_s,
        "cpu_us_per_event": used_s / count * 1e6,
        "idle_mb": idle["receiver_held_mb"],
        "peak_mb": settled["receiver_peak_mb"],
        "peak_own_mb": watch.own_mb,
        "mapped_then_mb": watch.mapped_mb,
        "settled_mb": settled["receiver_held_mb"],
        "settled_own_mb": settled["receiver_own_mb"],
    }

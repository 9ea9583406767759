"""The cost of watermarks for the coordinator: hosts x partitions reported each second over REST.

    python -m benchmarks.watermark_server [--hosts 10000] [--partitions 64] [--clients 8] [--seconds 20]
                                          [--spread 1] [--deficit] [--json]

A real ZooKeeper, one coordinator as its own process, and clients as threads of this one (`WatermarkClient`,
a batch a second). `--spread` is on how many partitions each host logs: 1 is the contract of the source (a
host publishes to one partition), more reports hosts x spread rows a second. Every client consumes its share
of the partitions and has all its rows changed in every second. The server's share is its processor time
over the wall clock, ticks, persisting and answering included, after all hosts have been reported once;
memory is its resident size. At the end the global watermark is compared with the slowest host that was
reported.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from rtolap.base.errors import RtolapError
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.stack.ports import free_port
from rtolap.watermark_client.client import WatermarkClient

from benchmarks.servers import zookeeper

TOKEN = "a-token-of-the-benchmark"
NAME = "bench"


def application(deficit: bool) -> dict[str, object]:
    rule: dict[str, object] = {"host_precise": {"delayed_hosts_ppm": 1000}}
    if deficit:
        rule = {"deficit": {"missing_events_ppm": 100, "window_ms": 300_000}}
    return {
        "name": NAME,
        "sources": [{"name": "web", "rule": rule, "hosts": {"registry": {"lease_ms": 3_600_000}}}],
        "sinks": [{"name": "store"}],
        "edges": [["web", "store"]],
    }


class Consumer:
    """Reports some of the partitions."""

    def __init__(self, url: str, partitions: dict[int, list[str]], counts: bool) -> None:
        self.client = WatermarkClient([url], TOKEN, NAME)
        self.partitions = partitions
        self.counts = counts

    def read(self, latest_ms: int) -> None:
        for partition, hosts in self.partitions.items():
            latest = np.full(len(hosts), latest_ms)
            events = np.full(len(hosts), 10) if self.counts else None
            self.client.report_progress("web", partition, 0, hosts, latest, events)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--spread", type=int, default=1, help="partitions per host")
    parser.add_argument("--deficit", action="store_true", help="the deficit rule, with counts in the reports")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with zookeeper() as ensemble, tempfile.TemporaryDirectory(prefix="rtolap-bench-") as folder:
        figures = measure(arguments, ensemble, Path(folder))
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        for key, value in figures.items():
            print(f"{key:<24} {value}")


def measure(arguments: argparse.Namespace, ensemble: str, folder: Path) -> dict[str, object]:
    (folder / "token").write_text(TOKEN)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "RTOLAP_ZOOKEEPER": ensemble,
        "RTOLAP_KAFKA": f"127.0.0.1:{free_port({port})}",  # nothing listens there: no cube, no call
        "RTOLAP_OBJECT_STORE": f"file://{folder}/store",
        "RTOLAP_DATA_DIR": str(folder / "data"),
        "RTOLAP_TOKEN_FILE": str(folder / "token"),
        "RTOLAP_COORDINATOR_PORT": str(port),
    }
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "rtolap.cli.main", "coordinator", "serve"],
            env=environment,
            stdout=log,
            stderr=log,
        )
    consumers: list[Consumer] = []
    try:
        with CoordinatorClient([url], TOKEN, retry_s=60) as asking:
            asking.create_application(application(arguments.deficit))
            idle_bytes = psutil.Process(server.pid).memory_info().rss
            names = [f"web-{n:06d}.example" for n in range(arguments.hosts)]
            asking.change_hosts(NAME, "web", "register", names)
            consumers = start_consumers(arguments, url, names)
            return measured(arguments, server.pid, asking, consumers, idle_bytes)
    except RtolapError:
        print((folder / "log").read_text()[-5000:], file=sys.stderr)
        raise
    finally:
        for consumer in consumers:
            consumer.client.close()
        server.terminate()
        server.wait(30)


def start_consumers(arguments: argparse.Namespace, url: str, names: list[str]) -> list[Consumer]:
    partitions: dict[int, list[str]] = {p: [] for p in range(arguments.partitions)}
    for n, name in enumerate(names):
        for step in range(arguments.spread):
            partitions[(n + step) % arguments.partitions].append(name)
    shares: list[dict[int, list[str]]] = [{} for _ in range(arguments.clients)]
    for partition, hosts in partitions.items():
        shares[partition % arguments.clients][partition] = hosts
    return [Consumer(url, share, arguments.deficit) for share in shares if share]


def measured(
    arguments: argparse.Namespace,
    pid: int,
    asking: CoordinatorClient,
    consumers: list[Consumer],
    idle_bytes: int,
) -> dict[str, object]:
    for consumer in consumers:
        consumer.read(now_ms() - 5_000)
        consumer.client.flush(60)
    process = psutil.Process(pid)
    batches = asking.application(NAME).counters["batches"]
    began_s, used_s = time.monotonic(), sum(process.cpu_times()[:2])
    said_ms = now_ms()
    for second in range(arguments.seconds):
        said_ms = now_ms()
        for consumer in consumers:
            consumer.read(said_ms)
        time.sleep(max(0.0, began_s + second + 1 - time.monotonic()))
    wall_s, used_s = time.monotonic() - began_s, sum(process.cpu_times()[:2]) - used_s
    batches = asking.application(NAME).counters["batches"] - batches
    resident = process.memory_info().rss
    for consumer in consumers:
        consumer.client.flush(60)
    deadline_s = time.monotonic() + 30
    while (marks := asking.application_watermarks(NAME)).global_ms != said_ms:
        if time.monotonic() > deadline_s:
            raise AssertionError(f"the watermark is {marks.global_ms}, the slowest host is at {said_ms}")
        time.sleep(0.1)
    return {
        "hosts": arguments.hosts,
        "partitions": arguments.partitions,
        "clients": len(consumers),
        "rows_per_second": arguments.hosts * arguments.spread,
        "rule": "deficit" if arguments.deficit else "host_precise",
        "batches_per_second": round(batches / wall_s, 1),
        "share_of_one_core": round(used_s / wall_s, 4),
        "resident_mb": round(resident / 2**20, 1),
        "resident_mb_before": round(idle_bytes / 2**20, 1),
    }


if __name__ == "__main__":
    main()

"""Several consumers of a capture subscription: events a second and processor time for each, by their number.

    python -m benchmarks.sep --consumers 1,2 [--events 400000] [--json]

Each consumer is a process, `rtolap sep serve`, over a ZooKeeper and a Kafka of the benchmark's own. A process
in the place of the region servers ships the same calls to the ports of all consumers, two at a time to each,
and events go into a topic in transactions. A subscription with one consumer is served as it always was. Of a
subscription with N an event is handed on with a chance of (N - 1) / N.

`processor_us` is the processor time of all consumers for an event, from the first call to the last answer.
Where no more cores are free than consumers, events a second do not grow; the processor time says what will.
Processes that run side by side slow each other down. `apart_us` says how much: the same, by as many
subscriptions of one consumer each, none of which hands anything on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
from rtolap.metadata.store import Create
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.model.subscription import CellColumn, HBaseSource, Subscription, SubscriptionListener
from rtolap.sep.shares.nodes import ShareNodes
from rtolap.sep.subscriptions.records import SubscriptionPaths, SubscriptionRecord

from benchmarks.sep_ports import PORTS, Spent
from benchmarks.servers import kafka, zookeeper

_START_S = 120.0
_ROWS_PER_ENTRY = 1


def measure_consumers(counts: Sequence[int], events: int) -> dict[str, dict[str, float]]:
    """Return the figures by the number of consumers."""
    figures: dict[str, dict[str, float]] = {}
    with zookeeper() as ensemble, kafka() as bootstrap:
        store = ZooKeeperStore(ensemble, root="/")
        try:
            for count in counts:
                shared = _measure(store, ensemble, bootstrap, [count], events)
                apart = _measure(store, ensemble, bootstrap, [1] * count, events) if count > 1 else shared
                figures[str(count)] = {
                    "consumers": count,
                    "events_per_s": round(events / shared.clock_s),
                    "processor_us": round(shared.processor_s / events * 1e6, 2),
                    "apart_us": round(apart.processor_s / events * 1e6, 2),
                }
        finally:
            store.close()
    return figures


def _measure(
    store: ZooKeeperStore, ensemble: str, bootstrap: str, counts: Sequence[int], events: int
) -> Spent:
    """Ship the events to subscriptions, each of as many consumers as `counts` says."""
    with ExitStack() as opened:
        ports: list[int] = []
        processes: list[subprocess.Popen[bytes]] = []
        for count in counts:
            paths = _subscribe(store, ensemble, count)
            processes += opened.enter_context(_consumers(paths.name, ensemble, bootstrap, count))
            _wait(lambda paths=paths, count=count: _are_ready(store, paths, count))  # type: ignore[misc]
            ports += [int(server.split(",")[1]) for server in store.children(paths.rs)]
        shipping = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.sep_ports", "--ports", ",".join(map(str, ports))),
                *("--events", str(events), "--rows", str(_ROWS_PER_ENTRY)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert shipping.stdin is not None
        assert shipping.stdout is not None
        shipping.stdout.readline()  # all is encoded
        watched = [psutil.Process(process.pid) for process in processes]
        began_s, spent_s = time.monotonic(), _processor_s(watched)
        shipping.stdin.write("go\n")
        shipping.stdin.flush()
        shipping.stdout.readline()  # all is answered
        spent = Spent(_processor_s(watched) - spent_s, time.monotonic() - began_s)
        shipping.communicate()
        if shipping.returncode:
            raise RuntimeError("a call was not answered well: see the log of the consumers")
        return spent


def _subscribe(store: ZooKeeperStore, ensemble: str, count: int) -> SubscriptionPaths:
    """Make the nodes of a subscription that no HBase knows of."""
    name = f"bench_{count}_{uuid.uuid4().hex[:8]}"
    record = SubscriptionRecord(
        subscription=Subscription(
            name=name,
            source=HBaseSource(ensemble),
            tables={"orders": ()},
            columns={"amount": CellColumn("cf:amount")},
            listener=SubscriptionListener("kafka", topic=name),
            consumers=count,
            allowed_addresses=("127.0.0.1",),
        ),
        cluster_id=str(uuid.uuid4()),
        start_ms=0,
        phase="created",
    )
    store.commit([Create(record.paths.definition, record.encode()), Create(record.paths.rs, b"")])
    return record.paths


def _are_ready(store: ZooKeeperStore, paths: SubscriptionPaths, count: int) -> bool:
    holders = ShareNodes(store, paths, count).look().holders
    is_spread = count == 1 or len(set(holders.values())) == count
    return is_spread and len(store.children(paths.rs)) == count * PORTS


def _processor_s(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)


def _wait(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _START_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the consumers do not get ready")
        time.sleep(0.1)


@contextmanager
def _consumers(
    name: str, ensemble: str, bootstrap: str, count: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    with tempfile.TemporaryDirectory(prefix="rtolap-bench-") as folder:
        token = Path(folder) / "token"
        token.write_text(f"{uuid.uuid4().hex}\n")
        environment: dict[str, Any] = {
            **os.environ,
            "RTOLAP_KAFKA": bootstrap,
            "RTOLAP_HOST": "127.0.0.1",
            "RTOLAP_TOKEN_FILE": str(token),
            "RTOLAP_SEP_LOG_BOUNDS": "false",  # there is no HBase to ask
        }
        command = [sys.executable, "-m", "rtolap.cli.main", "sep", "serve", name, "--cluster", ensemble]
        command += ["--host", "localhost", "--bind", "127.0.0.1"]
        processes = [subprocess.Popen(command, env=environment) for _ in range(count)]
        try:
            yield processes
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)

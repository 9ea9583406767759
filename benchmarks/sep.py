"""HBase change capture: events per second of processor time, from sockets to a listener that does nothing.

    python -m benchmarks.sep [--events 400000] [--rounds 3] [--kafka] [--json]
    python -m benchmarks.sep --consumers 1,2 [--events 400000] [--json]

Twice: one put in each WAL entry, and 100 rows in each. Three ways in one run, best of the rounds:

    decode    calls that are in memory become columns: the bare loop
    consumer  a process ships the same calls over two ports, each with one call at work; they are decoded
    listener  the same, and events go through delivery: the memory of what was delivered, lanes, journal
              (in memory, no broker)

`ratio` is listener to decode. Processor time is of the consumer's process, all its threads. Then, each once:
how long a call with a single put takes until it is answered, and what 10 million remembered edits take in
memory. `--kafka`: the same into a topic of a real broker, in transactions, to the last answer.
`--consumers` measures processes instead, as many as each number says: see `benchmarks.sep_consumers`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil
from rtolap.base.clock import SystemClock
from rtolap.base.settings import Settings
from rtolap.kafka.clusters import cluster_of
from rtolap.model.subscription import CellColumn, HBaseSource, Subscription, SubscriptionListener
from rtolap.sep.consumer.allowed_addresses import AllowedAddresses
from rtolap.sep.consumer.server import ConsumerServer
from rtolap.sep.delivery.delivered_edits import REMEMBERED_EDITS, DeliveredEdits
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.edit_records import RegionEdits, bitmap_of, packed
from rtolap.sep.delivery.journal import Journal
from rtolap.sep.delivery.serving import DeliveryThread
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.listeners.assembly import open_delivery
from rtolap.sep.listeners.callable import CallableListener

from benchmarks.sep_consumers import measure_consumers
from benchmarks.sep_ports import CALL_EVENTS, PORTS, Spent, calls, serve
from benchmarks.servers import kafka
from tests.support.sep.replication_client import RegionServer
from tests.support.sep.wal_calls import Cell, Entry
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin
from tests.support.twins.kafka_transactions import MemoryTransactionalProducer
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

ROWS = {"one put per entry": 1, "100 rows per entry": 100}


def decode(encoded: Sequence[tuple[bytes, bytes]]) -> float:
    """Return the seconds of processor time."""
    decoder = EditDecoder()
    started_s = time.process_time()
    for parameter, block in encoded:
        decoder.decode(parameter, block)
    return time.process_time() - started_s


async def _nothing(batch: EditBatch, deadline_s: float) -> None: ...


def delivery() -> Delivery:
    broker = MemoryBroker()
    journal = Journal(
        "bench",
        open_producer=lambda transactional_id: MemoryTransactionalProducer(broker, transactional_id),
        open_consumer=lambda topic: MemoryConsumer(broker, topic),
        admin=MemoryAdmin(broker),
    )
    made = Delivery(CallableListener(lambda batch: None, lanes=1), journal, SystemClock())
    made.recover()
    return made


def through(made: Delivery, events: int, rows_per_entry: int) -> Spent:
    """Ship to a consumer with that delivery."""
    thread = DeliveryThread(made, SystemClock())
    thread.start()
    try:
        return asyncio.run(serve(thread.deliver, events, rows_per_entry))
    finally:
        thread.close()
        made.close()


def kafka_delivery(bootstrap: str) -> Delivery:
    """Return the delivery of a subscription to a topic of a real broker, each event one JSON record."""
    name = f"bench_{time.monotonic_ns()}"
    subscription = Subscription(
        name=name,
        source=HBaseSource("unused"),
        tables={"orders": ()},
        columns={"amount": CellColumn("cf:amount")},
        listener=SubscriptionListener("kafka", topic=name),
    )
    cluster = cluster_of("default", {"bootstrap.servers": bootstrap})
    source = MemoryStore(MemoryEnsemble())
    made = open_delivery(
        subscription, str(uuid.uuid4()), cluster, SystemClock(), Settings(), lambda: True, source
    )
    made.recover()
    return made


def into_kafka(events: int) -> dict[str, Any]:
    """Return events per second, by processor time and by the clock, and how long a put takes."""
    figures: dict[str, Any] = {}
    with kafka() as bootstrap:
        for title, rows_per_entry in ROWS.items():
            spent = through(kafka_delivery(bootstrap), events, rows_per_entry)
            figures[title] = {
                "per_processor_s": round(events / spent.processor_s),
                "per_s": round(events / spent.clock_s),
            }
        figures["put_ms"] = answer_ms(kafka_delivery(bootstrap), 500)
    return figures


def answer_ms(made: Delivery, puts: int) -> dict[str, float]:
    """Return the median and the 99th percentile of calls with a put each, one after the other."""
    thread = DeliveryThread(made, SystemClock())
    thread.start()

    def send(port: int) -> list[float]:
        took_ms = []
        with RegionServer(port) as client:
            for number in range(puts):
                started_s = time.perf_counter()
                client.ship(number, [Entry((Cell(b"row"),), number + 1)])
                took_ms.append((time.perf_counter() - started_s) * 1000)
        return took_ms

    async def run() -> list[float]:
        allowed = AllowedAddresses(lambda: ["127.0.0.1"])
        server = ConsumerServer(EditDecoder(), thread.deliver, allowed=allowed)
        (port,) = await server.start("127.0.0.1", [0])
        took_ms = await asyncio.to_thread(send, port)
        await server.drain(1.0)
        return took_ms

    try:
        took_ms = asyncio.run(run())
    finally:
        thread.close()
        made.close()
    p50, p99 = np.percentile(took_ms, [50, 99]).tolist()
    return {"p50": round(p50, 2), "p99": round(p99, 2)}


def remembered_mb(edits: int = REMEMBERED_EDITS, regions: int = 100) -> float:
    """Return what so many edits take, every other id of each region, as where two tables share a peer."""
    process, memory = psutil.Process(), DeliveredEdits()
    before_bytes, step = process.memory_info().rss, 20_000
    for first in range(0, edits // regions, step):
        ids = np.arange(first, min(first + step, edits // regions)) * 2
        some = bitmap_of(ids)
        memory.remember([RegionEdits(f"{region:032x}", packed(some), 1) for region in range(regions)])
    assert memory.num_edits == edits
    return round((process.memory_info().rss - before_bytes) / 1e6, 1)


def measure(events: int, rows_per_entry: int, rounds: int) -> dict[str, float]:
    """Return events per second of processor time by way, and the ratio."""
    encoded = calls(events, rows_per_entry)
    ways: dict[str, Callable[[], float]] = {
        "decode": lambda: decode(encoded),
        "consumer": lambda: asyncio.run(serve(_nothing, events, rows_per_entry)).processor_s,
        "listener": lambda: through(delivery(), events, rows_per_entry).processor_s,
    }
    best_s = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for way, run in ways.items():
            best_s[way] = min(best_s[way], run())
    figures = {way: round(events / spent_s) for way, spent_s in best_s.items()}
    return {**figures, "ratio": round(figures["listener"] / figures["decode"], 3)}


def _show_consumers(counts: Sequence[int], arguments: argparse.Namespace) -> None:
    calls_max = CALL_EVENTS * PORTS * max(counts)
    events = max(arguments.events // calls_max, 1) * calls_max
    figures = measure_consumers(counts, events)
    for each in figures.values():
        print(
            f"{each['consumers']:.0f} consumers   {each['events_per_s'] / 1000:6.0f} k events/s   "
            f"{each['processor_us']:.2f} µs of processor time for an event, {each['apart_us']:.2f} as "
            "subscriptions of one consumer",
            flush=True,
        )
    if arguments.json:
        print(json.dumps({"events": events, "consumers": figures}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kafka", action="store_true", help="also into a topic of a broker of its own")
    parser.add_argument("--consumers", default="", help="numbers of consumers, separated by commas")
    arguments = parser.parse_args()
    if arguments.consumers:
        _show_consumers([int(count) for count in arguments.consumers.split(",")], arguments)
        return
    events = max(arguments.events // (CALL_EVENTS * PORTS), 1) * CALL_EVENTS * PORTS
    figures: dict[str, dict[str, float]] = {}
    for title, rows_per_entry in ROWS.items():
        figures[title] = measure(events, rows_per_entry, arguments.rounds)
        ways = "   ".join(
            f"{way} {figures[title][way] / 1000:6.0f} k" for way in ("decode", "consumer", "listener")
        )
        print(f"{title:20} {ways} events/s   ratio {figures[title]['ratio']:.2f}", flush=True)
    put_ms, memory_mb = answer_ms(delivery(), 2000), remembered_mb()
    print(
        f"a single put           p50 {put_ms['p50']:.2f} ms   p99 {put_ms['p99']:.2f} ms until it is answered"
    )
    print(f"10 M remembered edits  {memory_mb:.0f} MB", flush=True)
    others: dict[str, Any] = {"put_ms": put_ms, "remembered_mb": memory_mb}
    if arguments.kafka:
        others["kafka"] = into_kafka(events)
        print(f"into Kafka             {others['kafka']}", flush=True)
    if arguments.json:
        print(json.dumps({"events": events, "rounds": arguments.rounds, **figures, **others}))


if __name__ == "__main__":
    main()

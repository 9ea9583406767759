"""HBase change capture: events per second of processor time, from sockets to a listener that does nothing.

    python -m benchmarks.sep [--events 400000] [--rounds 3] [--json]

Twice: one put in each WAL entry, and 100 rows in each. Three ways in one run, best of the rounds:

    decode    calls that are in memory become columns: the bare loop
    consumer  a process ships the same calls over two ports, each with one call at work; they are decoded
    listener  the same, and events go through delivery: the memory of what was delivered, lanes, journal
              (in memory, no broker)

`ratio` is listener to decode. Processor time is of the consumer's process, all its threads. Then, each once:
how long a call with a single put takes until it is answered, and what 10 million remembered edits take in
memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import psutil
from rtolap.base.clock import SystemClock
from rtolap.kafka.memory.broker import MemoryBroker
from rtolap.kafka.memory.consumer import MemoryConsumer
from rtolap.kafka.memory.producer import MemoryAdmin
from rtolap.kafka.memory.transactions import MemoryTransactionalProducer
from rtolap.sep.consumer.allowed_addresses import AllowedAddresses
from rtolap.sep.consumer.calls import Deliver
from rtolap.sep.consumer.server import ConsumerServer
from rtolap.sep.delivery.delivered_edits import REMEMBERED_EDITS, DeliveredEdits
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.edit_records import RegionEdits, bitmap_of, packed
from rtolap.sep.delivery.journal import Journal
from rtolap.sep.delivery.serving import DeliveryThread
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.listeners.callable import CallableListener

from tests.support.sep.replication_client import RegionServer, request
from tests.support.sep.wal_calls import Cell, Entry, encode_call

CALL_EVENTS = 10_000  # of a region server that is behind: its calls are up to 25 000 entries or 64 MB
PORTS = 2
ROWS = {"one put per entry": 1, "100 rows per entry": 100}


def calls(events: int, rows_per_entry: int) -> list[tuple[bytes, bytes]]:
    """Encode calls of a table in two regions, with 40 bytes of value in each cell."""
    rng, sequence_id, encoded = random.Random(1), 0, []
    for _ in range(events // CALL_EVENTS):
        entries = []
        for _ in range(CALL_EVENTS // rows_per_entry):
            sequence_id += 1
            cells = tuple(
                Cell(b"row-%08d" % rng.randrange(10**8), b"amount", b"%040d" % rng.randrange(10**9))
                for _ in range(rows_per_entry)
            )
            region = f"{sequence_id % 2:032x}"
            entries.append(Entry(cells, sequence_id, region=region, write_time_ms=1_700_000_000_000))
        encoded.append(encode_call(entries))
    return encoded


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


async def serve(deliver: Deliver, events: int, rows_per_entry: int) -> float:
    """Return the processor time of this process from the first call to the last answer."""
    server = ConsumerServer(EditDecoder(), deliver, allowed=AllowedAddresses(lambda: ["127.0.0.1"]))
    ports = await server.start("127.0.0.1", [0] * PORTS)
    shipping = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.sep", "--events", str(events)),
        *("--ship", ",".join(map(str, ports)), "--rows", str(rows_per_entry)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert shipping.stdin is not None
    assert shipping.stdout is not None
    await shipping.stdout.readline()  # all is encoded
    started_s = time.process_time()
    shipping.stdin.write(b"go\n")
    await shipping.stdout.readline()  # all is answered
    spent_s = time.process_time() - started_s
    await shipping.wait()
    await server.drain(1.0)
    return spent_s


def ship(ports: list[int], events: int, rows_per_entry: int) -> None:
    """The region servers' part: a thread for each port, which sends a call once the last one is answered."""
    frames = [
        request(number, parameter=parameter, cell_block=block)
        for number, (parameter, block) in enumerate(calls(events, rows_per_entry))
    ]

    def send(port: int, own: list[bytes]) -> None:
        with RegionServer(port) as server:
            for frame in own:
                server.send(frame)
                header, _ = server.answer()
                assert not header.HasField("exception"), header.exception.stack_trace

    threads = [
        threading.Thread(target=send, args=(port, frames[place :: len(ports)]))
        for place, port in enumerate(ports)
    ]
    print("ready", flush=True)
    sys.stdin.readline()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("done", flush=True)


def through_listener(events: int, rows_per_entry: int) -> float:
    thread = DeliveryThread(delivery(), SystemClock())
    thread.start()
    try:
        return asyncio.run(serve(thread.deliver, events, rows_per_entry))
    finally:
        thread.close()


def answer_ms(puts: int = 2000) -> dict[str, float]:
    """Return the median and the 99th percentile of calls with a put each, one after the other."""
    thread = DeliveryThread(delivery(), SystemClock())
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
        "consumer": lambda: asyncio.run(serve(_nothing, events, rows_per_entry)),
        "listener": lambda: through_listener(events, rows_per_entry),
    }
    best_s = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for way, run in ways.items():
            best_s[way] = min(best_s[way], run())
    figures = {way: round(events / spent_s) for way, spent_s in best_s.items()}
    return {**figures, "ratio": round(figures["listener"] / figures["decode"], 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ship", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    events = max(arguments.events // (CALL_EVENTS * PORTS), 1) * CALL_EVENTS * PORTS
    if arguments.ship:
        ship([int(port) for port in arguments.ship.split(",")], events, arguments.rows)
        return
    figures: dict[str, dict[str, float]] = {}
    for title, rows_per_entry in ROWS.items():
        figures[title] = measure(events, rows_per_entry, arguments.rounds)
        ways = "   ".join(
            f"{way} {figures[title][way] / 1000:6.0f} k" for way in ("decode", "consumer", "listener")
        )
        print(f"{title:20} {ways} events/s   ratio {figures[title]['ratio']:.2f}", flush=True)
    put_ms, memory_mb = answer_ms(), remembered_mb()
    print(
        f"a single put           p50 {put_ms['p50']:.2f} ms   p99 {put_ms['p99']:.2f} ms until it is answered"
    )
    print(f"10 M remembered edits  {memory_mb:.0f} MB", flush=True)
    if arguments.json:
        others = {"put_ms": put_ms, "remembered_mb": memory_mb}
        print(json.dumps({"events": events, "rounds": arguments.rounds, **figures, **others}))


if __name__ == "__main__":
    main()

"""The region servers of `benchmarks.sep`: a process of its own, which ships calls to the ports of a consumer.

    python -m benchmarks.sep_ports --ports 7000,7001 --events 400000 --rows 1

It says when all is encoded, waits for a line, and says when all is answered.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from rtolap.sep.consumer.allowed_addresses import AllowedAddresses
from rtolap.sep.consumer.calls import Deliver
from rtolap.sep.consumer.server import ConsumerServer
from rtolap.sep.events.decode import EditDecoder

from tests.support.sep.replication_client import RegionServer, request
from tests.support.sep.wal_calls import Cell, Entry, encode_call

CALL_EVENTS = 10_000  # of a region server that is behind: its calls are up to 25 000 entries or 64 MB
PORTS = 2


@dataclass(frozen=True)
class Spent:
    """Seconds from the first call to the last answer: of processor time of this process, and by the clock."""

    processor_s: float
    clock_s: float


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


async def serve(deliver: Deliver, events: int, rows_per_entry: int) -> Spent:
    """Let region servers ship so many events to a consumer in this process."""
    server = ConsumerServer(EditDecoder(), deliver, allowed=AllowedAddresses(lambda: ["127.0.0.1"]))
    ports = await server.start("127.0.0.1", [0] * PORTS)
    shipping = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.sep_ports", "--ports", ",".join(map(str, ports))),
        *("--events", str(events), "--rows", str(rows_per_entry)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert shipping.stdin is not None
    assert shipping.stdout is not None
    await shipping.stdout.readline()  # all is encoded
    began_s, started_s = time.monotonic(), time.process_time()
    shipping.stdin.write(b"go\n")
    await shipping.stdout.readline()  # all is answered
    spent = Spent(time.process_time() - started_s, time.monotonic() - began_s)
    await shipping.wait()
    await server.drain(1.0)
    return spent


def ship(ports: list[int], events: int, rows_per_entry: int) -> None:
    """Ship in the region servers' place: a thread for each port sends a call once the last one is
    answered."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ports", required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    arguments = parser.parse_args()
    ship([int(port) for port in arguments.ports.split(",")], arguments.events, arguments.rows)


if __name__ == "__main__":
    main()

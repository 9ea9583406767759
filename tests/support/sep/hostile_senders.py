"""Clients on an allowed host that are no region servers: what each of them sends, drawn by a seed.

They keep at it until they are stopped, each on connections of its own, and connect again when these are
closed.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Sequence

from rtolap.sep.hbase.replication_pb2 import ReplicateWALEntryRequest

from tests.support.sep.replication_client import RegionServer, replicate, request
from tests.support.sep.wal_calls import Cell, Entry, encode_call

Sender = Callable[[RegionServer, random.Random, threading.Event], None]
FORGED_TABLE = "orders"
FAR_AHEAD = 1 << 40


def claims(server: RegionServer, rng: random.Random, stop: threading.Event) -> None:
    """Announce the largest frame, send a little of it, and wait."""
    server.send((1 << 20).to_bytes(4, "big") + bytes(rng.choice((0, 1, 1024, 20_000))))
    stop.wait(rng.choice((0.2, 2.0)))


def half_frames(server: RegionServer, rng: random.Random, stop: threading.Event) -> None:
    frame = replicate(1, [Entry((Cell(b"h", value=bytes(rng.choice((100, 300_000, 900_000)))),))])
    server.send(frame[: len(frame) // 2])
    stop.wait(rng.choice((0.2, 2.0)))


def trickles(server: RegionServer, rng: random.Random, stop: threading.Event) -> None:
    server.send((900_000).to_bytes(4, "big"))
    while not stop.wait(0.02):
        server.send(bytes(rng.choice((1, 100))))


def idles(server: RegionServer, rng: random.Random, stop: threading.Event) -> None:
    stop.wait(rng.choice((0.5, 3.0)))


def forged_ids(server: RegionServer, rng: random.Random, stop: threading.Event) -> None:
    entry = Entry((Cell(b"forged"),), FAR_AHEAD + rng.randrange(1000), FORGED_TABLE)
    server.send(replicate(1, [entry]))
    server.answer()


def wrong_tables(server: RegionServer, rng: random.Random, stop: threading.Event) -> None:
    server.send(replicate(1, [Entry((Cell(b"forged"),), rng.randrange(1, 9), table="secrets")]))
    server.answer()


def wrong_counts(server: RegionServer, rng: random.Random, stop: threading.Event) -> None:
    """Claim cells that are not there."""
    parameter, block = encode_call([Entry((Cell(b"forged"),), 1)])
    message = ReplicateWALEntryRequest.FromString(parameter)
    message.entry[0].associated_cell_count = rng.choice((2, 2**31 - 1, -1))
    server.send(request(1, "ReplicateWALEntry", message.SerializeToString(), block))
    server.answer()


def bombs(server: RegionServer, rng: random.Random, stop: threading.Event) -> None:
    """Send bombs: two bytes of a message are an entry; 24 bytes of a block are a cell."""
    kind = rng.randrange(3)
    if kind == 0:
        server.send(request(1, "ReplicateWALEntry", b"\x0a\x00" * 450_000))
    elif kind == 1:
        server.send(request(1, "ReplicateWALEntry", b"", smallest_cells(30_000)))
    else:
        server.send(request(1, "GetClusterStatus", b"\x08\x01" * 400_000))
    server.answer()


def smallest_cells(count: int) -> bytes:
    return Cell(b"", qualifier=b"", value=b"", family=b"").encoded() * count


SENDERS: Sequence[Sender] = (
    claims,
    half_frames,
    trickles,
    idles,
    forged_ids,
    wrong_tables,
    wrong_counts,
    bombs,
)


class HostileSenders:
    """Runs drawn senders on threads of their own until `close`. `sent` counts what each kind did."""

    def __init__(self, port: int, seed: int, count: int) -> None:
        self.sent: dict[str, int] = {sender.__name__: 0 for sender in SENDERS}
        self._port = port
        self._stop = threading.Event()
        rng = random.Random(seed)
        self._threads = [
            threading.Thread(target=self._run, args=(SENDERS[at % len(SENDERS)], random.Random(rng.random())))
            for at in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, sender: Sender, rng: random.Random) -> None:
        while not self._stop.is_set():
            # a consumer that closes the connection is what it has to expect
            with contextlib.suppress(OSError), RegionServer(self._port, timeout_s=10.0) as server:
                sender(server, rng, self._stop)
            self.sent[sender.__name__] += 1
            self._stop.wait(0.05)

"""A stream of events that goes on, and a client that asks for their count and sum all the time."""

from __future__ import annotations

import itertools
import json
import threading
import time

import httpx
from rtolap.kafka.clusters import KafkaCluster
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer

from tests.support.cubes.builders import START_MS, WINDOW_MS
from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.waiting import patience_s

PAUSE_S = 0.02


class Stream:
    """Events that nothing rolls up: each has a place of its own. The amount of an event is its offset."""

    def __init__(self, world: World, kafka: KafkaCluster | str) -> None:
        self._cube = world.cube
        self._producer = KafkaProducer(kafka, client_id="stream")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self.ends = dict.fromkeys(range(PARTITIONS), 0)

    def produce(self, count: int) -> None:
        records = []
        for number in range(count):
            partition = number % PARTITIONS
            at = self.ends[partition]
            place = at * PARTITIONS + partition
            body = {"ts": START_MS + place % (WINDOW_MS // 2), "kind": "a", "place": place, "amount": at}
            records.append(OutRecord(json.dumps(body).encode(), partition=partition))
            self.ends[partition] = at + 1
        self._producer.produce(self._cube, records)
        self._producer.flush(60)

    def start(self) -> None:
        self._thread.start()

    def _go_on(self) -> None:
        while not self._stopping.wait(0.05):
            self.produce(20)

    def close(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(60)
        self._producer.close()


class Asking(threading.Thread):
    """A client that asks again as soon as it has an answer. `answered_s` and `wrong` are for after `stop`."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self._world = world
        self._sql = f"SELECT COUNT(*), SUM(amount) FROM {world.cube}"
        self._stopping = threading.Event()
        self._before: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.answered_s: list[float] = []
        self.errors: list[str] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            try:
                body = self._world.services.sql(self._sql)
            except httpx.HTTPError as error:
                self.errors.append(str(error))
                continue
            self.answered_s.append(time.monotonic())
            positions = {int(p): at for p, at in body["positions"][self._world.cube].items()}
            expected = [sum(positions.values()), sum(at * (at - 1) // 2 for at in positions.values())]
            found = [int(cell or 0) for cell in body["rows"][0]]
            went_on = all(positions.get(p, 0) >= at for p, at in self._before.items())
            if found != expected or not went_on:
                self.wrong.append(f"{found} for {expected} at {positions} after {self._before}")
            self._before = positions

    def stop(self) -> None:
        self._stopping.set()
        self.join(patience_s(60))
        assert not self.is_alive(), "a query hangs"

    def largest_gap_s(self, from_s: float, to_s: float) -> float:
        """Return the longest time without an answer between these times."""
        inside = [at for at in self.answered_s if from_s <= at <= to_s]
        edges = [from_s, *inside, to_s]
        return max(after - before for before, after in itertools.pairwise(edges))

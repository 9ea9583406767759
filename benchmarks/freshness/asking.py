"""The asker: when it asked, when the answer had come, and which positions that held."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import httpx
import numpy as np

from benchmarks.freshness.stream import PARTITIONS, Floats, Produced
from tests.support.cubes.services import Services

OTHER_STATEMENTS = (
    "SELECT device, COUNT(*) FROM {cube} GROUP BY device",
    "SELECT page, COUNT(*), SUM(price) FROM {cube} GROUP BY page",
    "SELECT country, device, SUM(duration_ms) FROM {cube} GROUP BY country, device",
    "SELECT campaign, MAX(duration_ms) FROM {cube} WHERE device = 'tv' GROUP BY campaign",
    "SELECT country, COUNT(*), SUM(bytes_sent) FROM {cube} WHERE country IN ('de', 'fr') GROUP BY country",
)


@dataclass
class Answers:
    """Answers, in order: when each was asked and had arrived, and the position of every partition."""

    asked_ns: list[int] = field(default_factory=list)
    arrived_ns: list[int] = field(default_factory=list)
    positions: list[tuple[int, ...]] = field(default_factory=list)

    def round_trips_ms(self) -> Floats:
        taken_ns = np.array(self.arrived_ns) - np.array(self.asked_ns)
        return np.asarray(taken_ns / 1e6, np.float64)

    def latencies_ms(self, produced: Produced) -> Floats:
        """Return, of every event that is measured, the time from its making to the first answer that holds
        it."""
        arrived_ns = np.array(self.arrived_ns)
        positions = np.array(self.positions)
        first_slice, per_slice = produced.first_slice, produced.per_slice
        latencies = []
        for partition in range(PARTITIONS):
            created_ns = np.repeat(produced.made_ns[first_slice:, partition], per_slice)
            offsets = np.arange(len(created_ns)) + produced.begin + first_slice * per_slice
            first = np.searchsorted(positions[:, partition], offsets, side="right")
            latencies.append((arrived_ns[first] - created_ns) / 1e6)
        return np.concatenate(latencies)


class Asker:
    """Asks one group-by and checks its count. `answers` collects what `ask` was told."""

    def __init__(self, services: Services, cube: str) -> None:
        self.answers = Answers()
        self._services = services
        self.cube = cube
        self._sql = f"SELECT country, COUNT(*), SUM(bytes_sent) FROM {cube} GROUP BY country"

    def ask_other(self, number: int, condition: str = "") -> None:
        text = OTHER_STATEMENTS[number % len(OTHER_STATEMENTS)].format(cube=self.cube)
        if condition:
            before, after = text.rsplit(" GROUP BY ", 1)
            text = f"{before} {'AND' if ' WHERE ' in before else 'WHERE'} {condition} GROUP BY {after}"
        self._services.sql(text)

    def ask(self) -> tuple[int, ...]:
        asked_ns = time.monotonic_ns()
        body = self._services.sql(self._sql)
        self.answers.arrived_ns.append(time.monotonic_ns())
        self.answers.asked_ns.append(asked_ns)
        answered = body["positions"][self.cube]
        positions = tuple(int(answered[str(partition)]) for partition in range(PARTITIONS))
        if sum(row[1] for row in body["rows"]) != sum(positions):
            raise SystemExit(f"an answer of positions {positions} counts {body['rows']}")
        self.answers.positions.append(positions)
        return positions


def answering(asker: Asker) -> bool:
    try:
        asker.ask()
    except httpx.HTTPError:  # the cluster starts; what does not pass ends in the time-out of the wait
        return False
    return True


class OtherAskers:
    """Threads that ask the other statements in turn, while it is entered. `rest_s`: between two of a
    thread."""

    def __init__(self, asker: Asker, count: int, rest_s: float) -> None:
        self._asker, self._rest_s = asker, rest_s
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]

    def __enter__(self) -> OtherAskers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._asker.ask_other(number)
            number += 1
            time.sleep(self._rest_s)

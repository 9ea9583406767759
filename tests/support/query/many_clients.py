"""Many clients that ask the same few statements over HTTP at once, without a rest.

Each answer names the prefix that it holds. It must be the plain recount of that prefix, and the prefix at
least as long as that of every answer that any of them had got before this one was asked.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import wait_for
from tests.support.query.asked_statements import Cells, Statement

ANSWERS_MIN = 5  # of each client


class Asked(NamedTuple):
    """An answer. `before`: what others had been answered when it was asked."""

    statement: Statement
    before: dict[int, int]
    positions: dict[int, int]
    rows: list[Cells]


class ManyClients:
    """They ask within the block; `assert_exact` behind it."""

    def __init__(self, world: World, statements: list[Statement], clients: int) -> None:
        self._world = world
        self._statements = statements
        self._clients = clients
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._seen = dict.fromkeys(range(PARTITIONS), 0)
        self._threads = ThreadPoolExecutor(clients)
        self._lives: list[Future[list[Asked]]] = []
        self._answers = [0] * clients

    def __enter__(self) -> ManyClients:
        self._lives = [self._threads.submit(self._live, number) for number in range(self._clients)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._threads.shutdown()

    def wait_for_all(self) -> None:
        """Wait until each has so many answers more; an error of one is raised."""
        before = list(self._answers)

        def all_answered() -> bool:
            for life in self._lives:
                if life.done():
                    life.result()
            pairs = zip(self._answers, before, strict=True)
            return all(now >= then + ANSWERS_MIN for now, then in pairs)

        wait_for(f"{ANSWERS_MIN} answers for each of {self._clients} clients", all_answered, 120)

    def assert_exact(self) -> None:
        answers = [asked for life in self._lives for asked in life.result()]
        recounted: dict[tuple[str, tuple[int, ...]], list[Cells]] = {}
        for statement, before, positions, rows in answers:
            assert all(positions[p] >= before[p] for p in before), f"went backwards: {before}, {positions}"
            prefix = (statement.sql, tuple(positions[p] for p in range(PARTITIONS)))
            if prefix not in recounted:
                recounted[prefix] = statement.recount(self._world.prefix(positions))
            assert rows == recounted[prefix], f"{statement.sql}: prefix {positions}"
        assert len({prefix for _, prefix in recounted}) > 1, "events have come meanwhile"

    def _live(self, number: int) -> list[Asked]:
        answers: list[Asked] = []
        while not self._stopping.is_set():
            statement = self._statements[(number + len(answers)) % len(self._statements)]
            with self._lock:
                before = dict(self._seen)
            body = self._world.services.sql(statement.sql)
            positions = {int(p): offset for p, offset in body["positions"][self._world.cube].items()}
            with self._lock:
                self._seen = {p: max(offset, positions[p]) for p, offset in self._seen.items()}
            answers.append(Asked(statement, before, positions, statement.rows(body["rows"])))
            self._answers[number] += 1
        return answers

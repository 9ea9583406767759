"""Queries both servers of a query service, over and over, and holds every result against a plain recount.

HTTP names the prefix that its answer holds. The MySQL protocol has no place for it: such an answer lies
between the HTTP answers before and after it, because no answer goes backwards, and must be the recount of a
prefix in between; where there are too many of them to try, it is counted as `unplaced` and proves nothing.
Errors are kept by kind and server. Tolerated is the one kind that a fault explains, as often as it can come
while the outage of one lasts. The servers that are queried are never killed: a connection that breaks, a
status without a code of ours or a statement over its time is explained by nothing.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pymysql

from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import wait_for
from tests.support.query.asked_statements import KINDS, Cells, Statement, statements

HTTP, MYSQL = "HTTP", "MySQL"
ANSWERS_MIN = 20  # a run that hardly ever answers proves little
PREFIXES_MAX = 200  # that an answer by the MySQL protocol is compared with
ERROR_PAUSE_S = 0.5  # after an error: an outage is few errors, however often is asked
# Until another receiver leads, or Kafka or ZooKeeper is back: sessions last 3 s, a start takes some seconds.
OUTAGE_S_MAX = 30.0
TOLERATED = frozenset({"unavailable", "not_reached"})
_MYSQL_KINDS = {1205: "unavailable"}
Positions = dict[int, int]


class Asked(NamedTuple):
    """An answer. `positions` only where the server names them."""

    statement: Statement
    server: str
    rows: list[Cells]
    positions: Positions | None


class Asker(threading.Thread):
    """`answers` and `errors` grow while it runs; judge them after `stop`."""

    def __init__(self, world: World, *, seed: int, every_s: float = 0.2) -> None:
        super().__init__(daemon=True)
        self._every_s = every_s
        self._world = world
        self._stopping = threading.Event()
        self.statements = statements(world.cube, random.Random(seed))
        self.answers: list[Asked] = []
        self.errors: Counter[tuple[str, str]] = Counter()  # (server, kind)
        self.unplaced = 0
        self._last_error = ""

    def run(self) -> None:
        pairs = itertools.cycle(itertools.product(self.statements, (HTTP, MYSQL)))
        pause_s = self._every_s
        with self._world.services.mysql() as connection:
            while not self._stopping.wait(pause_s):
                statement, server = next(pairs)
                try:
                    self.answers.append(self._ask(statement, server, connection))
                    pause_s = self._every_s
                except (httpx.HTTPError, pymysql.MySQLError) as error:
                    self.errors[server, _kind(error)] += 1
                    self._last_error = f"{server}: {error}"
                    pause_s = max(self._every_s, ERROR_PAUSE_S)

    def _ask(self, statement: Statement, server: str, connection: pymysql.connections.Connection) -> Asked:
        if server == MYSQL:
            with connection.cursor() as cursor:
                cursor.execute(statement.sql)
                return Asked(statement, server, statement.rows(cursor.fetchall()), None)
        body = self._world.services.sql(statement.sql)
        positions = {int(p): offset for p, offset in body["positions"][self._world.cube].items()}
        return Asked(statement, server, statement.rows(body["rows"]), positions)

    def wait_for_more(self, count: int = 4) -> None:
        """Wait until so many more answers were given, whatever has just been killed."""
        before = len(self.answers)
        self._wait(f"{count} more answers", before + count)

    def wait_for_all(self) -> None:
        """Wait until each statement has been answered at both servers once more."""
        self._wait("each statement answered at both servers", len(self.answers) + 2 * len(self.statements))

    def _wait(self, what: str, count: int) -> None:
        wait_for(
            f"{what}; {dict(self.errors)}, {self._last_error}",
            lambda: len(self.answers) >= count or not self.is_alive(),
            90,
        )
        assert self.is_alive(), f"asking has ended: {self._last_error}"

    def stop(self) -> None:
        self._stopping.set()
        self.join(90)
        assert not self.is_alive(), "a query hangs"

    def assert_exact(self) -> None:
        """Assert that every answer was a recount of a prefix, and no prefix was shorter than the one
        before."""
        assert len(self.answers) > ANSWERS_MIN, f"{dict(self.errors)}, {self._last_error}"
        before = dict.fromkeys(range(PARTITIONS), 0)
        placed: Counter[tuple[str, str]] = Counter()
        for number, asked in enumerate(self.answers):
            said = f"{asked.server}, {asked.statement.sql}"
            if asked.positions is not None:
                after = asked.positions
                assert all(after[p] >= before[p] for p in before), (
                    f"{said}: went backwards, {before}, {after}"
                )
                assert asked.rows == self._recount(asked, after), f"{said}: prefix {after}"
                before = after
            else:
                after = self._next_positions(number)
                if math.prod(1 + after[p] - before[p] for p in before) > PREFIXES_MAX:
                    self.unplaced += 1
                    continue
                assert any(asked.rows == self._recount(asked, at) for at in _prefixes(before, after)), (
                    f"{said}: is no recount from {before} to {after}"
                )
            placed[asked.server, asked.statement.kind] += 1
        missing = set(itertools.product((HTTP, MYSQL), KINDS)) - placed.keys()
        assert not missing, f"never compared: {missing}; {self.unplaced} unplaced"

    def assert_few_errors(self, outages: int) -> None:
        """Assert that only errors came that faults explain, and no more than so many outages bring."""
        strange = {kind for _, kind in self.errors} - TOLERATED
        assert not strange, f"{dict(self.errors)}, {self._last_error}"
        errors_max = outages * OUTAGE_S_MAX / ERROR_PAUSE_S
        assert self.errors.total() <= errors_max, f"more than {errors_max}: {dict(self.errors)}"

    def _next_positions(self, number: int) -> Positions:
        later = (asked.positions for asked in self.answers[number:] if asked.positions is not None)
        return next(later, self._world.ends())

    def _recount(self, asked: Asked, positions: Positions) -> list[Cells]:
        return asked.statement.recount(self._world.prefix(positions))


def _prefixes(before: Positions, after: Positions) -> Iterator[Positions]:
    """Return all from `before` to `after`, both included."""
    spans = [range(before[p], after[p] + 1) for p in before]
    return (dict(zip(before, offsets, strict=True)) for offsets in itertools.product(*spans))


def _kind(error: Exception) -> str:
    """Return our own code where the server gave one, or else what broke and why, which nothing tolerates."""
    if isinstance(error, httpx.HTTPStatusError):
        said = (
            error.response.json() if error.response.headers.get("content-type") == "application/json" else {}
        )
        return str(said.get("code", f"{error.response.status_code} {error}"))
    if isinstance(error, pymysql.MySQLError):
        return _MYSQL_KINDS.get(error.args[0] if error.args else 0, f"{error!r}")
    return f"{error!r}"

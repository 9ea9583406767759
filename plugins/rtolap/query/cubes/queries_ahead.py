"""Statements that are answered while a move prepares an assignment, asked of those who will answer next.

A receiver keeps results of statements that come again. A receiver that has read ahead of a move has the
events and none of these results: the first answers after the move would read all that it holds, while clients
wait. So what a statement reads of a cube is read once more under the prepared assignment, beside the
statement, by the receivers of the replica sets that warm up. Nobody waits for it, it sends no rows, and what
fails is left: the next statement of this kind brings it up again.

A query ahead decides nothing. What it leaves behind are results over tables that never change.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor

import msgspec
from cachetools import LRUCache

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError
from rtolap.base.ids import CarryingPool
from rtolap.metadata.records import CubeControl, NextAssignment
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery
from rtolap.query.cluster.topology import ReceiverTopology
from rtolap.query.cubes.planner import plan_realtime
from rtolap.query.cubes.realtime import RealtimeSource
from rtolap.query.plan import CubeRead

log = logging.getLogger(__name__)

AGAIN_AFTER_S = 1.0  # of one kind of statement: until then, few events are new
KINDS_MAX = 256  # kinds of statements that are remembered, as many as a receiver keeps results of
WAITING_MAX = 32  # queries that have not begun; further ones are left
SHARE_OF_TIME = 4  # a query is followed by a pause of so many times what it took
PAUSE_S_MAX = 2.0
TIMEOUT_MS = 10_000

_Kind = tuple[str, int, bytes]  # cube, epoch, and what a result depends on


class QueriesAhead:
    """`offer` from any thread. `beside`: where they run; None: a thread of their own."""

    def __init__(
        self,
        source: RealtimeSource,
        topology: Callable[[], ReceiverTopology],
        clock: Clock,
        beside: Executor | None = None,
    ) -> None:
        self._source = source
        self._topology = topology
        self._clock = clock
        self._beside = beside or CarryingPool(1, thread_name_prefix="queries-ahead")
        self._closed = threading.Event()
        self._lock = threading.RLock()  # of `beside` that runs at once what it is given, too
        self._asked_s: LRUCache[_Kind, float | None] = LRUCache(KINDS_MAX)  # None: it waits for its turn
        self._waiting = 0

    def offer(self, read: CubeRead, snapshot: HistorySnapshot, control: CubeControl) -> None:
        """Ask ahead for a read that was answered under `control`, while a move warms up."""
        planned = control.next
        if planned is None or snapshot.assignment_epoch != control.assignment_epoch:
            return  # as mostly
        query = PartialQuery(
            cube=read.cube,
            dimensions=read.dimensions,
            partials=read.partials,
            snapshot=msgspec.structs.replace(snapshot, assignment_epoch=planned.epoch),
            filter=read.filter,
            timeout_ms=TIMEOUT_MS,
            ahead=True,
        )
        result_of = msgspec.json.encode((query.dimensions, query.partials, query.filter))
        kind = (read.cube, planned.epoch, result_of)
        now_s = self._clock.monotonic_s()
        with self._lock:
            is_first = kind not in self._asked_s
            last_s = self._asked_s.get(kind, float("-inf"))
            is_due = last_s is not None and now_s - last_s >= AGAIN_AFTER_S
            if not is_due or self._waiting >= WAITING_MAX or self._closed.is_set():
                return
            self._waiting += 1
            self._asked_s[kind] = None
            # Results are kept from a statement's second run on.
            self._beside.submit(self._run, kind, query, control, planned, 2 if is_first else 1)

    def close(self) -> None:
        """Begin no query any more, without waiting for one under way."""
        with self._lock:
            self._closed.set()
            self._beside.shutdown(wait=False, cancel_futures=True)

    def _run(
        self, kind: _Kind, query: PartialQuery, control: CubeControl, planned: NextAssignment, runs: int
    ) -> None:
        with self._lock:
            self._waiting -= 1
        begun_s = self._clock.monotonic_s()
        try:
            for receiver, address in self._warming(query.cube, control, planned):
                self._ask(receiver, address, query, runs)
        except RtolapError as error:
            log.debug("cube %s is not asked for ahead: %s", query.cube, error)
        finally:
            ended_s = self._clock.monotonic_s()
            with self._lock:
                if kind in self._asked_s:
                    self._asked_s[kind] = ended_s
        self._closed.wait(min(PAUSE_S_MAX, SHARE_OF_TIME * (ended_s - begun_s)))

    def _warming(self, cube: str, control: CubeControl, planned: NextAssignment) -> list[tuple[str, str]]:
        """Return the receivers, with addresses, that statements will go to first and that have to warm up."""
        after = msgspec.structs.replace(
            control, assignment=planned.assignment, assignment_epoch=planned.epoch
        )
        return [
            receiver
            for each in plan_realtime(cube, after, self._topology())
            if control.warms(each.replica_set) is not None
            for receiver in each.receivers[:1]
        ]

    def _ask(self, receiver: str, address: str, query: PartialQuery, runs: int) -> None:
        try:
            for _ in range(runs):
                if not self._closed.is_set():
                    self._source.ask_ahead(receiver, address, query)
        except RtolapError as error:  # as before it has read what history holds
            log.debug("cube %s is not asked for ahead at receiver %s: %s", query.cube, receiver, error)
        except Exception:
            log.exception("cube %s is not asked for ahead at receiver %s", query.cube, receiver)

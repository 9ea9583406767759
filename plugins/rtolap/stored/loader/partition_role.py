"""The add partition role: the table's partitions of the near future are there before rows need them.

For a server whose tables make none by themselves. It stops nothing: while it fails, loading goes on, and rows
that no partition takes are refused by the server as they would be without this role.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tenacity import (
    Retrying,
    retry_if_result,
    sleep_using_event,
    stop_when_event_set,
    wait_random_exponential,
)

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, Refused, RtolapError
from rtolap.model.loader import Loader, SinkPartitions
from rtolap.model.stored.partitions import PartitionRange, partition_of
from rtolap.model.stored.table import PartitionUnit
from rtolap.protocols.loader.messages import PartitionsStatus
from rtolap.protocols.stored_tables.mysql_partitions import KnownPartition
from rtolap.stored.loader.target import Target

log = logging.getLogger(__name__)

SHOWN = 20  # of the partitions that were made
FIRST_ROUND_S = 30.0  # so long rows wait for it
_PAUSE_S, _PAUSE_MAX_S = 0.5, 60.0
_SPREAD = 0.1  # of the interval, so that many loaders do not ask at once


class PartitionSession(Protocol):
    def partitions(self, db: str, table: str) -> Sequence[KnownPartition]: ...

    def add_partition(self, db: str, table: str, part: PartitionRange, *, has_time: bool) -> None: ...


OpenSession = Callable[[], AbstractContextManager[PartitionSession]]  # to the sink's MySQL endpoint


class PartitionRole:
    """Ensures the partitions of the target table. `run` is for one thread, all else for any.

    Args:
        target: returns the table's current columns.
    """

    def __init__(
        self,
        loader: Loader,
        wanted: SinkPartitions,
        open_session: OpenSession,
        target: Callable[[], Target],
        clock: Clock,
        *,
        pause_max_s: float = _PAUSE_MAX_S,
    ) -> None:
        self._loader = loader
        self._wanted = wanted
        self._open_session = open_session
        self._target = target
        self._clock = clock
        self._pause_max_s = pause_max_s
        self._tried = threading.Event()
        self._lock = threading.Lock()
        self._made: deque[str] = deque(maxlen=SHOWN)
        self._made_count = 0
        self._until_ms: int | None = None
        self._checked_ms: int | None = None
        self._last_error = ""

    @property
    def status(self) -> PartitionsStatus:
        with self._lock:
            state = "failing" if self._last_error else "starting" if self._checked_ms is None else "kept"
            return PartitionsStatus(
                state=state,
                last_error=self._last_error,
                made=tuple(self._made),
                made_count=self._made_count,
                until_ms=self._until_ms,
                checked_ms=self._checked_ms,
            )

    @property
    def has_tried(self) -> bool:
        """Return True once the first round is over, with or without success."""
        return self._tried.is_set()

    @property
    def every_s(self) -> float:
        """Return the pause between two rounds; the longest one after a failure."""
        with self._lock:
            return (
                min(self._pause_max_s, self._wanted.every_ms / 1000)
                if self._last_error
                else (self._wanted.every_ms / 1000)
            )

    def run(self, stopping: threading.Event) -> None:
        again = Retrying(
            retry=retry_if_result(lambda is_complete: not is_complete),
            wait=wait_random_exponential(multiplier=_PAUSE_S, max=self._pause_max_s),
            stop=stop_when_event_set(stopping),
            sleep=sleep_using_event(stopping),
            retry_error_callback=lambda state: None,
        )
        while not stopping.is_set():
            again(self.run_once)
            stopping.wait(self._wanted.every_ms / 1000 * random.uniform(1 - _SPREAD, 1 + _SPREAD))

    def wait_first(self, stopping: threading.Event, timeout_s: float = FIRST_ROUND_S) -> None:
        """Wait until the first round is over, with or without success, but at most `timeout_s`."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while not stopping.is_set() and self._clock.monotonic_s() < deadline_s:
            if self._tried.wait(0.1):
                return

    def run_once(self) -> bool:
        """Create missing partitions; return True if all exist now. The status has the error."""
        try:
            problem = self._make_missing()
        except RtolapError as error:
            problem = str(error)
        except Exception as error:  # nothing here may end the loader; it is reported and retried
            log.exception("the partitions of %s cannot be kept", self._loader.table)
            problem = f"unexpected: {error!r}"
        with self._lock:
            if problem and problem != self._last_error:
                log.error("partitions of %s.%s: %s", self._loader.database, self._loader.table, problem)
            self._last_error = problem
            if not problem:
                self._checked_ms = self._clock.now_ms()
        self._tried.set()
        return not problem

    def _make_missing(self) -> str:
        """Create the missing partitions. Return the errors of those that failed; "" if all exist.

        A failure hinders no other partition.
        """
        wanted = near(self._wanted.unit, self._clock.now_ms(), self._wanted.behind, self._wanted.ahead)
        has_time = self._has_time()
        db, table = self._loader.database, self._loader.table
        problems: list[str] = []
        present: list[PartitionRange] = []
        with self._open_session() as session:
            known = session.partitions(db, table)
            for part in wanted:
                if not is_covered(part, known):
                    try:
                        session.add_partition(db, table, part, has_time=has_time)
                    except Refused as error:  # this one; others may be taken
                        problems.append(str(error))
                        continue
                    self._note_made(part)
                present.append(part)
        with self._lock:
            self._until_ms = end_of_row(present, self._clock.now_ms())
        return "; ".join(dict.fromkeys(problems))

    def _note_made(self, part: PartitionRange) -> None:
        log.info("partition %s of %s.%s is made", part.name, self._loader.database, self._loader.table)
        with self._lock:
            self._made.append(part.name)
            self._made_count += 1

    def _has_time(self) -> bool:
        """Return True if the partition column is of times, not dates."""
        name, unit = self._wanted.column, self._wanted.unit
        column = next((column for column in self._target().columns if column.name == name), None)
        kind = None if column is None else column.type.kind
        if kind not in ("date", "timestamp") or (kind == "date" and unit == "hour"):
            raise DefinitionError(
                f"{self._loader.database}.{self._loader.table} cannot have partitions by {unit} of {name}",
                expected="a column of times" if unit == "hour" else "a column of dates or times",
                found="no such column" if column is None else str(column.type),
            )
        return kind == "timestamp"


def near(unit: PartitionUnit, now_ms: int, behind: int, ahead: int) -> list[PartitionRange]:
    """Return the present partition, so many before it and after it, in order."""
    present = partition_of(now_ms, unit)
    near_ranges = [present]
    for _ in range(behind):
        near_ranges.insert(0, partition_of(near_ranges[0].start_ms - 1, unit))
    for _ in range(ahead):
        near_ranges.append(partition_of(near_ranges[-1].end_ms, unit))
    return near_ranges


def is_covered(part: PartitionRange, known: Iterable[KnownPartition]) -> bool:
    """Return True if a partition of its name is there, or others cover all of its time."""
    at_ms = part.start_ms
    bounds: list[tuple[int, int]] = []
    for each in known:
        if each.name == part.name:
            return True
        if each.bounds is not None:
            bounds.append(each.bounds)
    for start_ms, end_ms in sorted(bounds):
        if start_ms <= at_ms < end_ms:
            at_ms = end_ms
    return at_ms >= part.end_ms


def end_of_row(parts: Iterable[PartitionRange], now_ms: int) -> int | None:
    """Return the end of the row without a hole that begins with the present partition; None without it."""
    end_ms: int | None = None
    for part in parts:
        if part.start_ms <= now_ms < part.end_ms or part.start_ms == end_ms:
            end_ms = part.end_ms
    return end_ms

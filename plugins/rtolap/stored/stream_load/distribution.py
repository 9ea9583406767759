"""Rows of one load to their tablets; partitions that they need are made on the way, inside retention.

Rows that are on their way cannot be called back. So before the first ones of a partition go, the load waits
until nodes can take them: one that has just been started sends its heartbeat within seconds, and a tablet
that could not be made at once is made a moment later.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.base.errors import DefinitionError, NotLeader, NotYet, Unavailable
from rtolap.model.stored.partitions import PartitionRange, to_drop
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.bodies.casting import shown
from rtolap.stored.bodies.options import LoadOptions
from rtolap.stored.engine.routing import RoutedBatch, RoutedPart, Routing
from rtolap.stored.metastore.records import Partition, Replica
from rtolap.stored.stream_load.decisions import TableDecisions
from rtolap.stored.stream_load.table_entry import TableEntry

NODES_WAIT_S = 10.0  # for nodes that can take a partition's rows; one that lives is heard every two seconds
_ASK_AGAIN_S = 0.1
SHOWN_MAX = 1000  # of one batch: what the error file may get of it
_BEYOND = "no partition for this tuple: its time is beyond the calendar, years 1 to 9998"


class Writer(Protocol):
    """Rows of one transaction on their way to the replicas of their tablets; for one thread.

    `write` and `finish` raise Unavailable once the majority of a tablet's replicas is gone.
    """

    def add_replicas(self, replicas: Collection[Replica]) -> None:
        """Add replicas of tablets that were made after the load began."""
        ...

    def write(self, partition: str, bucket: int, batch: pa.RecordBatch) -> None:
        """Write rows. Blocks while the nodes take nothing."""
        ...

    def finish(self) -> Collection[Partition]:
        """Finish once everything is on the nodes, and return the partitions that were written to."""
        ...

    def abort(self) -> None: ...


OpenWriter = Callable[[int, TableEntry, bool], Writer]  # (transaction, table, whether rows are partial)


@dataclass(frozen=True)
class Tables:
    """Table access of loads."""

    catalogue: TableDecisions
    open_writer: OpenWriter


@dataclass(frozen=True)
class UnroutableRows:
    """Rows that no partition takes.

    Attributes:
        count: their number.
        shown: the first of them, as (values, reason).
    """

    count: int
    shown: list[tuple[str, str]]


@dataclass(frozen=True)
class Distributed:
    """Rows with their tablets.

    Attributes:
        unroutable: None where every row has a tablet.
    """

    parts: tuple[RoutedPart, ...]
    unroutable: UnroutableRows | None


class Distribution:
    """Distribution of one load's rows, with the columns that the table had when it began."""

    def __init__(
        self, catalogue: TableDecisions, table: TableEntry, options: LoadOptions, deadline_s: float
    ) -> None:
        """Take the parts of a load. `deadline_s` is the load's, on the monotonic clock."""
        self.schema: StoredSchema = table.schema
        self._deadline_s = deadline_s
        self._waited_for: set[str] = set()
        self._catalogue = catalogue
        self._table = table
        self._only = frozenset(options.partitions)
        unknown = self._only - {part.name for part in table.partitions}
        if unknown:
            raise DefinitionError(
                "header partitions",
                expected=f"partitions of {table.definition.qualified_name}",
                found=unknown,
            )
        self._routing = self._route(table)

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Return the replicas of all partitions, those made during the load among them."""
        return self._table.replicas

    def split(self, rows: pa.RecordBatch) -> Distributed:
        """Split rows by their tablets; partitions that are not there yet are made."""
        if not rows.num_rows:
            return Distributed((), None)
        routed = self._split(rows)
        self._wait_for_nodes({part.partition for part in routed.parts})
        count = pc.sum(routed.unroutable).as_py() or 0
        if not count:
            return Distributed(routed.parts, None)
        refused = rows.filter(routed.unroutable)
        beyond = routed.beyond.filter(routed.unroutable)
        return Distributed(routed.parts, UnroutableRows(count, _shown(refused, beyond, self._reason())))

    def _split(self, rows: pa.RecordBatch) -> RoutedBatch:
        routed = self._routing.split(rows)
        wanted = () if self._only else self._worth_creating(routed.absent)
        if not wanted:
            return routed
        table = self._table.definition
        instants_ms = [part.start_ms for part in wanted]
        until_s = self._until_s()
        while True:
            try:
                self._table = self._catalogue.ensure_partitions(table.database, table.name, instants_ms)
                break
            except NotLeader:
                raise
            except (NotYet, Unavailable):  # the partition is still being dropped; no node has been heard of
                if time.monotonic() >= until_s:
                    raise
            time.sleep(_ASK_AGAIN_S)
        self._routing = self._route(self._table)
        return self._routing.split(rows)

    def _wait_for_nodes(self, partitions: Collection[str]) -> None:
        """Wait until nodes can take these partitions. Where they cannot in time, writing says what is
        missing.
        """
        fresh = set(partitions) - self._waited_for
        if not fresh:
            return
        self._waited_for |= fresh
        until_s = self._until_s()
        while not self._catalogue.can_take(self._table, fresh) and time.monotonic() < until_s:
            time.sleep(_ASK_AGAIN_S)

    def _until_s(self) -> float:
        return min(self._deadline_s, time.monotonic() + NODES_WAIT_S)

    def _worth_creating(self, absent: tuple[PartitionRange, ...]) -> tuple[PartitionRange, ...]:
        """Return the absent partitions that are worth looking up: retention would not drop them at once."""
        policy = self._table.definition.partitions
        if policy is None or not absent:
            return ()
        if not policy.on_demand:
            return absent  # somebody may have made them since this load began
        over = set(to_drop(policy, time.time_ns() // 1_000_000, absent))
        return tuple(part for part in absent if part not in over)

    def _route(self, table: TableEntry) -> Routing:
        parts = [part for part in table.partitions if not self._only or part.name in self._only]
        return Routing(table.definition, self.schema, parts)

    def _reason(self) -> str:
        if self._only:
            return "no partition for this tuple among those of the header partitions"
        policy = self._table.definition.partitions
        if policy is not None and not policy.on_demand:
            return "no partition for this tuple: none is there for its time, and loads make none"
        return "no partition for this tuple: its time is null, or retention has passed it"


def _shown(rows: pa.RecordBatch, beyond: pa.BooleanArray, reason: str) -> list[tuple[str, str]]:
    """Return the rows to show. `beyond` are rows that have a reason of their own."""
    first = rows.slice(0, SHOWN_MAX)
    # As text: an instant may be one that Python has no value for.
    columns = [shown(column) for column in first.columns]
    text = io.StringIO()
    lines = csv.writer(text, delimiter="\t", lineterminator="")
    words = []
    for is_beyond, *values in zip(beyond.slice(0, SHOWN_MAX).to_pylist(), *columns, strict=True):
        text.seek(0)
        text.truncate()
        lines.writerow(["\\N" if value is None else value for value in values])
        words.append((text.getvalue(), _BEYOND if is_beyond else reason))
    return words

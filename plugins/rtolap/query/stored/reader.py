"""The rows of all stored tables of one statement, as of one moment.

One read view names the visible version of every partition. Nodes pin these versions, so that compaction keeps
them until the statement has read them all; each tablet is then read at its version, one replica after the
other. Where none has it (compaction was faster than the pin, or they are gone) a new view is taken, and
everything is read again: a view is never mixed with another one.

Rows go on to the engine as soon as their tablet is read to its end: a replica that breaks off leaves none.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass

import pyarrow as pa
from msgspec.structs import replace

from rtolap.base.clock import Clock
from rtolap.base.errors import (
    Corrupted,
    NotFound,
    NotYet,
    PinExpired,
    QueryError,
    RtolapError,
    StaleSnapshot,
    Unavailable,
    UnknownColumn,
)
from rtolap.base.ids import CarryingPool
from rtolap.model.predicate import columns_of
from rtolap.model.stored.schema import StoredSchema
from rtolap.protocols.storage.messages import ScanRequest, TabletId
from rtolap.protocols.stored_tables.messages import PartitionView, ReadView, TableName, TabletView, TableView
from rtolap.query.cancel import Cancellation
from rtolap.query.peers import Attempt, PeersFailed, QueryPeer, QueryPeers
from rtolap.query.plan import TableRead, TableStats
from rtolap.query.relation_rows import RelationRows
from rtolap.query.stored.pinning import StatementPins
from rtolap.query.stored.source import StoredSource

VIEWS_MAX = 8  # a version goes stale once a compaction: more in a row is a fault, not traffic
EXPIRED_MAX = 2  # reads that outlive their pins: a third would not be shorter
RETRY_WAIT_S = 0.05  # before each further view, times the attempt
GRACE_S = 1.0  # the statement's own end makes a better error than a broken call
SCANS_AT_ONCE = 8
CALLS_MAX = 64  # of storage nodes: those that were given up end by themselves, with their statement's time
_ELSEWHERE = (Unavailable, NotYet, NotFound, Corrupted, StaleSnapshot)  # another replica may have it


@dataclass(frozen=True)
class _Scan:
    """The scan of a tablet, and the nodes that can serve it."""

    relation: str
    request: ScanRequest
    nodes: tuple[QueryPeer, ...]  # the preferred one first


class DefinitionChanged(Exception):
    """A table is not what the statement was planned for: the statement is planned again. Never leaves the
    query service."""


class StoredReader:
    """Reads the stored tables of statements. Thread-safe.

    `bytes_max` limits the rows that one statement reads, over all of its tables.
    """

    def __init__(self, source: StoredSource, bytes_max: int, clock: Clock) -> None:
        self._source = source
        self._bytes_max = bytes_max
        self._nodes = QueryPeers("storage-call", CALLS_MAX, self._ping, clock)
        self._pool = CarryingPool(SCANS_AT_ONCE, thread_name_prefix="stored-scan")

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._nodes.close()

    def read(
        self,
        reads: Sequence[TableRead],
        ending: Cancellation,
        open_sink: Callable[[TableRead], RelationRows],
        *,
        as_planned: bool = False,
    ) -> list[TableStats]:
        """Write the rows of each read into a sink of its own, and return the statistics.

        Args:
            open_sink: opens a sink for the rows of a read. Those of a view that was given up are discarded.
            as_planned: raise DefinitionChanged for a table that is gone, or has another definition than the
                statement was planned for. Else columns are followed through renames, as far as they exist.

        Raises Unavailable, StaleSnapshot when read views keep going stale, and QueryError for more rows than
        a statement may read.
        """
        if not reads:
            return []
        pause = threading.Event()
        ending.on_cancel(pause.set)
        names = list(dict.fromkeys(_name(read) for read in reads))
        expired = 0
        for attempt in range(VIEWS_MAX):
            if attempt:
                pause.wait(RETRY_WAIT_S * attempt)
                ending.check()
            view = self._view(names, reads, as_planned=as_planned)
            try:
                stats = self._read(view, reads, ending, open_sink)
            except (StaleSnapshot, Unavailable) as error:
                ending.check()
                expired += isinstance(error, PinExpired)
                if attempt == VIEWS_MAX - 1 or expired == EXPIRED_MAX:
                    raise
                continue
            for done in stats:
                done.views = attempt + 1
            return stats
        raise AssertionError("the loop returns or raises")

    def _view(self, names: Sequence[TableName], reads: Sequence[TableRead], *, as_planned: bool) -> ReadView:
        try:
            view = self._source.read_view(names)
        except NotFound as error:
            if as_planned:
                raise DefinitionChanged from error
            raise
        if as_planned:
            schemas = {
                TableName(table.db, table.name): (table.table_id, table.schema) for table in view.tables
            }
            if any(schemas[_name(read)] != (read.table.table_id, read.table.schema) for read in reads):
                raise DefinitionChanged
        return view

    def _read(
        self,
        view: ReadView,
        reads: Sequence[TableRead],
        ending: Cancellation,
        open_sink: Callable[[TableRead], RelationRows],
    ) -> list[TableStats]:
        budget = _Budget(self._bytes_max)
        scans: list[_Scan] = []
        stats: dict[str, TableStats] = {}
        tables = {TableName(table.db, table.name): table for table in view.tables}
        for read in reads:
            table = tables[_name(read)]
            stats[read.relation] = TableStats(read.table.qualified_name)
            scans += _scans(read, table, view.nodes, stats[read.relation])
        pins = StatementPins(self._source, self._nodes, self._pool, ending)
        sinks = {read.relation: open_sink(read) for read in reads}
        try:
            if len(scans) > 1:
                pins.pin([(scan.request, scan.nodes) for scan in scans])
            self._write(scans, {read.relation: read for read in reads}, sinks, stats, budget, pins, ending)
            for sink in sinks.values():
                sink.finish()
        except BaseException:
            for sink in sinks.values():
                sink.discard()
            raise
        finally:
            pins.release()
        return list(stats.values())

    def _write(
        self,
        scans: Sequence[_Scan],
        reads: Mapping[str, TableRead],
        sinks: Mapping[str, RelationRows],
        stats: Mapping[str, TableStats],
        budget: _Budget,
        pins: StatementPins,
        ending: Cancellation,
    ) -> None:
        """Write the rows of each scan into the sink of its relation when it has ended, and let them go."""
        running = {self._pool.submit(self._scan, scan, budget, pins, ending): scan for scan in scans}
        try:
            while running:
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for work in ended:
                    scan = running.pop(work)
                    node, batches = work.result()
                    done = stats[scan.relation]
                    done.nodes[node] = done.nodes.get(node, 0) + 1
                    del work
                    batches.reverse()
                    while batches:
                        batch = _named_as_read(reads[scan.relation], batches.pop())
                        done.rows_read += batch.num_rows
                        sinks[scan.relation].write(batch)
                ended.clear()
        except BaseException:
            budget.give_up()
            for left in running:
                left.cancel()
            wait(running)
            raise

    def _scan(
        self, scan: _Scan, budget: _Budget, pins: StatementPins, ending: Cancellation
    ) -> tuple[str, list[pa.RecordBatch]]:
        def read(node: QueryPeer, attempt: Attempt) -> list[pa.RecordBatch]:
            taken = 0
            try:
                timeout_s = ending.remaining_ms() / 1000 + GRACE_S
                pinned = replace(scan.request, pin=pins.pin_of(node, scan.request.tablet))
                stream = self._source.scan(node.address, pinned, timeout_s)
                attempt.on_give_up(stream.cancel)
                batches: list[pa.RecordBatch] = []
                for batch in stream:
                    taken += batch.nbytes
                    budget.reserve(batch.nbytes)
                    batches.append(batch)
                    if attempt.given_up:
                        raise Unavailable(f"nobody waits for {node.name} any more")
            except RtolapError:
                budget.give_back(taken)
                attempt.give_up()
                raise
            return batches

        try:
            node, batches = self._nodes.ask(scan.nodes, read, ending, _ELSEWHERE)
        except PeersFailed as error:
            stale = [failure for _, failure in error.failures if isinstance(failure, StaleSnapshot)]
            if stale:
                raise stale[0] from error
            raise Unavailable(
                f"no node gives tablet {scan.request.tablet} at version {scan.request.version}",
                expected="one of its replicas",
                found="; ".join(str(failure) for _, failure in error.failures) or "none that lives",
                action="ask again later",
            ) from error
        return node.name, batches

    def _ping(self, node: QueryPeer, within_s: float) -> None:
        self._source.ping(node.address, within_s)


class _Budget:
    """Bytes that all scans of a statement may hold together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken = 0
        self._over = False
        self._lock = threading.Lock()

    def reserve(self, size: int) -> None:
        with self._lock:
            if self._over:
                raise QueryError("the statement has failed in another tablet")
            self._taken += size
            if self._taken <= self._bytes_max:
                return
        raise QueryError(
            "the statement reads more of stored tables than may be held",
            expected=f"at most {self._bytes_max} bytes",
            action="ask for fewer columns, or for less by conditions on columns alone",
        )

    def give_back(self, size: int) -> None:
        with self._lock:
            self._taken -= size

    def give_up(self) -> None:
        """Stop the others: what they read is of no more use."""
        with self._lock:
            self._over = True


def _name(read: TableRead) -> TableName:
    """Return the table's name: several reads may be of one table, also through a lookup."""
    return TableName(read.table.db, read.table.name)


def _scans(
    read: TableRead, table: TableView, addresses: Mapping[str, str], stats: TableStats
) -> Iterator[_Scan]:
    columns = _columns_now(read, table)
    unchanged = all(_means_the_same(read, table, name) for name in columns_of(read.filter))
    if read.work.partials is not None and not (unchanged and columns == read.columns):
        raise Unavailable(
            f"the definition of {read.table.qualified_name} keeps changing",
            expected="the columns that the statement was planned for",
            action="ask again",
        )
    for partition in table.partitions:
        if not read.time.overlaps(partition.range.start_ms, partition.range.end_ms):
            stats.pruned_partitions += (partition.range.name,)
            continue
        stats.partitions += (partition.range.name,)
        if partition.version == 0:  # nothing was ever loaded into it
            continue
        for tablet in partition.tablets:
            stats.tablets += 1
            request = ScanRequest(
                _tablet_id(table, partition, tablet),
                table.schema,
                partition.version,
                columns,
                read.filter if unchanged else None,
                read.work.partials,
                read.work.top if unchanged and columns == read.columns else None,
            )
            yield _Scan(read.relation, request, _preferred(tablet, addresses, str(request.tablet)))


def _columns_now(read: TableRead, table: TableView) -> tuple[str, ...]:
    """Return the present names of the read's columns. Raises QueryError for one that was dropped."""
    if read.table.table_id != table.table_id:
        wanted = read.columns
    else:
        names = {column.id: column.name for column in table.schema.columns}
        wanted = tuple(names.get(_column_id(read.table.schema, name), "") for name in read.columns)
    for name, now in zip(read.columns, wanted, strict=True):
        if now not in table.schema.names:
            raise UnknownColumn(
                f"unknown column {name!r} in {read.table.qualified_name}: it was just dropped"
            )
    return wanted


def _means_the_same(read: TableRead, table: TableView, name: str) -> bool:
    """Return True if a condition on the column can still be sent as it is."""
    now = {column.name: column.id for column in table.schema.columns}
    return read.table.table_id == table.table_id and now.get(name) == _column_id(read.table.schema, name)


def _column_id(schema: StoredSchema, name: str) -> int:
    return schema.named(name).id


def _tablet_id(table: TableView, partition: PartitionView, tablet: TabletView) -> TabletId:
    name, incarnation = partition.range.name, partition.incarnation
    return TabletId(table.table_id, table.db, table.name, name, tablet.bucket, incarnation)


def _preferred(tablet: TabletView, addresses: Mapping[str, str], key: str) -> tuple[QueryPeer, ...]:
    """Return the live nodes of a tablet.

    The same one comes first for all queries, so that its caches stay warm.
    """
    living = [node for node in tablet.nodes if node in addresses]
    first = zlib.crc32(key.encode()) % len(living) if living else 0
    return tuple(QueryPeer(node, addresses[node]) for node in living[first:] + living[:first])


def _named_as_read(read: TableRead, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows under the column names that the statement knows.

    The columns may have been renamed since.
    """
    schema = read.relation_schema
    return batch.rename_columns(schema.names).cast(schema)

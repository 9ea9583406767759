"""Small loads of one table that come within an interval share one transaction.

Each is read, checked and distributed by itself, so that what is wrong with one harms no other. Then its rows
join those that wait. The first of a group waits for the interval, or until the group is large, and carries
out the transaction for all of them; every one is answered what became of it: when it is visible, or will be.

    a crash before the commit     none of the group is there, and none was answered that it is
    a crash after it              all of it is; who got no answer cannot look it up: there is no label

So group commit is for who does not need to know: exactly once takes labels. `async_mode` is answered at the
same moment as `sync_mode`: there is no log from which rows that were promised before could be taken up.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition

import pyarrow as pa

from rtolap.base.errors import RtolapError, TooLarge
from rtolap.protocols.stream_load.messages import LoadAnswer
from rtolap.stored.bodies.batches import check_ratio
from rtolap.stored.engine.routing import RoutedPart
from rtolap.stored.stream_load import messages
from rtolap.stored.stream_load.body_pipe import BodyPipe
from rtolap.stored.stream_load.distribution import Distribution, Writer
from rtolap.stored.stream_load.load import LoadServices
from rtolap.stored.stream_load.load_statistics import LoadProgress, Phase
from rtolap.stored.stream_load.request import LoadRequest
from rtolap.stored.stream_load.table_entry import TableEntry

INTERVAL_S = 0.2
LOAD_BYTES_MAX = 8 << 20  # of a body; larger ones have a transaction of their own
GROUP_BYTES_MAX = 64 << 20  # of rows: then nobody waits any longer, and no single load may have more

# A table as it was made, its schema's version, names and types of the rows: what may go into one writer.
_Key = tuple[int, int, str]


@dataclass
class _Group:
    """The loads that share a transaction.

    Attributes:
        table: the table for which the rows were read and routed; the same for the whole group.
    """

    table: TableEntry
    parts: list[RoutedPart] = field(default_factory=list)
    bytes: int = 0
    done: Future[LoadAnswer] = field(default_factory=Future)  # of the transaction, without rows and times


class GroupCommit:
    """Thread-safe; each load runs in a thread of its caller, which waits for its group."""

    def __init__(self, services: LoadServices, *, interval_s: float = INTERVAL_S) -> None:
        self._services = services
        self._committing = services.committing
        self._tables = services.tables
        self._interval_s = interval_s
        self._open: dict[_Key, _Group] = {}
        self._changed = Condition()

    def run(self, request: LoadRequest, pipe: BodyPipe) -> LoadAnswer:
        progress = LoadProgress("", request.comment)
        deadline_s = time.monotonic() + request.timeout_ms / 1000
        reading = self._services.reading(request, pipe, progress, deadline_s)
        try:
            table = self._tables.catalogue.table_to_load(request.db, request.table)
            distribution = Distribution(self._tables.catalogue, table, request.options, deadline_s)
            parts = _collected(reading.parts(distribution))
            check_ratio(progress.counts, request.options.max_filter_ratio)
        except RtolapError as error:
            reading.close()
            return progress.failed(error)
        finally:
            reading.close()
        if not parts:
            return progress.answer("Success")
        with progress.measured(Phase.COMMIT):
            shared = self._join(request, table, parts)
        progress.txn_id, progress.label = shared.txn_id, shared.label
        return progress.answer(shared.status, shared.message, code=shared.code)

    def _join(self, request: LoadRequest, table: TableEntry, parts: list[RoutedPart]) -> LoadAnswer:
        key = (table.table_id, table.schema.version, str(parts[0].rows.schema))
        with self._changed:
            group = self._open.get(key)
            first = group is None
            if group is None:
                group = self._open[key] = _Group(table)
            group.parts += parts
            group.bytes += sum(part.rows.nbytes for part in parts)
            if group.bytes >= GROUP_BYTES_MAX:
                self._changed.notify_all()
            if first:
                until_s = time.monotonic() + self._interval_s
                while group.bytes < GROUP_BYTES_MAX and (left_s := until_s - time.monotonic()) > 0:
                    self._changed.wait(left_s)
                del self._open[key]  # a load that comes now begins the next one
        if first:
            try:
                group.done.set_result(self._carry_out(request, group))
            except BaseException as error:
                group.done.set_exception(error)
                raise
        return group.done.result()

    def _carry_out(self, request: LoadRequest, group: _Group) -> LoadAnswer:
        label = f"group_commit_{uuid.uuid4().hex}"
        progress = LoadProgress(label)
        # the options of a single load, such as its timeout, are not for all
        own = LoadRequest(db=request.db, table=request.table, label=label)
        try:
            table = group.table.with_partitions_of(
                self._tables.catalogue.table_to_load(request.db, request.table)
            )
            transaction = self._committing.begin(own)
        except RtolapError as error:
            return progress.failed(error, messages.on_the_wire(str(error)))
        progress.txn_id = transaction.txn_id
        writer: Writer | None = None
        row_count = 0
        try:
            writer = self._tables.open_writer(transaction.txn_id, table, False)
            for (partition, bucket), rows in _by_tablet(group.parts).items():
                writer.write(partition, bucket, rows)
                row_count += rows.num_rows
            written = writer.finish()
        except RtolapError as error:
            self._committing.give_up(transaction, writer, str(error))
            return progress.failed(error)
        except BaseException as error:
            self._committing.give_up(transaction, writer, f"an error of the program: {error!r}")
            raise
        return self._committing.commit(transaction, written, progress, rows=row_count)


def _collected(batches: Iterator[tuple[RoutedPart, ...]]) -> list[RoutedPart]:
    """Return all rows of one load. Raises TooLarge when they are too large to wait in memory."""
    parts: list[RoutedPart] = []
    collected_bytes = 0
    for batch in batches:
        collected_bytes += sum(part.rows.nbytes for part in batch)
        if collected_bytes > GROUP_BYTES_MAX:
            raise TooLarge(
                "a load is too large for group commit",
                expected=f"at most {GROUP_BYTES_MAX} bytes of rows",
                action="send it without group_commit",
            )
        parts += batch
    return parts


def _by_tablet(parts: list[RoutedPart]) -> dict[tuple[str, int], pa.RecordBatch]:
    """Return rows of one tablet together, in the order in which they came."""
    by_tablet: dict[tuple[str, int], list[pa.RecordBatch]] = {}
    for part in parts:
        by_tablet.setdefault((part.partition, part.bucket), []).append(part.rows)
    return {tablet: pa.concat_batches(batches) for tablet, batches in by_tablet.items()}

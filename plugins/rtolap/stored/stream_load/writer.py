"""Rows of one transaction on their way to all replicas of their tablets.

    write     rows are collected by tablet, so that nodes get few large batches, and queued to each replica
    finish    each node gets the row count of each of its tablets, and makes them durable: prepared
    abort     the streams are given up, and nodes forget what has come

Memory: `waiting_bytes_max` of collected rows, and `queue_bytes_max` that a node has not taken yet (the queues
of all nodes hold the same buffers). A full queue holds the writer back. A node that fails, stands still, or
takes nothing for `stall_s`, is left behind: it catches up later. Without the majority of a tablet's replicas
it is Unavailable. In the end nobody is left behind before a majority has all of it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa

from rtolap.base.errors import DefinitionError, Refused, Unavailable
from rtolap.model.stored.schema import StoredSchema
from rtolap.protocols.flight.client import PING_AFTER_S
from rtolap.protocols.storage.messages import PutEnd, PutHead, TabletId, TabletRows
from rtolap.stored.engine.rows.texts import in_type, plain_texts, saves_work
from rtolap.stored.metastore.records import Partition, Replica, Tablet
from rtolap.stored.stream_load import messages
from rtolap.stored.stream_load.node_sender import NodeSender, RowNodes
from rtolap.stored.stream_load.quorum import shortfall


@dataclass(frozen=True)
class WriterSettings:
    """part_bytes          rows of a tablet are sent when they are so many bytes
    waiting_bytes_max   of all tablets together, before all are sent
    queue_bytes_max     what one node has not taken yet
    stall_s             a node that takes nothing for so long is left behind
    finish_s            the longest that making everything durable may take
    ping_after_s        without any progress, before it is checked whether a node stands still, and again
    """

    part_bytes: int = 4 << 20
    waiting_bytes_max: int = 16 << 20
    queue_bytes_max: int = 32 << 20
    stall_s: float = 20.0
    finish_s: float = 300.0
    ping_after_s: float = PING_AFTER_S


class LoadWriter:
    """Writes the rows of a load to nodes. For a single thread.

    After an error, and after `finish`, only `abort` may follow.
    """

    def __init__(
        self,
        nodes: RowNodes,
        txn_id: int,
        table_id: int,
        schema: StoredSchema,
        replicas: Collection[Replica],
        settings: WriterSettings = WriterSettings(),
        *,
        partial: bool = False,
    ) -> None:
        """Take the nodes. `replicas` are those of all partitions of the table; `add_replicas` adds those that
        are made later. With `partial`, rows keep the columns that they do not name."""
        self._nodes, self._txn_id, self._table_id, self._settings = nodes, txn_id, table_id, settings
        self._head = PutHead(txn_id, schema, partial)
        self._replicas: dict[Partition, list[Replica]] = defaultdict(list)
        self._names: dict[str, Partition] = {}
        self._tablets: set[Tablet] = set()
        self._columns: pa.Schema | None = None
        self._waiting: dict[Tablet, list[pa.RecordBatch]] = defaultdict(list)
        self._waiting_bytes: dict[Tablet, int] = defaultdict(int)
        self._rows: dict[Tablet, int] = defaultdict(int)
        self._senders: dict[str, NodeSender] = {}
        self.add_replicas(replicas)

    def add_replicas(self, replicas: Collection[Replica]) -> None:
        """Add replicas, except for partitions that are known already."""
        fresh = [each for each in replicas if each.tablet.partition not in self._replicas]
        for replica in fresh:
            self._replicas[replica.tablet.partition].append(replica)
            self._names[replica.tablet.partition.name] = replica.tablet.partition
            self._tablets.add(replica.tablet)

    def write(self, partition: str, bucket: int, batch: pa.RecordBatch) -> None:
        """Write rows by the names of the schema. It blocks while nodes take nothing.

        Unavailable: no majority is left of a tablet. Refused: a node refuses the rows as all would.
        DefinitionError: an unknown partition or bucket, or other columns than before.
        """
        if partition not in self._names:
            raise DefinitionError(f"the load knows no partition {partition}")
        if not batch.num_rows:
            return
        tablet = Tablet(self._names[partition], bucket)
        if tablet not in self._tablets:
            raise DefinitionError(f"the load knows no bucket {bucket} of partition {partition}")
        alike = self._alike(batch)
        self._waiting[tablet].append(alike)
        self._waiting_bytes[tablet] += alike.nbytes
        self._rows[tablet] += alike.num_rows
        if self._waiting_bytes[tablet] >= self._settings.part_bytes:
            self._send(tablet)
        if sum(self._waiting_bytes.values()) >= self._settings.waiting_bytes_max:
            self._send_all()

    def finish(self) -> frozenset[Partition]:
        """Return the partitions written to, durable on a majority of each tablet's replicas.

        Raises as `write`.
        """
        self._send_all()
        written = frozenset(tablet.partition for tablet in self._rows)
        replicas = [replica for partition in sorted(written) for replica in self._replicas[partition]]
        ends: dict[str, list[TabletRows]] = defaultdict(list)
        for replica in replicas:
            rows = self._rows.get(replica.tablet, 0)
            ends[replica.node].append(TabletRows(self._id(replica.tablet), rows))
        for node, tablets in ends.items():
            self._sender(node).end(PutEnd(tuple(tablets)))
        began_s = pinged_s = time.monotonic()
        while any(self._sender(node).busy for node in ends):
            self._raise_refusals()
            now_s = time.monotonic()
            if now_s - began_s > self._settings.finish_s:
                break
            if (
                now_s - pinged_s > self._settings.ping_after_s
                and shortfall(replicas, self._prepared()) is None
            ):
                if now_s - began_s > self._settings.stall_s or self._stand_still(ends):
                    break  # the rest catches up
                pinged_s = time.monotonic()
            self._wait_for_any(ends)
        for sender in self._senders.values():
            sender.cancel("it was slower than the others, or stood still")
        self._raise_refusals()
        self._check(replicas, self._prepared())
        return written

    def abort(self) -> None:
        """Make nodes forget the rows received, unless they had finished: then the transaction's abort does
        it.
        """
        for sender in self._senders.values():
            sender.cancel("the load was given up")

    def _alike(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of the first batch, in its order and its types."""
        if self._columns is None:
            arrays = [each if saves_work(each) else plain_texts(each) for each in batch.columns]
            first = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
            self._columns = first.schema
            return first
        if set(batch.schema.names) != set(self._columns.names):
            raise DefinitionError(
                "batches of a load have different columns",
                expected=self._columns.names,
                found=batch.schema.names,
            )
        arrays = [in_type(batch.column(field.name), field.type) for field in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._columns)

    def _send_all(self) -> None:
        for tablet in list(self._waiting):
            self._send(tablet)

    def _send(self, tablet: Tablet) -> None:
        batches = self._waiting.pop(tablet, [])
        self._waiting_bytes.pop(tablet, None)
        if not batches:
            return
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        lost = False
        for replica in self._replicas[tablet.partition]:
            if replica.tablet == tablet:
                lost |= not self._sender(replica.node).offer(self._id(tablet), whole)
        if lost:
            self._raise_refusals()
            written = [
                replica
                for known in self._rows
                for replica in self._replicas[known.partition]
                if replica.tablet == known
            ]
            self._check(written, self._hoped_for(written))

    def _sender(self, node: str) -> NodeSender:
        if node not in self._senders:
            self._senders[node] = NodeSender(
                self._nodes,
                node,
                self._head,
                self._columns or pa.schema([]),
                bytes_max=self._settings.queue_bytes_max,
                stall_s=self._settings.stall_s,
                ping_after_s=self._settings.ping_after_s,
            )
        return self._senders[node]

    def _hoped_for(self, replicas: Collection[Replica]) -> Mapping[str, Collection[Tablet]]:
        """Return the tablets expected of every node that has not failed.

        A node without a sender counts as well.
        """
        failed = {node for node, sender in self._senders.items() if sender.failure is not None}
        hoped: dict[str, set[Tablet]] = defaultdict(set)
        for replica in replicas:
            if replica.node not in failed:
                hoped[replica.node].add(replica.tablet)
        return hoped

    def _prepared(self) -> Mapping[str, Collection[Tablet]]:
        return {
            node: {_tablet(each) for each in sender.answer.prepared}
            for node, sender in self._senders.items()
            if sender.answer is not None
        }

    def _check(self, replicas: Collection[Replica], holders: Mapping[str, Collection[Tablet]]) -> None:
        missing = shortfall(replicas, holders)
        if missing is not None:
            reason = messages.no_majority(self._txn_id, missing)
            failures = [f"{node}: {sender.failure}" for node, sender in sorted(self._senders.items())]
            raise Unavailable(reason, found="; ".join(each for each in failures if not each.endswith("None")))

    def _raise_refusals(self) -> None:
        """Raise a refusal of any node at once: every replica would refuse these rows."""
        for sender in self._senders.values():
            if isinstance(sender.failure, Refused | DefinitionError):
                raise sender.failure

    def _wait_for_any(self, nodes: Collection[str]) -> None:
        busy = [self._sender(node) for node in nodes if self._sender(node).busy]
        if busy:
            busy[0].wait(0.05)

    def _stand_still(self, nodes: Collection[str]) -> bool:
        """Return all those that have not finished."""
        return all(self._nodes.stands_still(node) for node in nodes if self._sender(node).busy)

    def _id(self, tablet: Tablet) -> TabletId:
        partition = tablet.partition
        names = (partition.db, partition.table, partition.name)
        return TabletId(self._table_id, *names, tablet.bucket, partition.incarnation)


def _tablet(tablet: TabletId) -> Tablet:
    partition = Partition(tablet.db, tablet.table, tablet.partition, tablet.incarnation)
    return Tablet(partition, tablet.bucket)

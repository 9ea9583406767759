"""The journal notes durably which events were delivered, in a partition of a topic that one process writes at
a time. A subscription with several consumers has a partition for each share of its rows.

    record        written                                                     means, when it is read again
    Delivered     in the transaction of the events, or after they are done    these edits are delivered
    LoadBegun     before a load is sent under its label                       closing the label decides
    LoadEnded     once the label's state is known                             delivered, or not
    RowApart      before the first edit of a row goes to the dead letters     all of them do, until
    RowBack       when its letters were delivered                             its edits are delivered again
    LoadNumber    when the journal is written again                           loads have larger numbers

`recover` shuts the process out that wrote before, then reads: nothing can be added behind its back. All
that is known is written again now and then, and what stands before that is deleted: the topic stays
small, and a take-over short.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from pyroaring import BitMap64

from rtolap.base.errors import CommitUnknown, Corrupted, NotFound, RtolapError
from rtolap.kafka.interfaces import StreamConsumer, TopicAdmin
from rtolap.kafka.transactions import OutColumns, TransactionalProducer
from rtolap.sep.delivery.delivered_edits import DeliveredEdits
from rtolap.sep.delivery.edit_records import RegionEdits
from rtolap.sep.delivery.row_ranges import CLOCKS_APART_MS

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
REWRITE_RECORDS = 20_000
_TOPIC_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",  # the journal trims itself
    "retention.bytes": "-1",
    "max.message.bytes": str(16 << 20),
}
_POLL_RECORDS = 1000
_POLL_S = 0.5


class Delivered(msgspec.Struct, frozen=True, array_like=True, tag="delivered"):
    regions: tuple[RegionEdits, ...]


class LoadBegun(msgspec.Struct, frozen=True, array_like=True, tag="load_begun"):
    """A load that is about to be sent.

    Attributes:
        not_after_ms: no request under the label is accepted after this time.
        number: larger than the number of every load before; 0 where the load has none.
    """

    label: str
    not_after_ms: int
    regions: tuple[RegionEdits, ...]
    number: int = 0


class LoadEnded(msgspec.Struct, frozen=True, array_like=True, tag="load_ended"):
    label: str
    delivered: bool


class LoadNumber(msgspec.Struct, frozen=True, array_like=True, tag="load_number"):
    """The number of the last load that was begun, where its own record is no longer there."""

    number: int


class RowApart(msgspec.Struct, frozen=True, array_like=True, tag="row_apart"):
    """A row whose edits go to the dead letters, in order.

    Attributes:
        id: names this time that the row is set apart; its letters carry it.
        first_offset: the row's letters start at this offset of their topic or later.
    """

    table: str
    row: bytes
    id: str
    since_ms: int
    first_offset: int
    reason: str


class RowBack(msgspec.Struct, frozen=True, array_like=True, tag="row_back"):
    """A row whose letters were delivered. Its edits are delivered as usual again."""

    table: str
    row: bytes
    id: str


RowKey = tuple[str, bytes]  # table, row
Record = Delivered | LoadBegun | LoadEnded | LoadNumber | RowApart | RowBack
_decoder = msgspec.msgpack.Decoder(Record)
_encoder = msgspec.msgpack.Encoder()


def journal_name(subscription: str, cluster_id: str) -> str:
    """Return the name of the journal's topic, which is its transactional id too where there is one share.

    `cluster_id`: the one that HBase takes the subscription for. A subscription that is dropped and created
    again has another: what its predecessor has delivered it may deliver again.
    """
    return f"rtolap-sep-{subscription}-{cluster_id[:8]}"


def ensure_topic(admin: TopicAdmin, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    """Create the topic where it is not there: who may write to it need not be allowed to create it."""
    try:
        admin.partitions(topic)
    except NotFound:
        admin.create_topic(topic, partitions, replication=-1, config=config)


def ensure_partitions(admin: TopicAdmin, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    """Create the topic, or add the partitions that it lacks: an earlier subscription may have had fewer."""
    ensure_topic(admin, topic, partitions, config)
    if len(admin.partitions(topic)) >= partitions:
        return
    try:
        admin.add_partitions(topic, partitions)
    except RtolapError:
        if len(admin.partitions(topic)) < partitions:  # else another process of ours was faster
            raise


@dataclass(frozen=True)
class Share:
    """A part of a subscription's rows, which one process delivers at a time.

    Attributes:
        number: from 0; also the partition of its journal and of its dead letters.
        count: the number of shares of the subscription.
    """

    number: int = 0
    count: int = 1

    def transactional_id(self, topic: str) -> str:
        return topic if self.count == 1 else f"{topic}-{self.number}"


WHOLE = Share()


class Journal:
    """The journal of delivered edits. Not thread-safe.

    Attributes:
        memory: the delivered edits; None before `recover`, and after a write whose outcome is not known.
        ended_loads: `not_after_ms` of ended loads, by label. The caller that releases a label removes it.
    """

    def __init__(
        self,
        topic: str,
        *,
        open_producer: Callable[[str], TransactionalProducer],
        open_consumer: Callable[[str], StreamConsumer],
        admin: TopicAdmin,
        make_memory: Callable[[], DeliveredEdits] = DeliveredEdits,
        rewrite_records: int = REWRITE_RECORDS,
        share: Share = WHOLE,
    ) -> None:
        self.topic = topic
        self.share = share
        self.memory: DeliveredEdits | None = None
        self.open_loads: dict[str, LoadBegun] = {}
        self.apart: dict[RowKey, RowApart] = {}
        self.open_consumer = open_consumer
        self.ended_loads: dict[
            str, int
        ] = {}  # label → not_after_ms; the caller that gives a label back removes it
        self._load_number = 0
        self._open_producer = open_producer
        self._admin = admin
        self._make_memory = make_memory
        self._rewrite_records = rewrite_records
        self._producer: TransactionalProducer | None = None
        self._records = 0  # since all was written again

    def recover(self) -> DeliveredEdits:
        """Take the journal over and read it. Unavailable, Forbidden; then nothing is remembered yet."""
        self.close()
        ensure_partitions(self._admin, self.topic, self.share.count, _TOPIC_CONFIG)
        self._producer = self._open_producer(self.share.transactional_id(self.topic))
        self._producer.begin(TIMEOUT_S)
        self.open_loads, self.ended_loads, self.apart = {}, {}, {}
        self._load_number = 0
        memory = self._make_memory()
        consumer = self.open_consumer(self.topic)
        try:
            self._read(consumer, memory)
        finally:
            consumer.close()
        self.memory = memory
        return memory

    def write(self, records: Sequence[Record], columns: Sequence[OutColumns] = ()) -> None:
        """Write these, and the records of other topics, as one; then remember them.

        CommitUnknown: `recover` finds the outcome. NotLeader: another process has taken over. Anything else:
        nothing was written.
        """
        assert self._producer is not None, "recover comes first"
        assert self.memory is not None, "recover comes first"
        try:
            self._producer.send([*columns, self._column(records)], TIMEOUT_S)
        except CommitUnknown:
            self.memory = None
            raise
        for record in records:
            self._apply(record, self.memory)
        if self._records >= self._rewrite_records and not self.open_loads:
            self._rewrite()

    def end_of(self, topic: str) -> int:
        """Return the next offset of the share's partition of the topic."""
        return self._admin.offsets(topic, "latest")[self.share.number]

    def delivered_of(self, region: str) -> BitMap64:
        """Return the ids that are remembered of a region."""
        assert self.memory is not None, "recover comes first"
        return self.memory.delivered_of(region)

    def next_load_number(self, now_ms: int) -> int:
        """Return a number that is larger than those of all loads that were begun; milliseconds since 1970,
        or a little more.

        The first one is a minute ahead: a subscription that was created again begins above its predecessor,
        also on a host whose clock is behind.
        """
        return max(self._load_number + 1, now_ms) if self._load_number else now_ms + CLOCKS_APART_MS

    def close(self) -> None:
        self.memory = None
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _read(self, consumer: StreamConsumer, memory: DeliveredEdits) -> None:
        partition = self.share.number
        known = consumer.log_range(partition, TIMEOUT_S)
        consumer.assign({partition: known.start})
        self._records = 0
        while consumer.position()[partition] < known.end:
            for value in consumer.poll(_POLL_RECORDS, _POLL_S).values:
                try:
                    record = _decoder.decode(value or b"")
                except msgspec.MsgspecError as error:
                    raise Corrupted(
                        f"a record of the journal {self.topic} cannot be read",
                        found=str(error),
                        action="was it written by a newer version, or by somebody else? Start that one",
                    ) from error
                self._apply(record, memory)

    def _apply(self, record: Record, memory: DeliveredEdits) -> None:
        self._records += 1
        match record:
            case Delivered(regions):
                memory.remember(regions)
            case LoadBegun(label):
                self.open_loads[label] = record
                self._load_number = max(self._load_number, record.number)
            case RowApart(table, row):
                self.apart[table, row] = record
            case RowBack(table, row, apart_id):
                known = self.apart.get((table, row))
                if known is not None and known.id == apart_id:
                    del self.apart[table, row]
            case LoadNumber(number):
                self._load_number = max(self._load_number, number)
            case LoadEnded(label, delivered):
                begun = self.open_loads.pop(label, None)
                if begun is None:
                    return
                self.ended_loads[label] = begun.not_after_ms
                if delivered:
                    memory.remember(begun.regions)

    def _rewrite(self) -> None:
        """Rewrite the journal. A failure costs nothing, for the longer journal says the same. After
        CommitUnknown, nothing more can be written before `recover`."""
        assert self._producer is not None
        assert self.memory is not None
        try:
            before = self._admin.offsets(self.topic, "latest")[self.share.number]
            whole: list[Record] = [Delivered((region,)) for region in self.memory.records()]
            for label, not_after_ms in self.ended_loads.items():  # still to be given back
                whole += [LoadBegun(label, not_after_ms, ()), LoadEnded(label, delivered=False)]
            whole += self.apart.values()
            if self._load_number:
                whole.append(LoadNumber(self._load_number))
            self._producer.send([self._column(whole)], TIMEOUT_S)
            self._records = 0
            self._admin.delete_records(self.topic, {self.share.number: before})  # no others': they live
        except CommitUnknown:
            self.memory = None
            raise
        except RtolapError as error:
            log.warning("journal %s was not made shorter: %s", self.topic, error)

    def _column(self, records: Sequence[Record]) -> OutColumns:
        values = [_encoder.encode(record) for record in records]
        return OutColumns(self.topic, [None] * len(values), values, partition=self.share.number)

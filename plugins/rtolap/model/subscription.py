"""A subscription sends edits of an HBase cluster's tables as events to one listener."""

from __future__ import annotations

from typing import Literal

import msgspec

from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

START_NOW = "now"

ListenerKind = Literal["kafka", "stored_table", "python"]


class HBaseSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The HBase whose changes are captured.

    Attributes:
        zookeeper: host:port of the ensemble that HBase uses, separated by commas; "" stands for the HBase of
            the settings (`RTOLAP_HBASE`), with its parent.
        parent: HBase's node.
    """

    zookeeper: str = ""
    parent: str = "/hbase"

    @classmethod
    def parse(cls, text: str) -> HBaseSource:
        """Parse `host:port,host:port/hbase`; the parent node may be left out."""
        servers, slash, parent = text.partition("/")
        return cls(servers, f"/{parent}") if slash else cls(servers)


class CellColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The column is the value of `cell`, family:qualifier, in the encoding of HBase's `Bytes` for `type`."""

    cell: str
    type: str = "string"


class RowColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The column that holds the row key."""

    name: str = "row_key"
    type: str = "string"


class SubscriptionPoison(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The policy for an event that the listener does not accept.

    Attributes:
        policy: `retry` sets the event's row apart after `apart_after_s`: the event and later ones of the row
            wait among the dead letters and are tried again from there. `skip` keeps the event as a dead
            letter after `tries`; `stop` stops.
        apart_after_s: 0 never sets a row apart: the region server's queue waits instead.
    """

    policy: Literal["retry", "skip", "stop"] = "retry"
    tries: int = 10
    apart_after_s: int = 300


class SubscriptionListener(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The listener of a subscription.

    Attributes:
        kind: `kafka` needs `topic`; `stored_table` needs `database` and `table`; `python` needs
            `entry_point`.
        entry_point: of the group `rtolap.sep.listeners`.
        lanes: number of threads in which the entry point is called.
        user: of loads, as in a loader's sink.
        password_file: of loads, as in a loader's sink.
        cluster: the Kafka cluster of the topic and of the journal of deliveries, as in a `Table`.
    """

    kind: ListenerKind
    topic: str | None = None
    database: str | None = None
    table: str | None = None
    entry_point: str | None = None
    lanes: int = 4
    user: str = "root"
    password_file: str | None = None
    cluster: str = DEFAULT_KAFKA_CLUSTER


class Subscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A subscription to the changes of HBase tables.

    `tables` and `namespaces` are what is followed. With an exclusion it is all other tables instead.

    Attributes:
        tables: `table` or `namespace:table` → families; none stands for all families.
        start: `now`, or an instant: edits that were written before are acknowledged and not delivered.
        serial: True where HBase keeps the order of a region's edits when the region moves.
        ratio: the share of the ports that each region server ships to.
        ports: number of ports of one process; each accepts one call of a region server at a time.
        consumers: number of processes that may be active at once; rows are divided into as many shares.
        columns: columns of an event, by name.
        deletes: whether an event that only deletes is delivered.
        meta_cells: whether HBase's own notes of bulk loads and the like are delivered.
        row_prefixes: only rows that begin so are delivered.
        filters: entry points of the group `rtolap.sep.filters`.
        payload: entry point of the group `rtolap.sep.payload_extractors`.
        allowed_addresses: addresses or networks that may connect; none stands for the region servers that are
            alive.
    """

    name: str
    source: HBaseSource = HBaseSource()
    listener: SubscriptionListener
    tables: dict[str, tuple[str, ...]] = {}
    namespaces: tuple[str, ...] = ()
    exclude_tables: dict[str, tuple[str, ...]] = {}
    exclude_namespaces: tuple[str, ...] = ()
    start: str = START_NOW
    serial: bool = False
    ratio: float = 1.0
    ports: int = 2
    consumers: int = 1
    columns: dict[str, CellColumn] = {}
    row: RowColumn = RowColumn()
    deletes: Literal["event", "ignore"] = "event"
    meta_cells: Literal["skip", "event"] = "skip"
    row_prefixes: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    payload: str | None = None
    poison: SubscriptionPoison = SubscriptionPoison()
    allowed_addresses: tuple[str, ...] = ()

    def at(self, hbase: str) -> Subscription:
        """Return it with the source `hbase`, as the settings name one, unless it has a source of its own."""
        if self.source.zookeeper:
            return self
        return msgspec.structs.replace(self, source=HBaseSource.parse(hbase))

    @property
    def follows_everything(self) -> bool:
        """Return True where it has exclusions in place of tables and namespaces."""
        return bool(self.exclude_tables or self.exclude_namespaces)

    @property
    def followed(self) -> str:
        """Return its tables in words, and its namespaces as `name:*`."""
        if self.follows_everything:
            excluded = (*self.exclude_tables, *(f"{name}:*" for name in self.exclude_namespaces))
            return f"everything but {', '.join(excluded)}"
        return ", ".join((*self.tables, *(f"{name}:*" for name in self.namespaces)))


def dead_letter_topic(subscription: str) -> str:
    """Return the topic of the events that a subscription has skipped or set apart, by its name."""
    return f"rtolap-sep-{subscription}.dead-letters"

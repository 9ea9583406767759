"""A subscription: edits of an HBase cluster's tables as events, to one listener."""

from __future__ import annotations

from typing import Literal

import msgspec

from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

START_NOW = "now"

ListenerKind = Literal["kafka", "stored_table", "python"]


class HBaseSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`zookeeper`: host:port of the ensemble that HBase uses, separated by commas; "": the HBase of the
    settings (`RTOLAP_HBASE`), with its parent. `parent`: HBase's node.
    """

    zookeeper: str = ""
    parent: str = "/hbase"

    @classmethod
    def parse(cls, text: str) -> HBaseSource:
        """Parse `host:port,host:port/hbase`; the parent node may be left out."""
        servers, slash, parent = text.partition("/")
        return cls(servers, f"/{parent}") if slash else cls(servers)


class CellColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The column is the value of `cell`, family:qualifier, in the encoding of HBase's `Bytes` for `type`."""

    cell: str
    type: str = "string"


class RowColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The column that holds the row key."""

    name: str = "row_key"
    type: str = "string"


class SubscriptionPoison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The policy for an event that the listener does not take.

    `retry`: after `apart_after_s` its row is set apart: the event and later ones of the row wait among the
    dead letters, and are tried again from there; 0: never, the region server's queue waits instead. After
    `tries`, `skip` it and keep it as a dead letter, or `stop`.
    """

    policy: Literal["retry", "skip", "stop"] = "retry"
    tries: int = 10
    apart_after_s: int = 300


class SubscriptionListener(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`kafka`: a `topic`; `stored_table`: `database` and `table`; `python`: an `entry_point` of the group
    `rtolap.sep.listeners`, called in `lanes` threads. `user` and `password_file` are those of loads, as of a
    loader's sink. `cluster`: the Kafka cluster of the topic and of the
    journal of what was delivered, as of a `Table`."""

    kind: ListenerKind
    topic: str | None = None
    database: str | None = None
    table: str | None = None
    entry_point: str | None = None
    lanes: int = 4
    user: str = "root"
    password_file: str | None = None
    cluster: str = DEFAULT_KAFKA_CLUSTER


class Subscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`tables` maps `table` or `namespace:table` to families, none for all of them; they and `namespaces`
    are what is followed. With an exclusion it is everything else instead.

    `start`: `now`, or an instant; edits that were written before are acknowledged and not delivered.
    `serial`: HBase keeps the order of a region's edits over its moves. `ratio`: the part of our ports that
    each region server ships to. `ports`: of one process, each takes one call of a region server at a time.

    `columns` of an event, by name. `deletes`: whether an event that only deletes is one. `meta_cells`: the
    same of HBase's own notes of bulk loads and the like. `filters` and `payload`: entry points of the groups
    `rtolap.sep.filters` and `rtolap.sep.payload_extractors`. `row_prefixes`: only rows that begin so.

    `allowed_addresses`: who may connect, addresses or networks; none: the region servers that live.
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

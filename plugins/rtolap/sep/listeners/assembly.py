"""A subscription's delivery is put together from its listener, its journal and its memory, as it declares
them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, NotFound, RtolapError
from rtolap.base.files import read_password
from rtolap.base.settings import Settings
from rtolap.kafka.clusters import KafkaCluster, KafkaClusters
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import TopicAdmin
from rtolap.kafka.producer import KafkaAdmin
from rtolap.kafka.transactions import KafkaTransactionalProducer
from rtolap.metadata.store import MetadataStore
from rtolap.model.subscription import Subscription, dead_letter_topic
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.journal import WHOLE, Journal, Share, ensure_partitions, ensure_topic, journal_name
from rtolap.sep.delivery.letters import TOPIC_CONFIG as LETTERS_CONFIG
from rtolap.sep.delivery.listener import Listener
from rtolap.sep.delivery.poison import PoisonPolicy
from rtolap.sep.events.entry_points import load_payload_extractor
from rtolap.sep.hbase.master import MasterClient
from rtolap.sep.hbase.peers import DEFAULT_NAMESPACE
from rtolap.sep.hbase.regions import RegionClient
from rtolap.sep.hbase.znodes import HBaseZnodes
from rtolap.sep.listeners.callable import CallableListener
from rtolap.sep.listeners.event_columns import ColumnSource, EventColumns
from rtolap.sep.listeners.kafka_topic import JsonEvents, KafkaTopicListener
from rtolap.sep.listeners.stored_table import StoredTableListener
from rtolap.sep.listeners.table_rows import TableRows
from rtolap.sep.rows.reader import TRIES, HBaseRowReader
from rtolap.sep.subscriptions.source import DeleteJournal

PARTITIONS = 4  # of a listener's topic that is not there yet
TOPIC_CONFIG = {"max.message.bytes": str(16 << 20)}  # a cell of HBase may have 10 MB


def event_columns(subscription: Subscription) -> EventColumns:
    """Return the columns of events. Raises NotFound where no installed distribution declares the payload
    extractor."""
    columns = {
        name: ColumnSource(family.encode(), qualifier.encode(), column.type)
        for name, column in subscription.columns.items()
        for family, _, qualifier in [column.cell.partition(":")]
    }
    payload = None if subscription.payload is None else load_payload_extractor(subscription.payload)
    return EventColumns(columns, (subscription.row.name, subscription.row.type), payload)


def open_delivery(
    subscription: Subscription,
    cluster_id: str,
    cluster: KafkaCluster,
    clock: Clock,
    settings: Settings,
    leads: Callable[[], bool],
    source: MetadataStore,
    share: Share = WHOLE,
) -> Delivery:
    """Open the delivery, and make the topics that are missing; `recover` is still to be called. `cluster` is
    the listener's; `cluster_id` is the subscription's, new with each creation; `source` is the ZooKeeper
    of HBase, with absolute paths; `share` is the part of the rows that is delivered.

    Unavailable, Forbidden: Kafka; NotFound, DefinitionError: the listener.
    """
    name = subscription.name
    client_id = f"rtolap-sep-{name}"
    admin = KafkaAdmin(cluster)
    letters = dead_letter_topic(name)
    policy = PoisonPolicy(*msgspec.structs.astuple(subscription.poison))
    if policy.policy != "stop":
        ensure_partitions(admin, letters, share.count, LETTERS_CONFIG)
    journal = Journal(
        journal_name(name, cluster_id),
        open_producer=lambda it: KafkaTransactionalProducer(cluster, it, client_id=client_id),
        open_consumer=lambda topic: KafkaConsumer(cluster, topic, client_id=client_id),
        admin=admin,
        share=share,
    )
    return Delivery(
        open_listener(subscription, cluster_id, admin, clock, settings, source, leads),
        journal,
        clock,
        policy=policy,
        dead_letter_topic=letters,
        leads=leads,
    )


def delete_journal(subscription: Subscription, cluster_id: str, cluster: KafkaCluster) -> None:
    """Delete the journal of a subscription that was dropped. Nothing is wrong where it is gone."""
    delete_topic(KafkaAdmin(cluster), journal_name(subscription.name, cluster_id))


def delete_topic(admin: TopicAdmin, topic: str) -> None:
    """Delete the topic, if it exists."""
    with contextlib.suppress(NotFound):
        admin.delete_topic(topic)


def journal_deleter(
    settings: Settings,
    tell: Callable[[str], None],
    open_admin: Callable[[KafkaCluster], TopicAdmin] = KafkaAdmin,
) -> DeleteJournal:
    """Return a function that deletes journals, for a host with these settings.

    A journal that cannot be deleted stays; `tell` gets the command that deletes it.
    """

    def delete(subscription: Subscription, cluster_id: str) -> None:
        topic, name = journal_name(subscription.name, cluster_id), subscription.listener.cluster
        servers = f"SERVERS-OF-{name}"
        try:
            cluster = KafkaClusters.of_host(settings).get(name)
            servers = cluster.servers
            delete_topic(open_admin(cluster), topic)
        except RtolapError as error:
            tell(
                f"the journal of subscription {subscription.name} stays in Kafka: {error}; delete it by: "
                f"kafka-topics.sh --bootstrap-server {servers} --delete --topic {topic}"
            )

    return delete


def open_row_reader(
    subscription: Subscription, source: MetadataStore, *, tries: int = TRIES
) -> HBaseRowReader:
    """Return a reader of the subscription's rows. It connects when it first reads."""
    znodes = HBaseZnodes(source, subscription.source.parent)

    def families_of(table: str) -> frozenset[bytes] | None:
        with MasterClient(znodes) as master:
            families = master.replicated_families(table.rpartition(":")[0] or DEFAULT_NAMESPACE).get(table)
        return None if families is None else frozenset(name.encode() for name in families)

    return HBaseRowReader(
        RegionClient(znodes),
        families_of,
        [(each.family, each.qualifier) for each in event_columns(subscription).sources.values()],
        lambda table: [family.encode() for family in followed_families(subscription, table)],
        tries=tries,
    )


def followed_families(subscription: Subscription, table: str) -> tuple[str, ...]:
    """Return the families of the table whose edits come, none for all."""
    return () if subscription.namespaces else subscription.tables.get(table, ())


def open_listener(
    subscription: Subscription,
    cluster_id: str,
    admin: TopicAdmin,
    clock: Clock,
    settings: Settings,
    source: MetadataStore,
    leads: Callable[[], bool] = lambda: True,
) -> Listener:
    """Open a listener. Raises what its target raises: see `open_delivery`."""
    declared = subscription.listener
    match declared.kind:
        case "kafka" if declared.topic is not None:
            ensure_topic(admin, declared.topic, PARTITIONS, TOPIC_CONFIG)
            return KafkaTopicListener(declared.topic, JsonEvents(event_columns(subscription)))
        case "python" if declared.entry_point is not None:
            return CallableListener.load(declared.entry_point, declared.lanes, may_begin=leads)
        case "stored_table" if declared.database is not None and declared.table is not None:
            file = declared.password_file
            password = "" if file is None else read_password(Path(file), f"subscription {subscription.name}")
            endpoint = StreamLoadClient(
                settings.stream_load_urls(), declared.user, password, ca_file=settings.stream_load_ca
            )
            if not endpoint.keeps_labels():
                raise DefinitionError(
                    f"subscription {subscription.name} cannot load each edit once",
                    expected="front ends that keep labels until they are acknowledged",
                    found=", ".join(endpoint.urls),
                    action="name front ends of stored tables in RTOLAP_STREAM_LOAD_ENDPOINTS",
                )
            rows = TableRows(
                event_columns(subscription),
                endpoint.schema(declared.database, declared.table),
                open_row_reader(subscription, source),
                deletes=subscription.deletes == "event",
            )
            prefix = f"sep_{subscription.name}_{cluster_id[:8]}"
            return StoredTableListener(endpoint, declared.database, declared.table, rows, clock, prefix)
        case _:
            raise DefinitionError(
                f"subscription {subscription.name} has no listener that can be served",
                expected="kafka with topic, stored_table with database and table, python with entry_point",
                found=declared.kind,
            )

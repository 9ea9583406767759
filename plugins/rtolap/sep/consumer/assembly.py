"""The process of one subscription, put together from what was created: decoder, ports, delivery."""

from __future__ import annotations

import math
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from rtolap.base.clock import Clock
from rtolap.base.errors import NotYet
from rtolap.base.settings import Settings
from rtolap.kafka.clusters import KafkaClusters
from rtolap.metadata.store import MetadataStore
from rtolap.model.subscription import Subscription
from rtolap.sep.consumer.allowed_addresses import AllowedAddresses
from rtolap.sep.consumer.calls import Answer, Deliver, SetApart
from rtolap.sep.consumer.limits import ConsumerSettings
from rtolap.sep.consumer.log_bounds import DOUBT_S, LogBounds
from rtolap.sep.consumer.metrics import ConsumerMetrics
from rtolap.sep.consumer.process import SubscriptionProcess
from rtolap.sep.consumer.server import ConsumerServer
from rtolap.sep.consumer.sharing import Reached, SharedProcess
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.journal import WHOLE, Share
from rtolap.sep.events.columns import only_deletes
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.events.entry_points import load_filter
from rtolap.sep.events.filters import EditFilter, FollowedTables, RowPrefixFilter, TableFilter
from rtolap.sep.hbase.regions import RegionClient
from rtolap.sep.hbase.znodes import HBaseZnodes
from rtolap.sep.listeners.assembly import delete_journal, open_delivery
from rtolap.sep.shares.endpoint import PartsEndpoint
from rtolap.sep.subscriptions.records import SubscriptionRecord, find, load
from rtolap.servers.limits import FlightLimits

_HBASE_TIMEOUT_S: Final = 5.0


def open_process(
    name: str,
    store: MetadataStore,
    settings: Settings,
    clock: Clock,
    *,
    host: str,
    bind: str,
    ports: Sequence[int] = (),
    metrics: ConsumerMetrics | None = None,
) -> SubscriptionProcess | SharedProcess:
    """Open the process of a subscription. `store` is the source's ZooKeeper, with absolute paths. No `ports`
    take free ones, as many as declared.

    A subscription with one consumer gets a process that stands for election, one with several a process
    that holds shares.

    NotFound: no such subscription; NotYet: it is being created or dropped.
    """
    record = load(store, name)
    if record.phase != "created":
        raise NotYet(
            f"subscription {name} is not there to be served",
            expected="created",
            found=record.phase,
            action="finish what was begun: create or drop it again",
        )
    subscription = record.subscription
    cluster = KafkaClusters.of_host(settings).get(subscription.listener.cluster)
    limits = ConsumerSettings.of(settings)
    decoder = EditDecoder(
        start_ms=record.start_ms,
        meta_cells=subscription.meta_cells,
        filters=filters_of(subscription),
        entries_max=limits.entries_max,
        cells_max=limits.cells_max,
    )
    metrics = metrics or ConsumerMetrics()

    def make_server(deliver: Deliver, set_apart: SetApart, answers: Mapping[str, Answer]) -> ConsumerServer:
        return ConsumerServer(
            decoder,
            deliver,
            settings=limits,
            bounds=log_bounds(subscription, store, clock, settings),
            set_apart=set_apart,
            allowed=AllowedAddresses(allowed_addresses(subscription, store)),
            answers=answers,
            metrics=metrics,
        )

    def open_share(share: Share, leads: Callable[[], bool]) -> Delivery:
        return open_delivery(subscription, record.cluster_id, cluster, clock, settings, leads, store, share)

    count, listened = subscription.consumers, ports or [0] * subscription.ports
    if count == 1:
        return SubscriptionProcess(
            name,
            store,
            clock,
            open_delivery=lambda leads: open_share(WHOLE, leads),
            make_server=make_server,
            cluster_id=record.cluster_id,
            host=host,
            bind=bind,
            ports=listened,
            is_wanted=lambda: _is_created(store, record),
            forget=lambda: delete_journal(subscription, record.cluster_id, cluster),
        )
    token = settings.token()
    return SharedProcess(
        name,
        count,
        store,
        clock,
        open_delivery=lambda number, leads: open_share(Share(number, count), leads),
        make_server=make_server,
        open_endpoint=lambda loop, share: PartsEndpoint(
            loop,
            record.cluster_id,
            share,
            limits.frame_bytes_max,
            host=settings.host,
            announced_host=settings.reached_at(),
            port=0,
            token=token,
            metrics=metrics.registry,
            limits=FlightLimits.from_settings(settings),
        ),
        token=token,
        cluster_id=record.cluster_id,
        reached=Reached(host, bind, listened),
        session_timeout_s=settings.session_timeout_s,
        member_id=f"{host}-{os.getpid()}-{uuid.uuid4().hex[:12]}",
        is_wanted=lambda: _is_created(store, record),
        forget=lambda: delete_journal(subscription, record.cluster_id, cluster),
    )


def filters_of(subscription: Subscription) -> list[EditFilter]:
    """Return the filters of a subscription. Raises NotFound for a filter that no installed distribution
    declares."""
    filters: list[EditFilter] = []
    if subscription.namespaces or not subscription.tables:
        filters.append(FollowedTables(subscription))
    if subscription.tables and not subscription.namespaces:
        filters.append(
            TableFilter(
                {
                    table: [family.encode() for family in families]
                    for table, families in subscription.tables.items()
                }
            )
        )
    if subscription.row_prefixes:
        filters.append(RowPrefixFilter([prefix.encode() for prefix in subscription.row_prefixes]))
    if subscription.deletes == "ignore":
        filters.append(_without_deletes)
    filters += [load_filter(name) for name in subscription.filters]
    return filters


def allowed_addresses(subscription: Subscription, store: MetadataStore) -> Callable[[], Iterable[str]]:
    if subscription.allowed_addresses:
        return lambda: subscription.allowed_addresses
    znodes = HBaseZnodes(store, subscription.source.parent)
    return lambda: {server.host for server in znodes.region_servers()}


def log_bounds(
    subscription: Subscription, store: MetadataStore, clock: Clock, settings: Settings
) -> LogBounds | None:
    """Return what edits are held against; None where the host has switched that off.

    A subscription that stops at an event that it cannot deliver sets none apart.
    """
    if not settings.sep_log_bounds:
        return None
    return LogBounds(
        RegionClient(HBaseZnodes(store, subscription.source.parent), timeout_s=_HBASE_TIMEOUT_S),
        clock,
        clock_ahead_max_s=settings.sep_clock_ahead_max_s,
        doubt_s=math.inf if subscription.poison.policy == "stop" else DOUBT_S,
    )


def host_name() -> str:
    """Return this host's name as region servers resolve it."""
    return socket.getfqdn()


def _without_deletes(batch: EditBatch) -> EditBatch:
    return batch.filter(~only_deletes(batch))


def _is_created(store: MetadataStore, record: SubscriptionRecord) -> bool:
    read = find(store, record.name)
    return read is not None and read.record.phase == "created" and read.record.cluster_id == record.cluster_id

"""The state of subscriptions: by their phase, HBase's peer and the ports that are registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from rtolap.base.errors import Corrupted, Refused
from rtolap.metadata.store import MetadataStore
from rtolap.sep.delivery.state import DeliveryState, read_state
from rtolap.sep.hbase.peers import Peer
from rtolap.sep.subscriptions import records
from rtolap.sep.subscriptions.records import SubscriptionRecord
from rtolap.sep.subscriptions.source import SourceCluster
from rtolap.sep.subscriptions.steps import check_cluster_id, is_as_wanted, wanted_peer

State = Literal["running", "waiting", "stopped", "paused", "creating", "dropping", "broken"]


class ShareState(msgspec.Struct, frozen=True):
    """The state of a share of a subscription with several consumers.

    Attributes:
        consumer: the id of the consumer that holds the share; empty while none does.
        delivery: the state that it has published last; None where there is none yet.
    """

    share: int
    consumer: str = ""
    delivery: DeliveryState | None = None


class SubscriptionState(msgspec.Struct, frozen=True):
    """The state of a subscription.

    Attributes:
        state: `waiting` where no consumer has a port, `stopped` at an event that fails.
        ports: the registered ports, as host:port.
        problem: why the subscription is stopped, half made, half removed or broken; empty otherwise.
        delivery: the state that the leading process has published last; None where there is none, and where
            there are several consumers.
        shares: the shares of a subscription with several consumers; empty where there is one.
        consumers: the ids of the consumers that live, standing by or not; empty where there is one.
    """

    name: str
    state: State
    ports: tuple[str, ...]
    problem: str = ""
    record: SubscriptionRecord | None = None
    delivery: DeliveryState | None = None
    shares: tuple[ShareState, ...] = ()
    consumers: tuple[str, ...] = ()


def all_states(source: SourceCluster) -> tuple[SubscriptionState, ...]:
    peers = source.master.peers()
    return tuple(_state(source, name, peers) for name in records.names(source.store))


def state(source: SourceCluster, name: str) -> SubscriptionState:
    """Return the state of a subscription. Raises NotFound."""
    if name not in records.names(source.store):
        records.load(source.store, name)
    return _state(source, name, source.master.peers())


def _state(source: SourceCluster, name: str, peers: Mapping[str, Peer]) -> SubscriptionState:
    try:
        read = records.find(source.store, name)
    except Corrupted as error:
        return SubscriptionState(name, "broken", (), str(error))
    if read is None:
        return SubscriptionState(name, "dropping", (), "it was dropped just now")
    record = read.record
    servers = source.store.children(record.paths.rs)
    ports = tuple(":".join(server.split(",")[:2]) for server in servers)
    if record.phase == "creating":
        return SubscriptionState(
            name, "creating", ports, "half made: create or resume it, or drop it", record
        )
    if record.phase == "dropping":
        return SubscriptionState(name, "dropping", ports, "half removed: drop it again", record)
    problem = _problem(source, record, peers.get(name))
    if problem:
        return SubscriptionState(name, "broken", ports, problem, record)
    if not peers[name].enabled:
        return SubscriptionState(name, "paused", ports, "", record)
    if record.subscription.consumers > 1:
        return _shared_state(source.store, record, ports)
    delivery = read_state(source.store, record.paths.delivery)
    if delivery is not None and delivery.stopped:
        return SubscriptionState(name, "stopped", ports, delivery.stopped, record, delivery)
    return SubscriptionState(name, "running" if ports else "waiting", ports, "", record, delivery)


def _shared_state(
    store: MetadataStore, record: SubscriptionRecord, ports: tuple[str, ...]
) -> SubscriptionState:
    """Return the state of a subscription with several consumers: stopped where a share is stopped, waiting
    while no share is held."""
    paths, count = record.paths, record.subscription.consumers
    shares = []
    for number in range(count):
        holder = store.get(paths.holder(number))
        shares.append(
            ShareState(
                number,
                "" if holder is None else holder.data.decode("utf-8", "replace"),
                read_state(store, paths.delivery_of(number, count)),
            )
        )
    problem = next(
        (
            f"share {share.share}: {share.delivery.stopped}"
            for share in shares
            if share.delivery is not None and share.delivery.stopped
        ),
        "",
    )
    is_held = any(share.consumer for share in shares)
    return SubscriptionState(
        record.name,
        "stopped" if problem else "running" if ports and is_held else "waiting",
        ports,
        problem,
        record,
        shares=tuple(shares),
        consumers=store.children(paths.consumers),
    )


def _problem(source: SourceCluster, record: SubscriptionRecord, peer: Peer | None) -> str:
    wanted = wanted_peer(record.subscription)
    if peer is None:
        return "HBase has no such peer: drop the subscription and create it again"
    if peer.cluster_key != wanted.cluster_key:
        return f"HBase's peer of this name is another's: {peer.cluster_key}"
    try:
        check_cluster_id(source, record)
    except Refused as error:
        return str(error)
    if not is_as_wanted(peer, wanted):
        return "somebody has changed HBase's peer: drop the subscription and create it again"
    return ""

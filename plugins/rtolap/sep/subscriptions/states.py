"""The state of subscriptions: by their phase, HBase's peer and the ports that are registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from rtolap.base.errors import Corrupted, Refused
from rtolap.sep.delivery.state import DeliveryState, read_state
from rtolap.sep.hbase.peers import Peer
from rtolap.sep.subscriptions import kept as kept_subscriptions
from rtolap.sep.subscriptions.kept import KeptSubscription
from rtolap.sep.subscriptions.source import SourceCluster
from rtolap.sep.subscriptions.steps import check_cluster_id, is_as_wanted, wanted_peer

State = Literal["running", "waiting", "stopped", "paused", "creating", "dropping", "broken"]


class SubscriptionState(msgspec.Struct, frozen=True):
    """`state`: `waiting` where no consumer has a port, `stopped` at an event that fails; of one that is
    stopped, half made, half removed or broken the `problem` says why. `ports`: registered ones, host:port.
    `delivery`: as the process that leads has written it last."""

    name: str
    state: State
    ports: tuple[str, ...]
    problem: str = ""
    kept: KeptSubscription | None = None
    delivery: DeliveryState | None = None


def all_states(source: SourceCluster) -> tuple[SubscriptionState, ...]:
    peers = source.master.peers()
    return tuple(_state(source, name, peers) for name in kept_subscriptions.names(source.store))


def state(source: SourceCluster, name: str) -> SubscriptionState:
    """Raises NotFound."""
    if name not in kept_subscriptions.names(source.store):
        kept_subscriptions.load(source.store, name)
    return _state(source, name, source.master.peers())


def _state(source: SourceCluster, name: str, peers: Mapping[str, Peer]) -> SubscriptionState:
    try:
        read = kept_subscriptions.find(source.store, name)
    except Corrupted as error:
        return SubscriptionState(name, "broken", (), str(error))
    if read is None:
        return SubscriptionState(name, "dropping", (), "it was dropped just now")
    kept = read.kept
    servers = source.store.children(kept.paths.rs)
    ports = tuple(":".join(server.split(",")[:2]) for server in servers)
    if kept.phase == "creating":
        return SubscriptionState(name, "creating", ports, "half made: create or resume it, or drop it", kept)
    if kept.phase == "dropping":
        return SubscriptionState(name, "dropping", ports, "half removed: drop it again", kept)
    problem = _problem(source, kept, peers.get(name))
    if problem:
        return SubscriptionState(name, "broken", ports, problem, kept)
    if not peers[name].enabled:
        return SubscriptionState(name, "paused", ports, "", kept)
    delivery = read_state(source.store, kept.paths.delivery)
    if delivery is not None and delivery.stopped:
        return SubscriptionState(name, "stopped", ports, delivery.stopped, kept, delivery)
    return SubscriptionState(name, "running" if ports else "waiting", ports, "", kept, delivery)


def _problem(source: SourceCluster, kept: KeptSubscription, peer: Peer | None) -> str:
    wanted = wanted_peer(kept.subscription)
    if peer is None:
        return "HBase has no such peer: drop the subscription and create it again"
    if peer.cluster_key != wanted.cluster_key:
        return f"HBase's peer of this name is another's: {peer.cluster_key}"
    try:
        check_cluster_id(source, kept)
    except Refused as error:
        return str(error)
    if not is_as_wanted(peer, wanted):
        return "somebody has changed HBase's peer: drop the subscription and create it again"
    return ""

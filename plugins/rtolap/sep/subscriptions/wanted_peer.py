"""The peer that HBase has to have for a subscription."""

from __future__ import annotations

import msgspec

from rtolap.model.subscription import Subscription
from rtolap.sep.hbase.cluster_keys import cluster_key
from rtolap.sep.hbase.peers import Peer, TableFamilies, table_name, table_text
from rtolap.sep.subscriptions.paths import SubscriptionPaths

_RATIO = "replication.source.ratio"


def is_peer_of(peer: Peer, name: str) -> bool:
    """Return True if it ships to the subscription's node, whatever the servers of ZooKeeper are called."""
    return peer.cluster_key.endswith(f":{SubscriptionPaths(name).root}")


def wanted_peer(subscription: Subscription) -> Peer:
    """Disabled: it is enabled once it is known to be right."""
    return Peer(
        id=subscription.name,
        cluster_key=cluster_key(subscription.source.zookeeper, SubscriptionPaths(subscription.name).root),
        enabled=False,
        replicate_all=subscription.follows_everything,
        tables=_normal(subscription.tables),
        namespaces=tuple(sorted(subscription.namespaces)),
        exclude_tables=_normal(subscription.exclude_tables),
        exclude_namespaces=tuple(sorted(subscription.exclude_namespaces)),
        serial=subscription.serial,
        configuration={_RATIO: str(subscription.ratio)},
    )


def is_as_wanted(peer: Peer, wanted: Peer) -> bool:
    """Compare two peers. The enabled flag does not count, nor do settings that HBase gives to every peer."""
    return wanted.configuration.items() <= peer.configuration.items() and (
        msgspec.structs.replace(peer, enabled=False, configuration={})
        == msgspec.structs.replace(wanted, enabled=False, configuration={})
    )


def _normal(tables: TableFamilies) -> TableFamilies:
    """As HBase gives them back: sorted, and without the name of the default namespace."""
    return {
        table_text(table_name(table)): tuple(sorted(families)) for table, families in sorted(tables.items())
    }

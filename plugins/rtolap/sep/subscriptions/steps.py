"""The steps by which a subscription is made and removed. Every step may be repeated.

    creating                          a crash after it leaves
    1. the definition, `creating`     a name that is taken; nothing in HBase
    2. hbaseid, whole and read back   the same, and a node that nobody reads
    3. rs                             the same
    4. the peer, disabled             logs that are kept for it; nothing is shipped
    5. the peer, enabled              edits that wait for a consumer
    6. the definition, `created`

    removing
    1. the definition, `dropping`     consumers see it and leave
    2. the peer is gone               nothing reads the nodes any more
    3. consumers have left            else they would stand for election below a node that is gone
    4. the journal in Kafka           the definition names it, so that the next command deletes it too
    5. all nodes but the definition
    6. the definition

A region server that reads an hbaseid which is no UUID aborts, and so do all others. So the node is never
without its contents: it is created whole, and checked again right before the peer is added.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from rtolap.base.errors import AlreadyExists, Corrupted, NotFound, Refused
from rtolap.metadata.requests import remove_all
from rtolap.metadata.store import Create, MetadataStore, Put
from rtolap.metadata.updates import create_missing, retried
from rtolap.model.subscription import Subscription
from rtolap.sep.hbase.peers import Peer, TableFamilies, cluster_key, table_name, table_text
from rtolap.sep.hbase.znodes import parse_cluster_id
from rtolap.sep.subscriptions import records
from rtolap.sep.subscriptions.records import Phase, SubscriptionPaths, SubscriptionRecord
from rtolap.sep.subscriptions.source import SourceCluster

_POLL_S = 0.05
_RATIO = "replication.source.ratio"


@retried
def put_definition(source: SourceCluster, record: SubscriptionRecord) -> None:
    """Write the definition. Raises AlreadyExists where another subscription has the name."""
    read = records.find(source.store, record.name)
    if read is None:
        source.store.commit([Create(record.paths.definition, record.encode())])
    elif read.record != record:
        raise AlreadyExists(
            f"another subscription {record.name} was created at the same time",
            action="give this one another name",
        )


def put_cluster_id(source: SourceCluster, record: SubscriptionRecord) -> None:
    create_missing(source.store, record.paths.hbaseid, record.cluster_id.encode())
    check_cluster_id(source, record)


def put_servers_node(source: SourceCluster, record: SubscriptionRecord) -> None:
    create_missing(source.store, record.paths.rs, b"")


def put_peer(source: SourceCluster, record: SubscriptionRecord) -> None:
    """Add the peer. Raises AlreadyExists where HBase has a peer of that name which is not ours."""
    wanted = wanted_peer(record.subscription)
    check_cluster_id(source, record)
    peer = source.master.peers().get(record.name)
    if peer is None:
        source.master.add_peer(wanted)
    elif not is_peer_of(peer, record.name):
        raise AlreadyExists(
            f"HBase has another peer {record.name}",
            expected=f"none, or one of {wanted.cluster_key}",
            found=peer.cluster_key,
            action="give the subscription another name",
        )
    elif peer.cluster_key != wanted.cluster_key:  # of an earlier one; HBase changes it for no peer
        source.master.remove_peer(record.name)
        source.master.add_peer(wanted)
    elif not is_as_wanted(peer, wanted):
        source.master.update_peer(wanted)


def enable_peer(source: SourceCluster, record: SubscriptionRecord) -> None:
    source.master.enable_peer(record.name)


def mark_created(source: SourceCluster, record: SubscriptionRecord) -> None:
    """Mark the subscription as created. Raises Refused where it was dropped meanwhile; then nothing of it is
    left."""
    if not set_phase(source.store, record.name, "created", expected=("creating", "created")):
        remove(source, record.name)
        raise Refused(f"the subscription {record.name} was dropped while it was created")


CREATION: tuple[Callable[[SourceCluster, SubscriptionRecord], None], ...] = (
    put_definition,
    put_cluster_id,
    put_servers_node,
    put_peer,
    enable_peer,
    mark_created,
)


def mark_dropping(source: SourceCluster, name: str) -> None:
    set_phase(source.store, name, "dropping", expected=("creating", "created", "dropping"))


def remove_peer(source: SourceCluster, name: str) -> None:
    """Remove the subscription's peer. A peer of the same name that ships elsewhere stays."""
    peer = source.master.peers().get(name)
    if peer is None or not is_peer_of(peer, name):
        return
    try:
        source.master.remove_peer(name)
    except NotFound:
        return  # by another command, at the same time


def wait_for_consumers(source: SourceCluster, name: str) -> None:
    """Wait until the consumers have left, up to `consumers_leave_s`. Later ones lose their nodes."""
    paths = SubscriptionPaths(name)
    deadline_s = time.monotonic() + source.consumers_leave_s
    while time.monotonic() < deadline_s:
        if not any(source.store.children(path) for path in (paths.leader, paths.consumers, paths.rs)):
            return
        time.sleep(_POLL_S)


def delete_journal(source: SourceCluster, name: str) -> None:
    """Delete the journal. A consumer that ends deletes it itself; a killed one leaves it behind."""
    read = records.find(source.store, name)
    if read is not None:
        source.delete_journal(read.record.subscription, read.record.cluster_id)


def remove_nodes(source: SourceCluster, name: str) -> None:
    """Remove all nodes but the definition."""
    store, paths = source.store, SubscriptionPaths(name)
    kept = (paths.root, paths.definition)
    remove_all(store, lambda: [path for path in _tree(store, paths.root) if path not in kept])


def remove_definition(source: SourceCluster, name: str) -> None:
    remove_all(source.store, lambda: _tree(source.store, SubscriptionPaths(name).root))


REMOVAL: tuple[Callable[[SourceCluster, str], None], ...] = (
    mark_dropping,
    remove_peer,
    wait_for_consumers,
    delete_journal,
    remove_nodes,
    remove_definition,
)


def create(source: SourceCluster, record: SubscriptionRecord) -> None:
    for step in CREATION:
        step(source, record)


def remove(source: SourceCluster, name: str) -> None:
    """Remove a subscription, and the remains of one whose definition was not made or is gone."""
    for step in REMOVAL:
        step(source, name)


@retried
def set_phase(store: MetadataStore, name: str, phase: Phase, *, expected: tuple[Phase, ...]) -> bool:
    """Set the phase. Return False if the subscription is gone, or in an unexpected phase."""
    read = records.find(store, name)
    if read is None or read.record.phase not in expected:
        return False
    if read.record.phase != phase:
        changed = msgspec.structs.replace(read.record, phase=phase)
        store.commit([Put(SubscriptionPaths(name).definition, changed.encode(), read.version)])
    return True


def check_cluster_id(source: SourceCluster, record: SubscriptionRecord) -> None:
    """Raise Refused unless the node holds the subscription's own UUID, as a region server reads it."""
    path = record.paths.hbaseid
    node = source.store.get(path)
    try:
        found = None if node is None else str(parse_cluster_id(node.data))
    except Corrupted as error:
        found = str(error.found)
    own = str(source.cluster_id())
    if found != record.cluster_id or found == own:
        raise Refused(
            f"{path} is not the subscription's: region servers that read it may abort",
            expected=f"{record.cluster_id}, and not the cluster's own {own}",
            found=found or "no node",
            action=f"drop it: rtolap sep drop {record.name}",
        )


def _tree(store: MetadataStore, path: str) -> list[str]:
    """Return the node and all below it, children before their parents; empty where it is not there."""
    below = [descendant for name in store.children(path) for descendant in _tree(store, f"{path}/{name}")]
    return [*below, path] if below or store.get(path) is not None else []


def is_peer_of(peer: Peer, name: str) -> bool:
    """Return True if the peer ships to the subscription's node, by whatever names of ZooKeeper's servers."""
    return peer.cluster_key.endswith(f":{SubscriptionPaths(name).root}")


def wanted_peer(subscription: Subscription) -> Peer:
    """Return the peer that the subscription needs, disabled. It is enabled once it is known to be right."""
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
    """Return the tables as HBase returns them: sorted, and without the name of the default namespace."""
    return {
        table_text(table_name(table)): tuple(sorted(families)) for table, families in sorted(tables.items())
    }

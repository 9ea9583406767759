"""Commands of users: create, pause, resume, drop.

Each command first finishes a subscription that is half made or half removed; `drop` undoes a half made one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import msgspec

from rtolap.base.errors import AlreadyExists, NotFound
from rtolap.model.instants import instant_ms
from rtolap.model.subscription import START_NOW, Subscription
from rtolap.model.validation.subscription import validate_subscription
from rtolap.sep.hbase.master import scope_statement, unreplicated
from rtolap.sep.hbase.peers import DEFAULT_NAMESPACE
from rtolap.sep.subscriptions import records, steps
from rtolap.sep.subscriptions.records import ROOT, SubscriptionRecord
from rtolap.sep.subscriptions.source import SourceCluster
from rtolap.sep.subscriptions.steps import is_peer_of, wanted_peer


def create(source: SourceCluster, subscription: Subscription, now_ms: int) -> SubscriptionRecord:
    """Create a subscription and return its record. A subscription of the same definition stays as it is.

    Raises DefinitionError; AlreadyExists where the name belongs to another subscription or peer.
    """
    validate_subscription(subscription)
    read = records.find(source.store, subscription.name)
    if read is not None and read.record.phase == "dropping":
        steps.remove(source, subscription.name)
        read = None
    if read is None:
        _check_peer(source, subscription)
        start_ms = now_ms if subscription.start == START_NOW else instant_ms(subscription.start)
        record = SubscriptionRecord(
            subscription=subscription, cluster_id=str(uuid.uuid4()), start_ms=start_ms, phase="creating"
        )
    else:
        record = read.record
        if record.subscription != subscription:
            raise AlreadyExists(
                f"there is another subscription {subscription.name}",
                expected="the same definition",
                found=_difference(record.subscription, subscription),
                action=f"name it otherwise, or drop the other first: rtolap sep drop {subscription.name}",
            )
    if record.phase == "creating":
        steps.create(source, record)
    return records.load(source.store, subscription.name)


def pause(source: SourceCluster, name: str) -> None:
    """Pause a subscription. HBase retains new edits, and ships them after `resume`. Raises NotFound."""
    _settled(source, name)
    source.master.disable_peer(name)


def resume(source: SourceCluster, name: str) -> None:
    """Let HBase ship again. Raises NotFound."""
    _settled(source, name)
    source.master.enable_peer(name)


def drop(source: SourceCluster, name: str) -> None:
    """Remove the peer and then the nodes. Edits that are not delivered yet are lost. Raises NotFound."""
    if name not in source.store.children(ROOT):  # what is left of one, too
        records.load(source.store, name)
    steps.remove(source, name)


def scope_warnings(source: SourceCluster, subscription: Subscription) -> list[str]:
    """Return the followed tables that are not there, and the followed families that HBase does not ship."""
    families = source.master.replicated_families()
    wanted = wanted_peer(subscription)
    warnings = [
        f"HBase has no table {table}: its edits are followed once it is created with REPLICATION_SCOPE => 1"
        for table in wanted.tables
        if table not in families
    ]
    tables = dict(wanted.tables)
    for table in families:
        namespace = _namespace(table)
        if wanted.replicate_all or namespace in wanted.namespaces:
            excluded = table in wanted.exclude_tables or namespace in wanted.exclude_namespaces
            tables |= {} if excluded else {table: ()}
    for table, names in tables.items():
        unknown = [name for name in names if table in families and name not in families[table]]
        warnings += [f"the table {table} has no family {name}" for name in unknown]
    return warnings + [
        f"edits of {table} are not shipped, its REPLICATION_SCOPE is 0 for {', '.join(silent)}; "
        f"in HBase's shell: {scope_statement(table, silent)}"
        for table, silent in unreplicated(families, tables).items()
    ]


def followed_tables(subscription: Subscription, known: Iterable[str]) -> list[str]:
    """Return the tables of HBase that the subscription follows, those that it names first."""
    if not subscription.follows_everything:
        namespaces = set(subscription.namespaces)
        others = [table for table in known if _namespace(table) in namespaces]
        return list(dict.fromkeys([*subscription.tables, *sorted(others)]))
    return sorted(
        table
        for table in known
        if _namespace(table) not in subscription.exclude_namespaces
        and subscription.exclude_tables.get(table) != ()
    )


def _namespace(table: str) -> str:
    return table.rpartition(":")[0] or DEFAULT_NAMESPACE


def _settled(source: SourceCluster, name: str) -> SubscriptionRecord:
    """Return the subscription, finished if it was half made.

    Raises NotFound, also after a drop was finished.
    """
    record = records.load(source.store, name)
    if record.phase == "creating":
        steps.create(source, record)
    elif record.phase == "dropping":
        steps.remove(source, name)
        raise NotFound(f"the subscription {name} was half dropped; it is gone now")
    return record


def _check_peer(source: SourceCluster, subscription: Subscription) -> None:
    """Raise AlreadyExists if HBase has another peer of this name."""
    peer = source.master.peers().get(subscription.name)
    if peer is not None and not is_peer_of(peer, subscription.name):
        raise AlreadyExists(
            f"HBase has a peer {subscription.name} already",
            found=peer.cluster_key,
            action="give the subscription another name",
        )


def _difference(old: Subscription, new: Subscription) -> str:
    keys = [field for field in msgspec.structs.asdict(old) if getattr(old, field) != getattr(new, field)]
    return f"a difference in {', '.join(keys)}"

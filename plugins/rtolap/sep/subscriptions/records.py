"""The record of a subscription: nodes of the source's ZooKeeper, outside of HBase's own.

/rtolap/sep/<name>/                 the root node of the cluster that HBase takes us for
/rtolap/sep/<name>/definition       the subscription as it was created: a `SubscriptionRecord`
/rtolap/sep/<name>/hbaseid          the UUID of that cluster, as text
/rtolap/sep/<name>/rs/<server>      its region servers: our ports, ephemeral; nothing else may be in there
/rtolap/sep/<name>/delivery         how delivery stands, ephemeral, by the process that leads
/rtolap/sep/<name>/requests/<id>    what a command requests of the process that leads, until it is done
/rtolap/sep/<name>/leader/          candidates: the one process that has ports

Of a subscription with several consumers, in place of `delivery`, `requests` and `leader`:
/rtolap/sep/<name>/consumers/<id>           a consumer that lives, ephemeral
/rtolap/sep/<name>/shares/<k>/holder        the consumer that holds the share, ephemeral
/rtolap/sep/<name>/shares/<k>/delivery      how its delivery stands, ephemeral
/rtolap/sep/<name>/shares/<k>/requests/<id> what a command requests of its holder
"""

from __future__ import annotations

from typing import Literal

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted, NotFound
from rtolap.metadata.store import MetadataStore
from rtolap.model.subscription import Subscription

ROOT = "/rtolap/sep"

Phase = Literal["creating", "created", "dropping"]


class SubscriptionPaths:
    def __init__(self, name: str) -> None:
        self.name = name
        self.root = f"{ROOT}/{name}"
        self.definition = f"{self.root}/definition"
        self.hbaseid = f"{self.root}/hbaseid"
        self.rs = f"{self.root}/rs"
        self.delivery = f"{self.root}/delivery"
        self.requests = f"{self.root}/requests"
        self.leader = f"{self.root}/leader"
        self.consumers = f"{self.root}/consumers"

    def consumer(self, member: str) -> str:
        return f"{self.consumers}/{member}"

    def holder(self, share: int) -> str:
        return f"{self.root}/shares/{share}/holder"

    def delivery_of(self, share: int, count: int) -> str:
        """Return the node with the state of a share's delivery; a single share's is the subscription's."""
        return self.delivery if count == 1 else f"{self.root}/shares/{share}/delivery"

    def requests_of(self, share: int, count: int) -> str:
        """Return the folder of the requests to the process that delivers a share."""
        return self.requests if count == 1 else f"{self.root}/shares/{share}/requests"


class SubscriptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription as ZooKeeper stores it.

    Attributes:
        cluster_id: the UUID in the node `hbaseid`.
        start_ms: edits written before it are not delivered.
        phase: consumers serve a subscription that is `created`. The next command finishes or undoes one that
            is `creating` or `dropping`.
    """

    subscription: Subscription
    cluster_id: str
    start_ms: int
    phase: Phase

    @property
    def name(self) -> str:
        return self.subscription.name

    @property
    def paths(self) -> SubscriptionPaths:
        return SubscriptionPaths(self.name)

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class VersionedRecord(msgspec.Struct, frozen=True):
    """A subscription that was read.

    Attributes:
        version: the version of its node.
    """

    record: SubscriptionRecord
    version: int


def names(store: MetadataStore) -> tuple[str, ...]:
    """Return the names of all subscriptions. `store` has absolute paths."""
    return tuple(
        name for name in store.children(ROOT) if store.get(SubscriptionPaths(name).definition) is not None
    )


def find(store: MetadataStore, name: str) -> VersionedRecord | None:
    """Return the record; None where there is none. Raises Corrupted where another program or a later version
    wrote the node.
    """
    node = store.get(SubscriptionPaths(name).definition)
    if node is None:
        return None
    try:
        return VersionedRecord(decode_json(node.data, SubscriptionRecord), node.version)
    except msgspec.DecodeError as error:
        raise Corrupted(
            f"the subscription {name} cannot be read",
            found=error,
            action="read it with the version that made it",
        ) from error


def load(store: MetadataStore, name: str) -> SubscriptionRecord:
    """Return the record. Raises NotFound and Corrupted."""
    read = find(store, name)
    if read is None:
        known = ", ".join(names(store)) or "none"
        raise NotFound(
            f"there is no subscription {name}",
            expected=f"one of {known}",
            action="`rtolap sep create` makes one",
        )
    return read.record

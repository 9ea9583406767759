"""The seam towards the storage nodes: a transaction's requests to each of them.

A node is known by its name. Every call may be repeated, come late, or come twice; a node makes it idempotent:

    prepare    what it was sent for these tablets is on disk and survives the node
    publish    the prepared rows are the partition's version; strictly in order, a node that lacks the version
               before, or the rows, says so and changes nothing of that tablet
    catch_up   it has missed versions: take them from what it holds itself, or from another node
    versions   what it has
    abort      forget the transaction; whatever comes for it later is refused

All calls raise Unavailable when no answer came: the node may have done it all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from rtolap.stored.metastore.records import Partition, Tablet


class MissedVersion(msgspec.Struct, frozen=True, order=True):
    """`txn_id` is None where the transaction is forgotten already: only another node can give the version."""

    version: int
    txn_id: int | None


class Participants(Protocol):
    def prepare(self, node: str, txn_id: int, tablets: Collection[Tablet]) -> frozenset[Tablet]:
        """Return those of these tablets whose rows of the transaction the node holds, durably."""
        ...

    def publish(
        self, node: str, txn_id: int, versions: Mapping[Partition, int], tablets: Collection[Tablet]
    ) -> frozenset[Tablet]:
        """Return those of these tablets that now have the version of their partition, or a later one."""
        ...

    def catch_up(
        self, node: str, tablet: Tablet, missed: Collection[MissedVersion], sources: Collection[str]
    ) -> int:
        """The version up to which the node has the tablet now. `missed`: ascending, without a gap; where the
        node lacks others before them, those too come from a source. `sources`: other nodes that have them."""
        ...

    def versions(self, node: str) -> Mapping[Tablet, int]:
        """Up to which version the node has each tablet of the tables that there are. One that it cannot open
        is not among them."""
        ...

    def abort(self, node: str, txn_id: int) -> None: ...

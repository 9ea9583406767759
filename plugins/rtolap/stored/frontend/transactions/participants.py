"""The seam towards the storage nodes: requests to each of them, of a transaction and of a table's changes.

A node is known by its name. Every call may be repeated, come late, or come twice; a node makes it idempotent.
Of a transaction:

    prepare    what it was sent for these tablets is on disk and survives the node
    publish    the prepared rows are the partition's version; strictly in order, a node that lacks the version
               before, or the rows, says so and changes nothing of that tablet
    catch_up   it has missed versions: take them from what it holds itself, or from another node
    versions   what it has
    abort      forget the transaction; whatever comes for it later is refused

Table ids only grow, and so do the incarnations of a table's partitions: a node knows which of two tablets of
one name is the later. All calls raise Unavailable when no answer came: the node may have done it all the
same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeVar

import msgspec

from rtolap.base.errors import NotLeader, RtolapError, Unavailable
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.metastore.records import Partition, Tablet

log = logging.getLogger(__name__)

R = TypeVar("R")


class MissedVersion(msgspec.Struct, frozen=True, order=True):
    """A version that a replica has missed.

    Attributes:
        txn_id: None where the transaction is already forgotten; then only another node can give the version.
    """

    version: int
    txn_id: int | None


class Participants(Protocol):
    """The requests of a transaction."""

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
        """Return the version up to which the node has the tablet now.

        `missed`: ascending, without a gap; where the node lacks others before them, those too come from a
        source. `sources`: other nodes that have them.
        """
        ...

    def versions(self, node: str) -> Mapping[Tablet, int]:
        """Return the version up to which the node has each tablet of the existing tables.

        A tablet that the node cannot open is left out.
        """
        ...

    def abort(self, node: str, txn_id: int) -> None: ...


class TabletHosts(Protocol):
    """The requests of a table's creation, change and end."""

    def create(
        self, node: str, table_id: int, partition: Partition, buckets: Collection[int], schema: StoredSchema
    ) -> None:
        """Have a node keep these tablets, empty at version 0. A tablet of this incarnation stays; one of an
        earlier table or incarnation is dropped first; one of a later makes the call harmless."""
        ...

    def drop(self, node: str, table_id: int, partition: Partition, buckets: Collection[int]) -> None:
        """Have a node drop these tablets. Those of a later table or incarnation stay, and those that are gone
        stay so."""
        ...

    def change_schema(self, node: str, table_id: int, db: str, table: str, schema: StoredSchema) -> None:
        """Have all of a node's tablets of the table take this schema, unless they have a later one."""
        ...


class NodeCalls:
    """A round of calls to nodes, in which a failing node hinders no other.

    A majority or a later round decides.

    A node fails if it is away, refuses the token or has an error in its program. After a call without an
    answer, a node gets no more calls in the round, because each of them would wait for it.
    """

    def __init__(self) -> None:
        self._silent: set[str] = set()

    def is_silent(self, node: str) -> bool:
        return node in self._silent

    def ask(self, node: str, purpose: str, call: Callable[[], R]) -> R | None:
        """Return the result of the call; None if there is no answer.

        Raises NotLeader, and errors that do not belong to the error tree.
        """
        if node in self._silent:
            return None
        try:
            return call()
        except NotLeader:
            raise
        except Unavailable as error:
            self._silent.add(node)
            log.info("node %s does not answer (%s): %s", node, purpose, error)
        except RtolapError as error:
            log.warning("node %s fails (%s): %s", node, purpose, error)
        return None

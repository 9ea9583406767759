"""Tablets that a node has lost are copied from other replicas, without waiting for a load.

A tablet is lost where the node has less of it than the ledger says: it was set aside as damaged, or its files
are gone. The ledger goes on to say that the node has these versions: what it lacks it says itself, to readers
and to the next publication, and both do without it meanwhile.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Mapping

from rtolap.base.errors import NotLeader, RtolapError
from rtolap.stored.frontend.transactions.participants import MissedVersion, NodeCalls, Participants
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import Replica, Tablet

log = logging.getLogger(__name__)

_StoredVersions = Mapping[str, Mapping[Tablet, int]]  # node that answers -> what it has


class Rebuilding:
    """Replaces replicas that nodes have lost.

    It is harmless on a front end that is not master: a node that has a version already changes nothing.

    Args:
        names: returns the names of the living nodes, read with the given connection.
    """

    def __init__(
        self, ledger: Ledger, participants: Participants, names: Callable[[Connection], Collection[str]]
    ) -> None:
        self._ledger, self._participants, self._names = ledger, participants, names

    def run_once(self) -> int:
        """Copy every lost replica that can be copied, and return the number of tablets that are whole again.

        A tablet that no other node has stays as it is: its bytes may be the only ones left.
        """

        def work(connection: Connection) -> tuple[Replica, ...]:
            return partition_rows.on_nodes(connection, self._names(connection))

        # Before the nodes are asked: a version never falls, so who has less now has lost something.
        replicas = self._ledger.read("read what nodes are to have", work)
        stored = self._ask({replica.node for replica in replicas})
        lost = [
            replica
            for replica in replicas
            if replica.node in stored and stored[replica.node].get(replica.tablet, 0) < replica.version
        ]
        return sum(self._rebuild(replica, stored) for replica in lost)

    def _ask(self, nodes: Collection[str]) -> _StoredVersions:
        asking = NodeCalls()
        stored = {
            node: asking.ask(node, "what it has", functools.partial(self._participants.versions, node))
            for node in sorted(nodes)
        }
        return {node: versions for node, versions in stored.items() if versions is not None}

    def _rebuild(self, replica: Replica, stored: _StoredVersions) -> bool:
        node, tablet = replica.node, replica.tablet
        sources = [
            other
            for other, versions in stored.items()
            if other != node and versions.get(tablet, 0) >= replica.version
        ]
        if not sources:
            log.warning("node %s has lost %s, and no other node has it now", node, tablet)
            return False
        newest = MissedVersion(replica.version, None)
        try:
            reached = self._participants.catch_up(node, tablet, (newest,), sources)
        except NotLeader:
            raise
        except RtolapError as error:
            log.warning("node %s has lost %s, which cannot be copied yet: %s", node, tablet, error)
            return False
        return reached >= replica.version

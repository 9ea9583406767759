"""The versions of one statement, pinned on storage nodes before the first of them is read.

A statement of more scans than run at once reads its last tablet long after its first. Compaction would pass
the version meanwhile. What no node pins is read without a pin: compaction may have passed it already.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Executor

from rtolap.base.errors import RtolapError
from rtolap.protocols.storage.messages import Pin, ScanRequest, TabletId, Unpin
from rtolap.query.cancel import Cancellation
from rtolap.query.peers import Attempt, QueryPeer, QueryPeers
from rtolap.query.stored.source import StoredSource

log = logging.getLogger(__name__)

GRACE_S = 5.0  # the last scan may begin at the statement's deadline


class StatementPins:
    """The pins of one statement, for its own thread; `pin_of` for any.

    Args:
        pool: runs the calls of nodes.
    """

    def __init__(self, source: StoredSource, peers: QueryPeers, pool: Executor, ending: Cancellation) -> None:
        self._source, self._peers, self._pool, self._ending = source, peers, pool, ending
        self._pin_id = uuid.uuid4().hex
        self._pinned: dict[QueryPeer, frozenset[TabletId]] = {}

    def pin(self, scans: Sequence[tuple[ScanRequest, Sequence[QueryPeer]]]) -> None:
        """Pin each tablet on the first of its nodes that can. One call a node, and one more where some node
        cannot."""
        ordered = {nodes: self._peers.ordered(nodes) for nodes in {tuple(nodes) for _, nodes in scans}}
        left = {request.tablet: (request.version, [*ordered[tuple(nodes)]]) for request, nodes in scans}
        while left:
            wanted: dict[QueryPeer, list[tuple[TabletId, int]]] = defaultdict(list)
            for tablet, (version, nodes) in left.items():
                if nodes:
                    wanted[nodes.pop(0)].append((tablet, version))
            calls = {node: self._pool.submit(self._ask, node, versions) for node, versions in wanted.items()}
            for node, call in calls.items():
                pinned = call.result()
                if pinned:
                    self._pinned[node] = self._pinned.get(node, frozenset()) | pinned
                for tablet in pinned:
                    del left[tablet]
            left = {tablet: each for tablet, each in left.items() if each[1]}
        unpinned = len({request.tablet for request, _ in scans}) - sum(map(len, self._pinned.values()))
        if unpinned:
            log.info("%d tablets of a statement are read without a pin", unpinned)

    def pin_of(self, node: QueryPeer, tablet: TabletId) -> str:
        """Return the pin of a tablet on a node; empty where it has none there."""
        return self._pin_id if tablet in self._pinned.get(node, ()) else ""

    def release(self) -> None:
        """Unpin everywhere, without waiting for it. A node that this does not reach does it by itself,
        and so does one that answered too late."""
        for node in self._pinned:
            self._pool.submit(self._release, node)

    def _ask(self, node: QueryPeer, versions: Sequence[tuple[TabletId, int]]) -> frozenset[TabletId]:
        request = Pin(self._pin_id, self._ending.remaining_ms() / 1000 + GRACE_S, tuple(versions))

        def call(peer: QueryPeer, attempt: Attempt) -> frozenset[TabletId]:
            return self._source.pin(peer.address, request)

        try:
            asked = self._peers.ask((node,), call, self._ending, (RtolapError,), fails_when_silent=True)
        except RtolapError as error:
            self._ending.check()
            log.info("node %s pins nothing for a statement: %s", node.name, error)
            return frozenset()
        return asked[1]

    def _release(self, node: QueryPeer) -> None:
        try:
            self._source.unpin(node.address, Unpin(self._pin_id))
        except RtolapError as error:
            log.info("node %s keeps the pins of a statement until their time is over: %s", node.name, error)

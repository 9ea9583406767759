"""Leadership: the election, a coordinator's periodic work, and cluster state as a coordinator may change it.

Every commit of a leader requires that it still leads, every other one that its candidate's node still stands.
A process that was stopped for longer than its session believes for a moment that it leads. What it sends then
is refused by ZooKeeper, as one with the rest of the commit, because its candidate's node is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from rtolap.base.errors import CommitConflict, NotLeader, RtolapError
from rtolap.metadata import paths
from rtolap.metadata.forwarding import ForwardingStore
from rtolap.metadata.store import Check, MetadataStore, Operation

log = logging.getLogger(__name__)

TICK_S = 1.0


class Leadership:
    """Stands for election as `url`.

    Once started, `begin` is called when leadership is gained, `tick` about each second while the candidate's
    node is known to stand, leading or not. Both run on one thread; their RtolapErrors are logged and the next
    tick tries again.
    """

    def __init__(self, store: MetadataStore, url: str, *, tick_s: float = TICK_S) -> None:
        self.url = url
        self._tick_s = tick_s
        self._led = False
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._election = store.elect(paths.ELECTION, url, self._wake.set)
        self._thread: threading.Thread | None = None

    def start(self, *, begin: Callable[[], None], tick: Callable[[], None]) -> None:
        self._begin, self._tick = begin, tick
        self._thread = threading.Thread(target=self._run, name="coordinator-duties", daemon=True)
        self._thread.start()

    def is_leader(self) -> bool:
        return self._election.is_leader()

    def fence(self) -> str | None:
        """See `metadata.store.Election`."""
        return self._election.fence()

    def node(self) -> str | None:
        """See `metadata.store.Election`."""
        return self._election.node()

    def leader_url(self) -> str | None:
        """Return None while there is no leader, as far as this coordinator knows."""
        if self.is_leader():
            return self.url
        leader = self._election.leader()
        return None if leader == self.url else leader

    def close(self) -> None:
        """Withdraw, so that a standby takes over at once."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=30)
        try:
            self._election.close()
        except RtolapError as error:
            log.warning("the candidacy ends with its session: %s", error)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._tick_s)
            self._wake.clear()
            if not self._stop.is_set():
                self._turn()

    def _turn(self) -> None:
        leads = self.is_leader()
        if leads != self._led:
            log.info("coordinator %s %s", self.url, "leads" if leads else "no longer leads")
        try:
            if leads and not self._led:
                self._begin()
            self._led = leads
            if self.node() is not None:
                self._tick()
        except RtolapError as error:
            log.warning("duties of the coordinator failed and are tried again: %s", error)
        except Exception:  # a bug in one part must not end the others for good
            log.exception("duties of the coordinator failed")


class FencedStore(ForwardingStore):
    """A `MetadataStore` over another one's session. `fence`: of a leader (`store.Election.fence`), or the own
    node of a candidate (`store.Election.node`)."""

    def __init__(self, store: MetadataStore, fence: Callable[[], str | None]) -> None:
        super().__init__(store)
        self._fence = fence

    def commit(self, operations: Sequence[Operation]) -> None:
        """Commit as the seam says. Raises NotLeader, with nothing changed, where the fence does not stand."""
        fence = self._fence()
        if fence is None:
            raise NotLeader("this coordinator leads no more, or its session is not known to live; ask again")
        try:
            self._store.commit([*operations, Check(fence, -1)])
        except CommitConflict as error:
            if self._store.get(fence) is None:
                raise NotLeader("this coordinator's session is over; ask the leader") from error
            raise

    def close(self) -> None:
        """Do nothing: the session belongs to its opener."""

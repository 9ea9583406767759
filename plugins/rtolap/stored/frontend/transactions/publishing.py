"""Carries decided transactions out on the nodes: publishes versions in order, catches up replicas that lag,
sends aborts.

Publishing one transaction, numbered by what a crash after each step leaves behind:

    1. its turn has come: each of its partitions is visible up to the version before
    2. the nodes make their prepared rows the version   some have it, and nobody reads it: readers request
                                                        what the ledger calls visible
                                                        Where one that voted is gone, others copy it
    3. a majority of each tablet has it: one write of   a node whose response was lost gets the request
       the ledger, visible versions and VISIBLE         again and confirms it
    4. nodes that do not have it are caught up          the ledger knows up to where each of them is
"""

from __future__ import annotations

import functools
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from threading import Condition

from rtolap.base.errors import Corrupted, RtolapError, Unavailable
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.transactions.participants import MissedVersion, NodeCalls, Participants
from rtolap.stored.frontend.transactions.preparation import ForEach
from rtolap.stored.frontend.transactions.requests import TransactionManager
from rtolap.stored.frontend.transactions.states import TransactionEvent, done_before, transition
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import transactions as rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import Partition, Replica, Tablet, Transaction, TransactionState
from rtolap.stored.stream_load.quorum import shortfall

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.25  # another front end may have published it: it cannot tell this one


@dataclass(frozen=True)
class _Plan:
    versions: Mapping[Partition, int]
    replicas: tuple[Replica, ...]


class Publisher:
    """Publishes transactions, for a thread of the master. Raises NotLeader once another is master."""

    def __init__(
        self, ledger: Ledger, mastership: Mastership, participants: Participants, *, for_each: ForEach = map
    ) -> None:
        self._ledger = ledger
        self._mastership = mastership
        self._participants = participants
        self._for_each = for_each
        self._acknowledged: dict[int, set[str]] = {}  # pending aborts: the nodes that have answered

    def publish_committed(self) -> tuple[int, ...]:
        """Make visible what can be, and return the ids of these transactions.

        Some must wait for nodes. A transaction that cannot be published delays no other partition's.
        """
        published: list[int] = []
        while True:
            asking = NodeCalls()
            waiting = self._ledger.read("read what is committed", rows.committed)
            step = [transaction.txn_id for transaction in waiting if self._published(transaction, asking)]
            if not step:
                return tuple(published)
            published += step

    def catch_up(self) -> int:
        """Make nodes copy what they have missed; return the number of replicas that have moved on."""
        moved: list[tuple[Replica, int]] = []
        asking = NodeCalls()
        for replica, visible in self._ledger.read("read which replicas lag", partition_rows.lagging):
            if asking.is_silent(replica.node):
                continue
            reached = self._catch_up(replica, visible, asking)
            if reached > replica.version:
                moved.append((replica, min(reached, visible)))
        if moved:

            def work(connection: Connection, now_ms: int) -> None:
                for replica, version in moved:
                    tablet = replica.tablet
                    partition_rows.reached(
                        connection, replica.node, tablet.partition, (tablet.bucket,), version
                    )

            self._mastership.write("note which replicas have caught up", type(None), work)
        return len(moved)

    def tell_aborts(self) -> int:
        """Make nodes drop aborted rows; return the number of transactions that every node has dropped."""
        owed = self._ledger.read("read the pending aborts", rows.owing_abort)
        self._acknowledged = {each.txn_id: self._acknowledged.get(each.txn_id, set()) for each in owed}
        asking = NodeCalls()
        return sum(self._send_abort(transaction, asking) for transaction in owed)

    def _published(self, transaction: Transaction, asking: NodeCalls) -> bool:
        try:
            return self._publish(transaction, asking)
        except Unavailable:
            raise  # of the ledger, or of our mastership: the others would fare alike
        except RtolapError as error:
            log.error("transaction %d is committed and not published yet: %s", transaction.txn_id, error)
            return False

    def _publish(self, transaction: Transaction, asking: NodeCalls) -> bool:
        plan = self._ledger.read(
            "plan a publication", lambda connection: self._plan(connection, transaction.txn_id)
        )
        if plan is None:
            return False
        tablets: dict[str, set[Tablet]] = defaultdict(set)
        for replica in plan.replicas:
            tablets[replica.node].add(replica.tablet)

        def ask(node: str) -> frozenset[Tablet]:
            wanted = {
                partition: version
                for partition, version in plan.versions.items()
                if any(tablet.partition == partition for tablet in tablets[node])
            }
            own_tablets = frozenset(tablets[node])
            published = asking.ask(
                node,
                "publish",
                lambda: self._participants.publish(node, transaction.txn_id, wanted, own_tablets),
            )
            return published or frozenset()  # it is caught up when it is back

        nodes = sorted(tablets)
        holders = dict(zip(nodes, self._for_each(ask, nodes), strict=True))
        if shortfall(plan.replicas, holders) is not None:
            holders = self._copied(transaction, plan, holders, asking)
        if shortfall(plan.replicas, holders) is not None:
            return False
        return self._mastership.write(
            f"make transaction {transaction.txn_id} visible",
            bool,
            lambda connection, now_ms: self._make_visible(connection, now_ms, transaction, plan, holders),
        )

    def _copied(
        self,
        transaction: Transaction,
        plan: _Plan,
        holders: Mapping[str, Collection[Tablet]],
        asking: NodeCalls,
    ) -> dict[str, frozenset[Tablet]]:
        """Have replicas that were never sent the rows copy them from those that have the version.

        A node that voted may be gone for good, and its vote was needed. The transaction is decided, so that
        a copy of it is as good as what a load has sent.
        """
        copied = {node: frozenset(tablets) for node, tablets in holders.items()}
        for replica in plan.replicas:
            tablet = replica.tablet
            sources = [node for node, tablets in holders.items() if tablet in tablets]
            if replica.node in sources or not sources or asking.is_silent(replica.node):
                continue
            version = plan.versions[tablet.partition]
            missed = (MissedVersion(version, transaction.txn_id),)
            call = functools.partial(self._participants.catch_up, replica.node, tablet, missed, sources)
            if (asking.ask(replica.node, f"copy {tablet}", call) or 0) >= version:
                copied[replica.node] |= {tablet}
        return copied

    def _plan(self, connection: Connection, txn_id: int) -> _Plan | None:
        """Return the plan to publish the transaction; None while it is not its turn."""
        versions: dict[Partition, int] = {}
        for partition, version in rows.touched(connection, txn_id).items():
            present = partition_rows.versions(connection, partition)
            if version is None or present is None:
                raise Corrupted(
                    f"transaction {txn_id} is committed", expected=f"a version of {partition}", found=version
                )
            if present.visible != version - 1:
                return None
            versions[partition] = version
        return _Plan(versions, partition_rows.replicas(connection, sorted(versions)))

    def _make_visible(
        self,
        connection: Connection,
        now_ms: int,
        transaction: Transaction,
        plan: _Plan,
        holders: Mapping[str, Collection[Tablet]],
    ) -> bool:
        present = rows.find(connection, transaction.db, transaction.txn_id)
        if present is None or done_before(present, TransactionEvent.PUBLISH):
            return False  # the earlier master had done it and got its answer late
        after = transition(present, TransactionEvent.PUBLISH)
        for partition, version in plan.versions.items():
            if not partition_rows.make_visible(connection, partition, version):
                raise Corrupted(
                    f"transaction {transaction.txn_id} cannot become visible",
                    expected=f"{partition} at version {version - 1}",
                    found=partition_rows.versions(connection, partition),
                )
        rows.move(connection, present.txn_id, TransactionState.COMMITTED, after, finished_at_ms=now_ms)
        for node, published in holders.items():
            for partition, version in plan.versions.items():
                buckets = [tablet.bucket for tablet in published if tablet.partition == partition]
                if buckets:
                    partition_rows.reached(connection, node, partition, buckets, version)
        return True

    def _catch_up(self, replica: Replica, visible: int, asking: NodeCalls) -> int:
        """Return the version that the node has now, as far as it is known."""
        partition = replica.tablet.partition

        def work(connection: Connection) -> tuple[dict[int, int], tuple[str, ...]]:
            by_version = rows.of_versions(connection, partition, replica.version, visible)
            others = tuple(
                other.node
                for other in partition_rows.replicas(connection, (partition,))
                if other.tablet == replica.tablet and other.node != replica.node and other.version >= visible
            )
            return by_version, others

        by_version, sources = self._ledger.read("read what a replica has missed", work)
        missed = tuple(
            MissedVersion(version, by_version.get(version))
            for version in range(replica.version + 1, visible + 1)
        )
        reached = asking.ask(
            replica.node,
            f"catch {replica.tablet} up",
            lambda: self._participants.catch_up(replica.node, replica.tablet, missed, sources),
        )
        return replica.version if reached is None else reached  # the next round requests it again

    def _send_abort(self, transaction: Transaction, asking: NodeCalls) -> bool:
        nodes = self._ledger.read(
            "read which nodes store the tables",
            lambda connection: partition_rows.nodes_of(connection, transaction.db, transaction.tables),
        )

        def abort_on(node: str) -> bool:
            self._participants.abort(node, transaction.txn_id)
            return True

        # All nodes get the abort, even if some do not answer, because unneeded rows take room. Each gets it
        # once, because a node may be away for long.
        acknowledged = self._acknowledged[transaction.txn_id]
        for node in nodes:
            if node not in acknowledged and asking.ask(node, "abort", functools.partial(abort_on, node)):
                acknowledged.add(node)
        if not acknowledged.issuperset(nodes):
            return False  # still pending: the next round sends it again
        self._mastership.write(
            "note that an abort is acknowledged",
            type(None),
            lambda connection, now_ms: rows.clear_abort_pending(connection, transaction.txn_id),
        )
        return True


class Visibility:
    """Waiting until what is committed can be seen.

    `publish` belongs to one thread; any number may `wait`.

    Attributes:
        wake: makes that thread publish now.
    """

    def __init__(self, manager: TransactionManager, publisher: Publisher) -> None:
        self._manager = manager
        self._publisher = publisher
        self._published = Condition()
        self.wake: Callable[[], object] = lambda: None

    def publish(self) -> None:
        """Run a round of the publisher."""
        if self._publisher.publish_committed():
            with self._published:
                self._published.notify_all()

    def wait(self, db: str, txn_id: int, timeout_s: float) -> bool:
        """Wait until a transaction is VISIBLE; return False after the time, when it will be later."""
        deadline_s = time.monotonic() + timeout_s
        self.wake()
        with self._published:  # later publications are noticed; earlier ones are looked up
            while self._manager.get(db, txn_id).state is not TransactionState.VISIBLE:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._published.wait(min(left_s, _ASK_AGAIN_S))
        return True

"""Requests of transactions: begin, precommit, commit, abort, look up, close a label, acknowledge it.

A commit, numbered by what a crash after each step leaves behind:

    1. one write of the ledger: its partitions    they stay until it is committed, aborted or times out
    2. every replica says what it has prepared    the same
    3. too few of one tablet: it is aborted       ABORTED, which the upkeep sends to the nodes
    4. one write of the ledger: the next version  COMMITTED: whoever is master publishes it
       of each partition, and COMMITTED
    5. the answer                                 who has lost it requests the label's state

Nothing is remembered beside the ledger, so that any number of threads, and the next master, go on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import asdict

from rtolap.base.errors import IllegalTransition, NotFound, Refused, TooManyAtOnce, Unavailable
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.transactions.labels import label_used
from rtolap.stored.frontend.transactions.participants import Participants
from rtolap.stored.frontend.transactions.preparation import ForEach, Preparation
from rtolap.stored.frontend.transactions.states import TransactionEvent, done_before, transition
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import transactions as rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import (
    ABORTABLE,
    NO_FIGURES,
    BeginRequest,
    LoadFigures,
    Partition,
    Transaction,
    TransactionState,
)
from rtolap.stored.stream_load import messages
from rtolap.stored.stream_load.labels import checked_label

RUNNING_MAX = 100
PRECOMMITTED_TIMEOUT_MS = 3_600_000


class TransactionManager:
    """All calls are thread-safe, and raise NotLeader once somebody else is master."""

    def __init__(
        self,
        ledger: Ledger,
        mastership: Mastership,
        participants: Participants,
        *,
        running_max: int = RUNNING_MAX,
        precommitted_timeout_ms: int = PRECOMMITTED_TIMEOUT_MS,
        for_each: ForEach = map,
    ) -> None:
        self._ledger = ledger
        self._mastership = mastership
        self._preparation = Preparation(ledger, mastership, participants, for_each)
        self._running_max = running_max
        self._precommitted_timeout_ms = precommitted_timeout_ms

    def begin(self, wanted: BeginRequest) -> Transaction:
        """Return a new transaction in PREPARE; the old one when this very request has begun it and it still
        is.

        Raises LabelUsed where another one holds the label, Refused where that is closed or the request comes
        after `not_after_ms`, TooManyAtOnce where too many run in the database, DefinitionError for a label
        that is none.
        """
        db, label, not_after_ms = wanted.db, wanted.label, wanted.not_after_ms
        checked_label(label)

        def work(connection: Connection, now_ms: int) -> Transaction:
            holder = rows.find_live(connection, db, label)
            if holder is not None:
                if holder.state is TransactionState.PREPARE and holder.request_id == wanted.request_id:
                    return holder
                if holder.state is TransactionState.ABORTED:
                    raise Refused(messages.label_closed(label))
                raise label_used(holder)
            if not_after_ms is not None and now_ms > not_after_ms:
                raise Refused(
                    f"the request with label {label} comes too late",
                    expected=f"until {not_after_ms} ms since the epoch, as it says",
                    found=str(now_ms),
                    action="ask for the label's state; if it is unknown, send again with a new time",
                )
            running = rows.running_count(connection, db)
            if running >= self._running_max:
                raise TooManyAtOnce(messages.too_many_running(db, running, self._running_max))
            return rows.insert(connection, wanted, now_ms)

        return self._mastership.write(f"begin a transaction with label {label}", Transaction, work)

    def precommit(
        self, db: str, txn_id: int, partitions: Collection[Partition], *, figures: LoadFigures = NO_FIGURES
    ) -> Transaction:
        """Perform the first phase: a majority of each tablet's replicas holds the sent rows.

        From now on it waits for its second phase, at most `precommitted_timeout_ms`. Where there is no
        majority it is aborted: Unavailable. Harmless when it was done before. `figures` are kept.
        """
        transaction = self.get(db, txn_id)
        if done_before(transaction, TransactionEvent.PRECOMMIT):
            return transaction
        transition(transaction, TransactionEvent.PRECOMMIT)
        self._prepared(transaction, partitions)

        def work(connection: Connection, now_ms: int) -> None:
            present = self._found(connection, db, txn_id)
            if done_before(present, TransactionEvent.PRECOMMIT):
                return
            deadline_ms = now_ms + self._precommitted_timeout_ms
            self._move(
                connection, present, TransactionEvent.PRECOMMIT, deadline_ms=deadline_ms, **asdict(figures)
            )

        self._mastership.write(f"pre-commit transaction {txn_id}", type(None), work)
        return self.get(db, txn_id)

    def commit(
        self, db: str, txn_id: int, partitions: Collection[Partition], *, figures: LoadFigures = NO_FIGURES
    ) -> Transaction:
        """Commit a one-phase transaction, and give each partition that it has written to its next version.

        The transaction is COMMITTED and becomes visible whatever happens. A repetition is harmless. Without a
        majority the transaction is aborted, and Unavailable is raised. `figures` are kept.
        """
        transaction = self.get(db, txn_id)
        if done_before(transaction, TransactionEvent.COMMIT):
            return transaction
        transition(transaction, TransactionEvent.COMMIT)
        self._prepared(transaction, partitions)
        return self._commit(db, txn_id, TransactionEvent.COMMIT, figures)

    def commit_precommitted(self, db: str, txn_id: int) -> Transaction:
        """Commit the second phase, as `commit`: the first has named the partitions and prepared them on their
        nodes.

        In any other state, also where it was done before, IllegalTransition says which.
        """
        return self._commit(db, txn_id, TransactionEvent.COMMIT_PRECOMMITTED)

    def abort(self, db: str, txn_id: int, reason: str, *, figures: LoadFigures = NO_FIGURES) -> Transaction:
        """Abort a transaction, which frees its label. It is harmless when it is aborted already. Raises
        IllegalTransition from COMMITTED on.

        The upkeep sends it to the nodes, as often as it takes.
        """
        self._abort(db, txn_id, reason, lambda present, now_ms: True, figures)
        return self.get(db, txn_id)

    def abort_overdue(self, db: str, txn_id: int) -> bool:
        """Abort it if its deadline is over, judged in the same write; whether it was."""

        def overdue(present: Transaction, now_ms: int) -> bool:
            return present.state in ABORTABLE and present.deadline_ms <= now_ms

        return self._abort(db, txn_id, messages.TIMED_OUT, overdue)

    def close_label(
        self, db: str, label: str, user_name: str, check: Callable[[Transaction], None]
    ) -> Transaction:
        """Close a label, so that no load is taken under it from now on, and return its outcome: the one that
        was committed, or one that is aborted and keeps the label until it is acknowledged.

        One under way is aborted. Harmless when it was done before. `check` is called with the holder, in the
        write, and may refuse.
        """
        checked_label(label)

        def work(connection: Connection, now_ms: int) -> int:
            running = rows.find_live(connection, db, label)
            if running is not None:
                check(running)
            closing = BeginRequest(db, (), label, label, 0, keep_until_acknowledged=True, user_name=user_name)
            holder = running or rows.insert(connection, closing, now_ms)
            if holder.state in ABORTABLE:
                self._move(
                    connection,
                    holder,
                    TransactionEvent.ABORT,
                    keeps_label=True,
                    keep_until_acknowledged=1,
                    finished_at_ms=now_ms,
                    reason=messages.LABEL_CLOSED,
                    abort_pending=int(running is not None),  # nodes may hold something of it
                )
            return holder.txn_id

        return self.get(db, self._mastership.write(f"close label {label}", int, work))

    def acknowledge(self, db: str, label: str) -> None:
        """Note that the loader needs the label no more. It is harmless when the label is gone. Raises Refused
        while the transaction runs."""

        def work(connection: Connection, now_ms: int) -> None:
            latest = rows.find_latest(connection, db, label)
            if latest is None:
                return
            if latest.state not in (TransactionState.VISIBLE, TransactionState.ABORTED):
                raise Refused(f"label {label} cannot be acknowledged", found=f"{latest.state}")
            rows.acknowledge(connection, db, label)

        self._mastership.write(f"acknowledge label {label}", type(None), work)

    def get(self, db: str, txn_id: int) -> Transaction:
        """Return a transaction. Raises NotFound, in the words that clients match."""
        return self._ledger.read("read a transaction", lambda connection: self._found(connection, db, txn_id))

    def find(self, db: str, label: str) -> Transaction | None:
        """Return the one that holds the label, or the latest that was aborted; None: the label is unknown."""
        return self._ledger.read(
            "look a label up", lambda connection: rows.find_latest(connection, db, label)
        )

    def by_label(self, db: str, label: str) -> Transaction:
        """Return the transaction as `find` does. Raises NotFound if there is none."""
        transaction = self.find(db, label)
        if transaction is None:
            raise NotFound(messages.label_not_found(label))
        return transaction

    def like(self, db: str, pattern: str) -> tuple[Transaction, ...]:
        """Return at most `LIKE_MAX` transactions whose labels are LIKE the pattern, the latest first."""
        return self._ledger.read("look labels up", lambda connection: rows.find_like(connection, db, pattern))

    def _abort(
        self,
        db: str,
        txn_id: int,
        reason: str,
        wanted: Callable[[Transaction, int], bool],
        figures: LoadFigures = NO_FIGURES,
    ) -> bool:
        """Abort a transaction. `wanted` is called in the write, with the present state and time: an earlier
        reading may be out of date."""

        def work(connection: Connection, now_ms: int) -> bool:
            present = self._found(connection, db, txn_id)
            if done_before(present, TransactionEvent.ABORT) or not wanted(present, now_ms):
                return False
            self._move(
                connection,
                present,
                TransactionEvent.ABORT,
                finished_at_ms=now_ms,
                reason=reason,
                abort_pending=1,
                error_url=figures.error_url or present.error_url,
            )
            return True

        return self._mastership.write(f"abort transaction {txn_id}", bool, work)

    def _commit(
        self, db: str, txn_id: int, event: TransactionEvent, figures: LoadFigures | None = None
    ) -> Transaction:
        """Commit a transaction. `figures`: None where an earlier phase has kept them."""

        def work(connection: Connection, now_ms: int) -> None:
            present = self._found(connection, db, txn_id)
            if done_before(present, event):
                return
            kept = figures or LoadFigures(present.row_count, present.error_url)
            self._move(connection, present, event, committed_at_ms=now_ms, **asdict(kept))
            written = sorted(rows.touched(connection, txn_id))
            versions = {partition: partition_rows.assign(connection, partition) for partition in written}
            rows.set_versions(connection, txn_id, versions)

        self._mastership.write(f"commit transaction {txn_id}", type(None), work)
        return self.get(db, txn_id)

    def _found(self, connection: Connection, db: str, txn_id: int) -> Transaction:
        transaction = rows.find(connection, db, txn_id)
        if transaction is None:
            raise NotFound(messages.not_found(txn_id))
        return transaction

    def _move(
        self,
        connection: Connection,
        present: Transaction,
        event: TransactionEvent,
        *,
        keeps_label: bool = False,
        **values: object,
    ) -> None:
        after = transition(present, event)
        if not rows.move(connection, present.txn_id, present.state, after, keeps_label=keeps_label, **values):
            raise IllegalTransition(
                f"transaction {present.txn_id} has changed under its master's lock",
                expected=present.state,
                action="report this: it must not happen",
            )

    def _prepared(self, transaction: Transaction, partitions: Collection[Partition]) -> None:
        """Make the nodes prepare the transaction.

        Without a majority, one that is still in PREPARE is aborted, and this raises Unavailable.
        """
        missing = self._preparation.shortfall(transaction, partitions)
        if missing is not None:
            reason = messages.no_majority(transaction.txn_id, missing)
            # a request that came twice must not undo what its first one has achieved in the meantime
            if self._abort(
                transaction.db,
                transaction.txn_id,
                reason,
                lambda present, now_ms: present.state is TransactionState.PREPARE,
            ):
                raise Unavailable(reason)

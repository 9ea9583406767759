"""The transaction around a load: begun, committed or aborted, and the response about it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection

from rtolap.base.decoding import copied
from rtolap.base.errors import IllegalTransition, NotFound, RtolapError
from rtolap.protocols.stream_load.messages import LoadAnswer
from rtolap.stored.metastore.records import (
    BeginRequest,
    LoadFigures,
    Partition,
    Transaction,
    TransactionState,
)
from rtolap.stored.stream_load import messages
from rtolap.stored.stream_load.decisions import TransactionDecisions, VisibilityDecisions
from rtolap.stored.stream_load.distribution import Writer
from rtolap.stored.stream_load.load_statistics import LoadProgress, Phase
from rtolap.stored.stream_load.request import LoadRequest

log = logging.getLogger(__name__)

PUBLISH_TIMEOUT_S = 10.0


class Committing:
    """The commits of loads. They are thread-safe."""

    def __init__(
        self,
        manager: TransactionDecisions,
        visibility: VisibilityDecisions,
        publish_timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> None:
        self._manager = manager
        self._visibility = visibility
        self._publish_timeout_s = publish_timeout_s

    def begin(self, request: LoadRequest) -> Transaction:
        """Begin a transaction. Raises as `TransactionDecisions.begin`."""
        wanted = copied(
            BeginRequest,
            request,
            tables=(request.table,),
            request_id=uuid.uuid4().hex,
            keep_until_acknowledged=request.keep_label,
        )
        return self._manager.begin(wanted)

    def commit(
        self,
        transaction: Transaction,
        written: Collection[Partition],
        progress: LoadProgress,
        *,
        rows: int,
    ) -> LoadAnswer:
        """Commit a load of so many rows and return its answer. After a failure the state is read: it may have
        been committed all the same.
        """
        figures = LoadFigures(rows, progress.error_url)
        db, txn_id = transaction.db, transaction.txn_id
        with progress.measured(Phase.COMMIT):
            try:
                if transaction.two_phase:
                    self._manager.precommit(db, txn_id, written, figures=figures)
                    visible = True  # as far as the first phase goes
                else:
                    self._manager.commit(db, txn_id, written, figures=figures)
                    visible = self._visible(db, txn_id)
            except RtolapError as error:
                if not self._stands(transaction, error):
                    return progress.failed(error, messages.on_the_wire(str(error)))
                visible = self._visible(db, txn_id)
        if visible:
            return progress.answer("Success")
        return progress.answer("Publish Timeout", messages.VISIBLE_LATER)

    def give_up(
        self, transaction: Transaction, writer: Writer | None, reason: str, error_url: str | None = None
    ) -> None:
        """Abort it. Where that cannot be done, its deadline does it. `error_url`: of its rejected rows."""
        figures = LoadFigures(error_url=error_url)
        steps: list[Callable[[], object]] = [] if writer is None else [writer.abort]
        steps.append(lambda: self._manager.abort(transaction.db, transaction.txn_id, reason, figures=figures))
        for step in steps:
            try:
                step()
            except RtolapError as further:
                log.warning("transaction %d is not aborted yet: %s", transaction.txn_id, further)

    def _visible(self, db: str, txn_id: int) -> bool:
        """Return True if a committed transaction becomes visible in time."""
        try:
            return self._visibility.wait(db, txn_id, self._publish_timeout_s)
        except NotFound:
            return True  # and its label is forgotten already
        except RtolapError as error:
            log.warning("transaction %d is committed; whether it is visible: %s", txn_id, error)
            return False

    def _stands(self, transaction: Transaction, error: RtolapError) -> bool:
        """Return True if a transaction was committed in spite of the error. It is aborted if it can be."""
        try:
            self._manager.abort(transaction.db, transaction.txn_id, str(error))
        except IllegalTransition:
            state = self._manager.get(transaction.db, transaction.txn_id).state
            return state in (TransactionState.COMMITTED, TransactionState.VISIBLE)
        except RtolapError as further:
            log.warning("transaction %d: %s; and %s", transaction.txn_id, error, further)
        return False

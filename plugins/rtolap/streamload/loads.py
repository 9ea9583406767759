"""One load, from its headers to its answer.

    1. the table is looked up, a transaction begun     it runs until it is committed, aborted or times out
    2. bytes become rows, rows go to their tablets     on the nodes, under the transaction, seen by nobody
    3. too many rows are refused: aborted
    4. the nodes have all of it; (pre-)committed       `rtolap.streamload.transactions`
    5. one phase: wait until it is visible             or say that it will be

Whatever goes wrong before 4 aborts the transaction; where that cannot be done either (the door is master no
more, the ledger is away), its deadline does. What goes wrong in 4 is asked about: it may have been committed.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator

from rtolap.base.errors import IllegalTransition, LabelUsed, NotFound, RtolapError
from rtolap.bodies.batches import check_ratio
from rtolap.bodies.decode import decode_body
from rtolap.bodies.settings import BodySettings
from rtolap.ledger.records import Partition, Transaction, TransactionState
from rtolap.streamload import messages
from rtolap.streamload.body_pipe import BodyPipe
from rtolap.streamload.distribution import Distribution, Tables, Writer
from rtolap.streamload.error_files import ErrorFile, ErrorFiles
from rtolap.streamload.load_request import LoadRequest
from rtolap.streamload.progress import Phase, Progress
from rtolap.streamload.transactions import TransactionManager
from rtolap.streamload.visibility import Visibility
from rtolap.wire.stream_load import LoadAnswer

log = logging.getLogger(__name__)

PUBLISH_TIMEOUT_S = 10.0


class Loads:
    """Thread-safe; each load runs in a thread of its caller."""

    def __init__(
        self,
        manager: TransactionManager,
        visibility: Visibility,
        tables: Tables,
        error_files: ErrorFiles,
        *,
        body_settings: BodySettings = BodySettings(),
        publish_timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> None:
        self._manager = manager
        self._visibility = visibility
        self._tables = tables
        self._error_files = error_files
        self._body_settings = body_settings
        self._publish_timeout_s = publish_timeout_s

    def run(self, request: LoadRequest, pipe: BodyPipe) -> LoadAnswer:
        """Always an answer, except for errors of the program, which leave an aborted transaction behind."""
        progress = Progress(request.label, request.comment, request.two_phase)
        errors = self._error_files.new()
        try:
            return self._answered(request, pipe, progress, errors)
        finally:
            errors.close()
            pipe.close()

    def _answered(
        self, request: LoadRequest, pipe: BodyPipe, progress: Progress, errors: ErrorFile
    ) -> LoadAnswer:
        deadline_s = time.monotonic() + request.timeout_ms / 1000
        try:
            with progress.measured(Phase.PUT):
                table = self._tables.catalogue.table(request.db, request.table)
            with progress.measured(Phase.BEGIN):
                transaction = self._begin(request)
        except LabelUsed as error:
            status = error.existing_job_status
            return progress.answer("Label Already Exists", messages.on_the_wire(error.message), status)
        except RtolapError as error:
            return progress.answer("Fail", messages.on_the_wire(str(error)))
        progress.txn_id = transaction.txn_id
        writer: Writer | None = None
        try:
            writer = self._tables.open_writer(transaction.txn_id, table)
            distribution = Distribution(self._tables, table, request.options, writer)
            self._write(request, pipe, progress, errors, distribution, deadline_s)
            check_ratio(progress.counts, request.options.max_filter_ratio)
            with progress.measured(Phase.WRITE):
                written = writer.finish()
        except BaseException as error:
            self._note(progress, pipe, errors)
            self._give_up(transaction, writer, error)
            if not isinstance(error, RtolapError):
                raise
            return progress.answer("Fail", _failure(error))
        self._note(progress, pipe, errors)
        with progress.measured(Phase.COMMIT):
            return self._commit(transaction, written, progress)

    def _begin(self, request: LoadRequest) -> Transaction:
        return self._manager.begin(
            request.db,
            (request.table,),
            request.label,
            uuid.uuid4().hex,
            timeout_ms=request.timeout_ms,
            two_phase=request.two_phase,
            keep_until_acknowledged=request.keep_label,
        )

    def _write(
        self,
        request: LoadRequest,
        pipe: BodyPipe,
        progress: Progress,
        errors: ErrorFile,
        distribution: Distribution,
        deadline_s: float,
    ) -> None:
        chunks: Iterator[bytes] = pipe.chunks(deadline_s)
        for batch in decode_body(chunks, request.options, distribution.schema, self._body_settings):
            progress.counts.add(batch)
            if batch.rejected is not None:
                rows = batch.rejected.rows
                shown = zip(rows["text"].to_pylist(), rows["reason"].to_pylist(), strict=True)
                errors.add(shown, batch.rejected.count)
            with progress.measured(Phase.WRITE):
                homeless = distribution.write(batch.rows)
            if homeless is not None:
                progress.counts.filter(homeless.count)
                errors.add(homeless.shown, homeless.count)

    def _note(self, progress: Progress, pipe: BodyPipe, errors: ErrorFile) -> None:
        progress.load_bytes = pipe.received_bytes
        progress.spent_s[Phase.READ] = pipe.waited_s
        progress.first_error = errors.first
        if errors.name is not None:
            progress.error_url = self._error_files.url(errors.name)

    def _commit(
        self, transaction: Transaction, written: Collection[Partition], progress: Progress
    ) -> LoadAnswer:
        db, txn_id = transaction.db, transaction.txn_id
        try:
            if transaction.two_phase:
                self._manager.precommit(db, txn_id, written)
                return progress.answer("Success")
            self._manager.commit(db, txn_id, written)
        except RtolapError as error:
            if not self._stands(transaction, error):
                return progress.answer("Fail", messages.on_the_wire(str(error)))
        try:
            if self._visibility.wait(db, txn_id, self._publish_timeout_s):
                return progress.answer("Success")
        except NotFound:
            return progress.answer("Success")  # visible, and its label forgotten already
        except RtolapError as error:
            log.warning("transaction %d is committed; whether it is visible: %s", txn_id, error)
        return progress.answer("Publish Timeout", messages.VISIBLE_LATER)

    def _stands(self, transaction: Transaction, error: RtolapError) -> bool:
        """Whether it was committed all the same. It is aborted if it can be."""
        try:
            self._manager.abort(transaction.db, transaction.txn_id, str(error))
        except IllegalTransition:
            state = self._manager.get(transaction.db, transaction.txn_id).state
            return state in (TransactionState.COMMITTED, TransactionState.VISIBLE)
        except RtolapError as further:
            log.warning("transaction %d: %s; and %s", transaction.txn_id, error, further)
        return False

    def _give_up(self, transaction: Transaction, writer: Writer | None, error: BaseException) -> None:
        steps: list[Callable[[], object]] = [] if writer is None else [writer.abort]
        steps.append(lambda: self._manager.abort(transaction.db, transaction.txn_id, _failure(error)))
        for step in steps:
            try:
                step()
            except RtolapError as further:  # its deadline aborts it, and tells the nodes
                log.warning("transaction %d is not aborted yet: %s", transaction.txn_id, further)


def _failure(error: BaseException) -> str:
    if isinstance(error, RtolapError):
        return str(error)
    return f"an error of the program: {type(error).__name__}"

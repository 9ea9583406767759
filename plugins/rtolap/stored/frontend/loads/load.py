"""One load, from its headers to its answer.

    1. the table is looked up, a transaction begun     it runs until it is committed, aborted or times out
    2. bytes become rows, rows go to their tablets     on the nodes, under the transaction, seen by nobody
    3. too many rows are refused: aborted
    4. the nodes have all of it; (pre-)committed       `rtolap.stored.frontend.transactions.requests`
    5. one phase: wait until it is visible             or say that it will be

Whatever goes wrong before 4 aborts the transaction; where that cannot be done either (the front end is master
no more, the ledger is away), its deadline does. After a failure in 4 the state is read: it may have been
committed.
"""

from __future__ import annotations

import time

from rtolap.base.errors import LabelUsed, RtolapError
from rtolap.protocols.stream_load.messages import LoadAnswer
from rtolap.stored.bodies.batches import check_ratio
from rtolap.stored.frontend.http.body_pipe import BodyPipe
from rtolap.stored.frontend.loads import messages
from rtolap.stored.frontend.loads.distribution import Distribution, Writer
from rtolap.stored.frontend.loads.load_statistics import Phase, Progress
from rtolap.stored.frontend.loads.reading import Reading
from rtolap.stored.frontend.loads.request import LoadRequest
from rtolap.stored.frontend.loads.services import LoadServices


class Loads:
    """Thread-safe; each load runs in a thread of its caller."""

    def __init__(self, services: LoadServices) -> None:
        self._services = services
        self._committing = services.committing
        self._tables = services.tables

    def run(self, request: LoadRequest, pipe: BodyPipe) -> LoadAnswer:
        """Always an answer, except for errors of the program, which leave an aborted transaction behind."""
        progress = Progress(request.label, request.comment, request.two_phase)
        deadline_s = time.monotonic() + request.timeout_ms / 1000
        reading = self._services.reading(request, pipe, progress, deadline_s)
        try:
            return self._answered(request, reading, progress, deadline_s)
        finally:
            reading.close()

    def _answered(
        self, request: LoadRequest, reading: Reading, progress: Progress, deadline_s: float
    ) -> LoadAnswer:
        try:
            with progress.measured(Phase.PUT):
                table = self._tables.catalogue.table_to_load(request.db, request.table)
            with progress.measured(Phase.BEGIN):
                transaction = self._committing.begin(request)
        except LabelUsed as error:
            status = error.existing_job_status
            return progress.answer("Label Already Exists", messages.on_the_wire(error.message), status)
        except RtolapError as error:
            return progress.failed(error, messages.on_the_wire(str(error)))
        progress.txn_id = transaction.txn_id
        writer: Writer | None = None
        try:
            distribution = Distribution(self._tables.catalogue, table, request.options, deadline_s)
            partial = request.options.partial_columns
            writer = self._tables.open_writer(transaction.txn_id, table, partial)
            for parts in reading.parts(distribution):
                with progress.measured(Phase.WRITE):
                    writer.add_replicas(distribution.replicas)
                    for part in parts:
                        writer.write(part.partition, part.bucket, part.rows)
            check_ratio(progress.counts, request.options.max_filter_ratio)
            with progress.measured(Phase.WRITE):
                written = writer.finish()
            reading.close()
        except RtolapError as error:
            self._committing.give_up(transaction, writer, str(error))
            reading.close()
            return progress.failed(error)
        except BaseException as error:
            self._committing.give_up(transaction, writer, f"an error of the program: {error!r}")
            raise
        return self._committing.commit(transaction, written, progress)

"""A load, from its headers to its answer.

    1. the table is looked up, a transaction begun     it runs until it is committed, aborted or times out
    2. bytes become rows, rows go to their tablets     on the nodes, under the transaction, seen by nobody
    3. too many rows are refused: aborted
    4. the nodes have all of it; (pre-)committed       the master decides: `decisions`
    5. one phase: wait until it is visible             or say that it will be

Whatever goes wrong before 4 aborts the transaction; where that cannot be done either (the front end is master
no more, the ledger is away), its deadline does. After a failure in 4 the state is read: it may have been
committed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rtolap.base.errors import LabelUsed, RtolapError
from rtolap.base.ids import note
from rtolap.base.spans import span
from rtolap.protocols.stream_load.messages import LoadAnswer
from rtolap.stored.bodies.batches import check_ratio
from rtolap.stored.bodies.decode import decode_body
from rtolap.stored.bodies.settings import BodySettings
from rtolap.stored.engine.routing import RoutedPart
from rtolap.stored.stream_load import messages
from rtolap.stored.stream_load.body_pipe import BodyPipe
from rtolap.stored.stream_load.committing import Committing
from rtolap.stored.stream_load.distribution import Distribution, Tables, Writer
from rtolap.stored.stream_load.error_files import ErrorFile, ErrorFiles
from rtolap.stored.stream_load.load_statistics import LoadProgress, Phase
from rtolap.stored.stream_load.request import LoadRequest


class Reading:
    """A load's bytes to rows of their tablets, with everything noted that its response reports of them.

    For one thread. Raises what reading and decoding the body do.
    """

    def __init__(
        self,
        request: LoadRequest,
        pipe: BodyPipe,
        progress: LoadProgress,
        error_files: ErrorFiles,
        settings: BodySettings,
        deadline_s: float,
    ) -> None:
        self._request = request
        self._pipe = pipe
        self._progress = progress
        self._error_files = error_files
        self._errors: ErrorFile = error_files.new()
        self._settings = settings
        self._deadline_s = deadline_s

    def parts(self, distribution: Distribution) -> Iterator[tuple[RoutedPart, ...]]:
        chunks = self._pipe.chunks(self._deadline_s)
        for batch in decode_body(chunks, self._request.options, distribution.schema, self._settings):
            self._progress.counts.add_batch(batch)
            if batch.rejected is not None:
                rows = batch.rejected.rows
                shown = zip(rows["text"].to_pylist(), rows["reason"].to_pylist(), strict=True)
                self._errors.write_rows(shown, batch.rejected.count)
            with self._progress.measured(Phase.WRITE):
                distributed = distribution.split(batch.rows)
            if distributed.unroutable is not None:
                self._progress.counts.filter(distributed.unroutable.count)
                self._errors.write_rows(distributed.unroutable.shown, distributed.unroutable.count)
            yield distributed.parts

    def close(self) -> None:
        """Stop reading, and put the final figures into the progress."""
        self._pipe.close()
        self._errors.close()
        self._progress.load_bytes = self._pipe.received_bytes
        self._progress.spent_s[Phase.READ] = self._pipe.waited_s
        self._progress.first_error = self._errors.first
        if self._errors.name is not None:
            self._progress.error_url = self._error_files.url(self._errors.name)


@dataclass(frozen=True)
class LoadServices:
    """Services with which every load is carried out, by itself or in a group."""

    committing: Committing
    tables: Tables
    error_files: ErrorFiles
    body_settings: BodySettings = field(default_factory=BodySettings)

    def reading(
        self, request: LoadRequest, pipe: BodyPipe, progress: LoadProgress, deadline_s: float
    ) -> Reading:
        """Return the reading of a request's body. The caller closes it."""
        return Reading(request, pipe, progress, self.error_files, self.body_settings, deadline_s)


class Loads:
    """Thread-safe; each load runs in a thread of its caller."""

    def __init__(self, services: LoadServices) -> None:
        self._services = services
        self._committing = services.committing
        self._tables = services.tables

    def run(self, request: LoadRequest, pipe: BodyPipe) -> LoadAnswer:
        """Run a load. It always returns an answer, except for errors of the program, which leave an aborted
        transaction behind."""
        progress = LoadProgress(request.label, request.comment, request.two_phase)
        deadline_s = time.monotonic() + request.timeout_ms / 1000
        reading = self._services.reading(request, pipe, progress, deadline_s)
        try:
            with span("load"):
                return self._answered(request, reading, progress, deadline_s)
        finally:
            reading.close()

    def _answered(
        self, request: LoadRequest, reading: Reading, progress: LoadProgress, deadline_s: float
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
        note(transaction=transaction.txn_id)
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
            reading.close()
            self._committing.give_up(transaction, writer, str(error), progress.error_url)
            return progress.failed(error)
        except BaseException as error:
            self._committing.give_up(transaction, writer, f"an error of the program: {error!r}")
            raise
        return self._committing.commit(transaction, written, progress, rows=progress.counts.loaded)

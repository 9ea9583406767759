"""From a batch's range to the rows that are sent: read, decoded, and what is refused is kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.events.rejects import Rejects
from rtolap.kafka.interfaces import Batch, StreamConsumer
from rtolap.model.loader import Loader
from rtolap.stored.loader.records.columns import Columns
from rtolap.stored.loader.records.content import Content
from rtolap.stored.loader.records.decode import Decoded, RecordDecoder
from rtolap.stored.loader.records.range_reader import read_range
from rtolap.stored.loader.records.rejects import RejectBox
from rtolap.stored.loader.retry_budget import SinkError
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.loader.target import Target
from rtolap.stored.loader.window import Pending
from rtolap.watermark.records.columns import batch_statements

FILTERED_BY_SINK, FILTERED_UNKNOWN = "filtered_by_sink", "filtered_unknown"


class Preparer:
    """Preparer of batches; of one thread, because the decoder is. Raises Stopped, and SinkError where another
    attempt may do.
    """

    def __init__(
        self,
        loader: Loader,
        columns: Columns,
        open_consumer: Callable[[], StreamConsumer],
        box: RejectBox,
        clock: Clock,
    ) -> None:
        self._loader = loader
        self._columns = columns
        self._open_consumer = open_consumer
        self._box = box
        self._clock = clock
        self._target: Target | None = None
        self._decoder: RecordDecoder | None = None

    def content(self, pending: Pending) -> Content:
        record = pending.record
        if pending.content is None:
            pending.content = read_range(
                self._open_consumer,
                record.start_offsets,
                record.end_offsets,
                clock=self._clock,
                topic_id=record.topic_id,
            )
        return pending.content

    def rows(self, content: Content) -> Decoded:
        """Returns, or stops, when all that is refused is kept."""
        statements = batch_statements(content.batch)
        decoded = self._decoder_now().decode(
            content.batch.values, None if statements is None else statements.control
        )
        refused, total = len(decoded.rejects), decoded.events
        if refused:
            self._keep(content.batch, decoded.rejects)
        if refused * 100 > self._loader.rejects.tolerance_percent * total:
            raise Stopped(
                StopCause.TOO_MANY_REJECTS,
                f"{refused} of {total} records of a batch are refused",
                expected=f"at most {self._loader.rejects.tolerance_percent} %",
                found=f"{decoded.rejects.reason[0]}: {decoded.rejects.detail[0]}",
                action="mend the columns or raise the tolerance, and start the loader again",
            )
        return decoded

    def keep_filtered(self, pending: Pending, url: str, text: str) -> None:
        """Keep the rows that the sink rejected, as one letter of the batch."""
        self._keep_of_batch(pending, FILTERED_BY_SINK, f"label {pending.record.label}: {url}", text)

    def keep_unknown(self, pending: Pending) -> str:
        """Keep a letter that says that the response about rejected rows was lost; return its text."""
        detail = f"label {pending.record.label}: whether the sink has filtered rows of it is not known"
        self._keep_of_batch(pending, FILTERED_UNKNOWN, detail, "")
        return detail

    def _keep_of_batch(self, pending: Pending, reason: str, detail: str, text: str) -> None:
        batch = Batch([text.encode()], np.array([-1], np.int32), np.array([pending.sequence], np.int64))
        self._keep(batch, Rejects(np.array([0], np.int64), [reason], [detail]))

    def _decoder_now(self) -> RecordDecoder:
        """Return the decoder for the table's present columns."""
        target = self._columns.target
        if self._decoder is None or target != self._target:
            self._decoder = RecordDecoder(
                target,
                record_bytes_max=self._loader.record_bytes_max,
                unknown_columns=self._loader.unknown_columns,
                watermark_field=(
                    self._loader.watermark_field if self._loader.watermark_records == "field" else None
                ),
            )
            self._target = target
        return self._decoder

    def _keep(self, batch: Batch, rejects: Rejects) -> None:
        try:
            self._box.keep(self._loader.topic, batch, rejects)
        except Unavailable as error:
            raise SinkError(error) from error
        except (RtolapError, OSError) as error:
            raise Stopped(StopCause.REJECTS_NOT_KEPT, str(error)) from error

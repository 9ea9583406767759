"""Turns a batch's range into the rows that are sent: reads it, decodes it, and stores what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, NotFound, RtolapError, Unavailable
from rtolap.events.formats.readers import Registries, no_registries
from rtolap.events.formats.sources import Beside
from rtolap.events.rejects import Rejects, SentBatch
from rtolap.kafka.interfaces import Batch, LogTruncated, OffsetsGone, StreamConsumer, TopicRecreated
from rtolap.kafka.topic_identity import TopicIdentity
from rtolap.kafka.truncation import TruncationCheck
from rtolap.model.leader_epochs import PartitionEpochs
from rtolap.model.loader import Loader
from rtolap.model.offsets import Offsets
from rtolap.model.table import VALUE
from rtolap.stored.loader.records.content import Content, content_of
from rtolap.stored.loader.records.decode import Decoded, RecordDecoder
from rtolap.stored.loader.records.rejects import RejectBox
from rtolap.stored.loader.states import (
    RECREATED_ACTION,
    TRUNCATED_ACTION,
    MissingTopic,
    StopCause,
    Stopped,
    recreated,
    truncated,
)
from rtolap.stored.loader.target import SinkColumns, Target
from rtolap.stored.loader.window import Pending, SinkError
from rtolap.stored.metastore.places import Places
from rtolap.watermark.records.columns import batch_statements

FILTERED_BY_SINK, FILTERED_UNKNOWN = "filtered_by_sink", "filtered_unknown"
_POLL_RECORDS = 50_000
_POLL_S = 0.2
_NO_EPOCHS: PartitionEpochs = {}


class Preparer:
    """Preparer of batches; of one thread, because the decoder is. Raises Stopped, and SinkError where another
    attempt may do.
    """

    def __init__(
        self,
        loader: Loader,
        columns: SinkColumns,
        open_consumer: Callable[[], StreamConsumer],
        box: RejectBox,
        clock: Clock,
        registries: Registries = no_registries,
    ) -> None:
        self._loader = loader
        self._columns = columns
        self._open_consumer = open_consumer
        self._box = box
        self._clock = clock
        self._registries = registries
        self._missing = MissingTopic()
        self._target: Target | None = None
        self._decoder: RecordDecoder | None = None

    def content(self, pending: Pending) -> Content:
        record = pending.record
        if pending.content is None:
            try:
                pending.content = _read_range(
                    self._open_consumer,
                    record.start_offsets,
                    record.end_offsets,
                    clock=self._clock,
                    topic_id=record.topic_id,
                    epochs=record.end_epochs,
                )
            except NotFound as error:
                raise self._missing.meaning(error, self._clock.monotonic_s()) from error
            self._missing.found()
        return pending.content

    def rows(self, content: Content, sent: SentBatch) -> Decoded:
        """Return the rows of a batch once all its refused records are stored."""
        statements = batch_statements(content.batch)
        try:
            decoded = self._decoder_now().decode(
                content.batch.values,
                None if statements is None else statements.control,
                Beside.of(content.batch),
            )
        except Unavailable as error:  # of a schema registry
            raise SinkError(error) from error
        except DefinitionError as error:  # paths that collide, descriptors without the message
            raise Stopped(
                StopCause.TABLE_UNUSABLE, str(error), action="mend the definition, and start the loader again"
            ) from error
        refused, total = len(decoded.rejects), decoded.events
        if refused:
            self._keep(content.batch, decoded.rejects, sent)
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
            self._decoder = decoder_of(self._loader, target, self._registries)
            self._target = target
        return self._decoder

    def _keep(self, batch: Batch, rejects: Rejects, sent: SentBatch | None = None) -> None:
        try:
            self._box.keep(self._loader.topic, batch, rejects, sent)
        except Unavailable as error:
            raise SinkError(error) from error
        except (RtolapError, OSError) as error:
            raise Stopped(StopCause.REJECTS_NOT_KEPT, str(error)) from error


def decoder_of(loader: Loader, target: Target, registries: Registries) -> RecordDecoder:
    """Return a decoder of the loader's records for these columns of its table."""
    return RecordDecoder(
        target,
        record_bytes_max=loader.record_bytes_max,
        unknown_columns=loader.unknown_columns,
        watermark_field=loader.watermark_field if loader.watermark_records == "field" else None,
        form=loader.record_format,
        fields=loader.record_format.fields
        or tuple(column.name for column in loader.columns if column.source == VALUE),
        registries=registries,
    )


def places_refused(batch: Batch, rejects: Rejects) -> Places:
    """Return where the refused records of a batch are."""
    partitions, offsets = batch.partitions[rejects.index], batch.offsets[rejects.index]
    return Places.of(zip(partitions.tolist(), offsets.tolist(), strict=True))


def _read_range(
    open_consumer: Callable[[], StreamConsumer],
    start: Offsets,
    end: Offsets,
    *,
    clock: Clock,
    topic_id: str | None = None,
    epochs: PartitionEpochs = _NO_EPOCHS,
    retry_budget_s: float = 60.0,
) -> Content:
    """Read again exactly the records in `[start, end)`, with transaction markers and gaps at its end: a range
    is complete once the position has passed them.

    `topic_id`: of the topic in which the offsets count, if it is known; `epochs`: of what was read up to the
    end. Raises Stopped where the topic holds them no more; NotFound where the broker does not know it;
    Unavailable when the broker does not give them in time: try again.
    """
    wanted = {partition: at for partition, at in start.items() if at < end[partition]}
    if not wanted:
        return content_of([])
    consumer = open_consumer()
    try:
        consumer.assign(wanted)
        deadline_s = clock.monotonic_s() + retry_budget_s
        batches: list[Batch] = []
        done: set[int] = set()
        while len(done) < len(wanted):
            batch = consumer.poll(_POLL_RECORDS, _POLL_S)
            if len(batch):
                batches.append(batch)
            position = consumer.position()
            reached = {partition for partition in wanted if position[partition] >= end[partition]} - done
            if reached:
                done |= reached
                consumer.pause(reached)  # else a busy partition would be read far beyond its end
            elif not len(batch) and clock.monotonic_s() > deadline_s:
                raise Unavailable(
                    f"{consumer.topic} does not give a recorded range",
                    expected=f"offsets up to {end}",
                    found=f"position {position}; {consumer.broker_error or 'no error is known'}",
                )
        _check_topic(consumer, topic_id, epochs)
        return content_of(batches, end)
    except OffsetsGone as error:
        _check_topic(consumer, topic_id, epochs)
        raise Stopped(
            StopCause.RANGE_GONE,
            f"{consumer.topic} partition {error.partition} no longer holds a batch that is not loaded yet",
            expected=f"offsets {start.get(error.partition)} to {end.get(error.partition)}",
            found=f"{error.start} to {error.end}",
            action="what is lost is lost: `rtolap loader reset --go-on` goes on from what the topic holds; "
            "it takes `--abandon` where the batch was sent",
        ) from error
    finally:
        consumer.close()


def _check_topic(consumer: StreamConsumer, topic_id: str | None, epochs: PartitionEpochs) -> None:
    """Raise Stopped unless what was read is of the topic, and of the log, that the range was recorded in."""
    check = TruncationCheck(consumer.topic, consumer.epoch_ends, action=TRUNCATED_ACTION)
    try:
        if topic_id is not None:
            TopicIdentity(
                consumer.topic, consumer.topic_id, action=RECREATED_ACTION, known=topic_id
            ).confirm()
        check.check(epochs)
    except TopicRecreated as error:
        raise recreated(error) from error
    except LogTruncated as error:
        raise truncated(error) from error

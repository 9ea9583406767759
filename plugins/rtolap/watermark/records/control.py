"""Control records on their way: at most one waits per partition, so an outage does not pile them up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from rtolap.base.errors import RtolapError, Unavailable
from rtolap.kafka.interfaces import OutRecord, StreamProducer
from rtolap.watermark.records.statement import Statement, control_record

log = logging.getLogger(__name__)


class ControlRecords:
    """The control records of one producer and topic. `problem`: what keeps them from the log; None if
    nothing."""

    def __init__(self, producer: StreamProducer, topic: str, field: str | None) -> None:
        self.problem: str | None = None
        self._producer = producer
        self._topic = topic
        self._field = field
        self._lock = threading.Lock()  # of the set: deliveries are reported on any thread
        self._waiting: set[int] = set()

    def send(self, statement: Statement, partitions: Iterable[int], *, even_behind: bool = False) -> None:
        """To each partition that holds the last one, or to all. Raises what queueing raises."""
        with self._lock:
            behind = set(self._waiting)
        if behind:
            self.met(
                Unavailable(
                    f"{self._topic} has not acknowledged the last control records",
                    found=f"partitions {sorted(behind)[:10]}",
                    action="they are sent again when it has",
                )
            )
        for partition in partitions:
            if partition not in behind or even_behind:
                self._queue(control_record(statement, partition, self._field))
        if not behind:
            self.problem = None

    def met(self, error: Exception) -> None:
        text = str(error) if isinstance(error, RtolapError) else f"{type(error).__name__}: {error}"
        if text != self.problem:
            log.warning("control records wait: %s", text)
        self.problem = text

    def _queue(self, record: OutRecord) -> None:
        assert record.partition is not None, "a control record has its partition"
        with self._lock:
            self._waiting.add(record.partition)
        try:
            self._producer.produce(self._topic, [record], delivered=self._told)
        except RtolapError:
            with self._lock:
                self._waiting.discard(record.partition)
            raise

    def _told(self, record: OutRecord, error: RtolapError | None) -> None:
        with self._lock:
            if record.partition is not None:
                self._waiting.discard(record.partition)
        if error is not None:
            self.met(error)

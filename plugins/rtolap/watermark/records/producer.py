"""The upstream end: a producer whose records carry its application's global low watermark.

    producer = WatermarkedProducer(
        KafkaProducer(bootstrap), KafkaAdmin(bootstrap), "results",
        name="store-0", generation=start_ms, watermark_ms=client.global_watermark,
    )
    producer.produce("results", records, event_ms=times)
    client.set_oldest_work("store", "store-0", 0, producer.oldest_unacknowledged_ms())

A control record a second goes to every partition, idle ones and new ones too; at most one waits per
partition, so an outage does not pile them up. Control records and data go through one idempotent producer:
what is queued later lies later in its partition, over retries too. The watermark is taken and the record
queued under one lock, so what stands in a partition never falls.

Why a statement is true: the watermark W that the server has published is at most the oldest work of every
unit. A sink that lets work go once its records are acknowledged therefore has every record of an event before
W in the log before it can have read W. One that lets it go once the records are queued has them before W
in every partition all the same, unless it dies with its queue. `late_records` counts what the application
sends although its own watermark is beyond it: events that came after their window, as its rule allows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from rtolap.base.errors import DefinitionError, Refused, RtolapError, Unavailable
from rtolap.kafka.interfaces import Delivered, OutRecord, StreamProducer, TopicAdmin
from rtolap.watermark.records.statement import Kind, Statement, check_producer, control_record, stating

log = logging.getLogger(__name__)

EVERY_S = 1.0
END_TIMEOUT_S = 10.0


class _ControlRecords:
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
        """Send a statement to each partition that holds the last one, or to all. Raises what queueing
        raises."""
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
            self._producer.produce(self._topic, [record], delivered=self._on_delivery)
        except RtolapError:
            with self._lock:
                self._waiting.discard(record.partition)
            raise

    def _on_delivery(self, record: OutRecord, error: RtolapError | None) -> None:
        with self._lock:
            if record.partition is not None:
                self._waiting.discard(record.partition)
        if error is not None:
            self.met(error)


class WatermarkedProducer:
    """StreamProducer of one topic. Thread-safe; closes the producer and the admin that it is given.

    `generation` grows with each start of the producer of that `name` (a start's wall clock in ms will do).
    `watermark_ms` tells the application's global low watermark without waiting. With `field` it stands in
    that field of JSON values instead of in a header. `every_s` None: nothing runs beside, call
    `state_watermark`.
    """

    def __init__(
        self,
        producer: StreamProducer,
        admin: TopicAdmin,
        topic: str,
        *,
        name: str,
        generation: int,
        watermark_ms: Callable[[], int | None],
        field: str | None = None,
        every_s: float | None = EVERY_S,
    ) -> None:
        check_producer(name, generation)
        self.name, self.generation = name, generation
        self.late_records = 0
        self._producer = producer
        self._admin = admin
        self._topic = topic
        self._watermark_ms = watermark_ms
        self._field = field
        self._lock = threading.RLock()  # of the order in the log; a `delivered` may produce
        self._stated_ms: int | None = None
        self._control = _ControlRecords(producer, topic, field)
        self._unacknowledged = Unacknowledged()
        self._refused: RtolapError | None = None
        self._closed = False
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(every_s,), name=f"watermarks-of-{name}", daemon=True
        )
        if every_s is not None:
            self._thread.start()

    @property
    def problem(self) -> str | None:
        """Return what keeps control records from the log; None if nothing."""
        return self._control.problem

    # -- records ----------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        records: Sequence[OutRecord],
        *,
        delivered: Delivered | None = None,
        event_ms: Sequence[int] | None = None,
    ) -> None:
        """Produce as StreamProducer does. `event_ms`: event times of the records, for
        `oldest_unacknowledged_ms`; they count there from before they are queued until they are acknowledged
        or refused.

        Refused: its end is stated, or a value cannot carry the field; then nothing was queued.
        """
        if topic != self._topic:
            raise DefinitionError(
                "a producer states watermarks in one topic", expected=self._topic, found=topic
            )
        if event_ms is not None and len(event_ms) != len(records):
            raise DefinitionError(
                "one event time per record is expected", expected=len(records), found=len(event_ms)
            )
        with self._lock:
            if self._closed:
                raise Refused(f"producer {self.name} has stated its end", action="start a new generation")
            text = self._statement("data").encode()
            stamped = stating(records, text, self._field)
            if event_ms and self._stated_ms is not None:
                stated_ms = self._stated_ms
                self.late_records += sum(one_ms < stated_ms for one_ms in event_ms)
            self._queue(stamped, records, delivered, event_ms)

    def oldest_unacknowledged_ms(self) -> int | None:
        """Return the smallest event time of what is not in the log yet; None if everything is."""
        return self._unacknowledged.oldest_ms()

    def poll(self) -> None:
        self._producer.poll()

    def flush(self, timeout_s: float) -> None:
        self._producer.flush(timeout_s)
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused

    def _queue(
        self,
        stamped: Sequence[OutRecord],
        given: Sequence[OutRecord],
        delivered: Delivered | None,
        event_ms: Sequence[int] | None,
    ) -> None:
        """Queue records one by one where they are counted: those behind one that cannot be queued are never
        reported."""
        if not event_ms and delivered is None:
            self._producer.produce(self._topic, stamped)
            return
        landed = self._unacknowledged.depart(event_ms) if event_ms else None
        for at, record in enumerate(stamped):

            def on_delivery(_: OutRecord, error: RtolapError | None, original: OutRecord = given[at]) -> None:
                if landed is not None:
                    landed(1)
                if delivered is not None:
                    delivered(original, error)
                elif error is not None:
                    self._refused = error

            try:
                self._producer.produce(self._topic, [record], delivered=on_delivery)
            except RtolapError:
                if landed is not None:
                    landed(len(stamped) - at)
                raise

    # -- statements -------------------------------------------------------------------------------------

    def state_watermark(self) -> None:
        """Send a control record to every partition of the topic. Raises what the broker answers."""
        partitions = self._admin.partitions(self._topic)
        with self._lock:
            if not self._closed:
                self._control.send(self._statement("control"), partitions)
        self._producer.poll()

    def end(self, timeout_s: float = END_TIMEOUT_S) -> None:
        """State in every partition that nothing more comes of this generation; then nothing can be produced.
        Returns when everything is in the log; raises Unavailable otherwise."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        partitions = self._admin.partitions(self._topic)
        with self._lock:
            if not self._closed:
                self._closed = True
                self._control.send(self._statement("end"), partitions, even_behind=True)
        self.flush(timeout_s)

    def close(self) -> None:
        """Send its end, where the broker takes it, and close what it was given."""
        try:
            self.end()
        except RtolapError as error:
            log.warning("producer %s closes without having stated its end: %s", self.name, error)
        self._producer.close()
        self._admin.close()

    def _statement(self, kind: Kind) -> Statement:
        now_ms = self._watermark_ms()
        if now_ms is not None and (self._stated_ms is None or now_ms > self._stated_ms):
            self._stated_ms = now_ms
        return Statement(kind, self.generation, self._stated_ms, self.name)

    def _run(self, every_s: float) -> None:
        while not self._stop.wait(every_s):
            try:
                self.state_watermark()
            except RtolapError as error:
                self._control.met(error)
            except Exception as error:  # a bug here must not look like a quiet stream
                log.exception("the control records of %s failed", self.name)
                self._control.met(error)


class Unacknowledged:
    """Records that are not acknowledged yet. It is thread-safe. The producer's own queue bounds it: one entry
    per call with records in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count()
        self._flights: dict[int, list[int]] = {}  # [oldest event time, records that have not landed]

    def depart(self, event_ms: Sequence[int]) -> Callable[[int], None]:
        """Add one or more records. Call the returned function with how many of them were acknowledged, as
        they are."""
        number = next(self._numbers)
        with self._lock:
            self._flights[number] = [min(event_ms), len(event_ms)]

        def landed(records: int) -> None:
            with self._lock:
                flight = self._flights[number]
                flight[1] -= records
                if not flight[1]:
                    del self._flights[number]

        return landed

    def oldest_ms(self) -> int | None:
        with self._lock:
            return min((oldest_ms for oldest_ms, _ in self._flights.values()), default=None)

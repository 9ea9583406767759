"""The send role: brings one batch into the table, one attempt at a time.

1. ask what the label's state is, if a request may have been made; `states.ACTIONS` says what follows
2. read the range again, if it is not at hand; it must read as it did
3. decode; keep what is refused          crash: kept twice, under one key
4. note the request (`mark_sent`)        crash: recovery takes it for made, and asks
5. the request                           crash, no answer, failure: the label's state decides
6. commit the second phase, if there is one
7. note that it is loaded                crash: recovery asks, and notes it then
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

import numpy as np

from rtolap.base.clock import Clock
from rtolap.base.errors import Refused, RtolapError, Unavailable
from rtolap.ledger.offsets import Loaded, OffsetsRecord, OffsetsRecords
from rtolap.loader.columns import Columns
from rtolap.loader.content import Content
from rtolap.loader.decode import Decoded, RecordDecoder
from rtolap.loader.encode import HEADERS, encode
from rtolap.loader.ownership import Ownership
from rtolap.loader.progress import Progress
from rtolap.loader.range_reader import read_range
from rtolap.loader.rejects import RejectBox
from rtolap.loader.sink import Sink
from rtolap.loader.states import ACTIONS, Action, StopCause, Stopped, Verdict, sent_when, verdict
from rtolap.loader.target import Target
from rtolap.loader.window import Pending
from rtolap.model.loader import Loader
from rtolap.stream.consumer import Batch, StreamConsumer
from rtolap.stream.rejects import Rejects
from rtolap.wire.stream_load import LoadAnswer, SendOptions

T = TypeVar("T")

FAILS_MAX = 8  # of one batch, and for so long: without its nodes a door answers at once, and says no
FAILING_S = 120.0
PATIENCE_S = 1_800.0
_STUCK_FACTOR = 3
FILTERED_BY_SINK = "filtered_by_sink"
_FILTERED = "too many filtered rows"


class Outcome(StrEnum):
    SETTLED = "SETTLED"
    AGAIN = "AGAIN"


class Trouble(Exception):
    """The sink refused a call, or did not answer (`silent`)."""

    def __init__(self, error: RtolapError) -> None:
        super().__init__(str(error))
        self.silent = isinstance(error, Unavailable)


class Settler:
    """Of one thread, because the decoder is. Raises Stopped; NotLeader and the ledger's errors as they are:
    after those the same attempt is due again."""

    def __init__(
        self,
        loader: Loader,
        sink: Sink,
        records: OffsetsRecords,
        ownership: Ownership,
        columns: Columns,
        open_consumer: Callable[[], StreamConsumer],
        box: RejectBox,
        clock: Clock,
        progress: Progress,
        *,
        labels_kept: bool,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._loader = loader
        self._sink = sink
        self._records = records
        self._ownership = ownership
        self._columns = columns
        self._open_consumer = open_consumer
        self._box = box
        self._clock = clock
        self._progress = progress
        self._kept_ms = None if labels_kept else loader.sink.label_kept_ms
        self._patience_s = patience_s
        self._target: Target | None = None
        self._decoder: RecordDecoder | None = None

    def attempt(self, pending: Pending) -> Outcome:
        try:
            if pending.fails > pending.fails_seen:  # the columns may have changed: that would explain it
                self._of_sink(self._columns.refresh)
                pending.fails_seen = pending.fails
            outcome = self._asked(pending) if pending.must_ask else self._send(pending)
        except Trouble as trouble:
            self._progress.error(str(trouble))
            if trouble.silent:
                self._check_patience(pending, trouble)
            else:
                self._failed(pending, str(trouble))
            return Outcome.AGAIN
        pending.silent_since_s = None
        return outcome

    def _of_sink(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Stopped:
            raise
        except RtolapError as error:
            raise Trouble(error) from error

    def _asked(self, pending: Pending) -> Outcome:
        record = pending.record
        state = self._of_sink(lambda: self._sink.state(self._loader.database, record.label))
        now_ms = self._clock.now_ms()
        sent = sent_when(record.attempts, record.first_sent_at_ms, now_ms, self._kept_ms)
        action = ACTIONS[sent, state]
        if action is not Action.WAIT:
            pending.waiting_since_s = None
        match action:
            case Action.SEND:
                return self._send(pending)
            case Action.LOADED:
                return self._loaded(pending, Loaded(record.txn_id, record.row_count))
            case Action.COMMIT:
                return self._second_phase(pending, Loaded(record.txn_id, record.row_count))
            case Action.WAIT:
                return self._wait(pending)
            case Action.STOP_FOREIGN:
                raise Stopped(
                    StopCause.LABEL_FOREIGN,
                    f"label {record.label} is {state}, and nothing was ever sent under it",
                    action="another job of this name loads into the same database: rename one of them",
                )
            case Action.STOP_FORGOTTEN:
                raise Stopped(
                    StopCause.LABEL_FORGOTTEN,
                    f"the sink knows nothing of label {record.label}, and may have forgotten it",
                    found=f"sent {now_ms - (record.first_sent_at_ms or now_ms)} ms ago",
                    action="look whether its rows are in the table, then `rtolap loader reset --at` the "
                    "offsets behind or before it",
                )

    def _send(self, pending: Pending) -> Outcome:
        self._check_fails(pending)
        content = self._content(pending)
        decoded = self._decode(content)
        if len(decoded.rejects):
            self._keep(content, decoded)
        if not decoded.rows.num_rows:
            return self._loaded(pending, Loaded(None, 0, len(decoded.rejects)))
        body = encode(decoded.rows, self._loader.sink.format)
        pending.record = self._noted(pending, content)
        pending.must_ask = True
        options = self._options(content, decoded)
        two_phase = self._loader.sink.two_phase
        answer = self._of_sink(
            lambda: self._sink.load(
                self._loader.database,
                self._loader.table,
                pending.record.label,
                body,
                options,
                two_phase=two_phase,
            )
        )
        said = _told(answer, len(decoded.rejects), decoded.rows.num_rows)
        match verdict(answer, two_phase=two_phase):
            case Verdict.LOADED:
                return self._loaded(pending, said)
            case Verdict.COMMIT:
                return self._second_phase(pending, said)
            case Verdict.ASK:
                if answer.status == "Fail":
                    self._progress.error(answer.message)
                    self._failed(pending, _words(answer))
                return Outcome.AGAIN

    def _content(self, pending: Pending) -> Content:
        record = pending.record
        if pending.content is None:
            pending.content = read_range(
                self._open_consumer, record.start_offsets, record.end_offsets, clock=self._clock
            )
        return pending.content

    def _noted(self, pending: Pending, content: Content) -> OffsetsRecord:
        try:
            return self._records.mark_sent(self._ownership.lease, pending.sequence, content.sha256)
        except Refused as error:
            raise Stopped(
                StopCause.RANGE_CHANGED,
                f"batch {pending.sequence} does not read as it did when it was first sent",
                found=str(error),
                action="was the topic compacted or created anew? `rtolap loader reset` starts over",
            ) from error

    def _decode(self, content: Content) -> Decoded:
        target = self._columns.target
        if self._decoder is None or target != self._target:
            self._decoder = RecordDecoder(
                target,
                record_bytes_max=self._loader.record_bytes_max,
                unknown_columns=self._loader.unknown_columns,
            )
            self._target = target
        decoded = self._decoder.decode(content.batch.values)
        refused, total = len(decoded.rejects), len(content.batch)
        if refused * 100 > self._loader.rejects.tolerance_percent * total:
            first = f"{decoded.rejects.reason[0]}: {decoded.rejects.detail[0]}"
            self._keep(content, decoded)
            raise Stopped(
                StopCause.TOO_MANY_REJECTS,
                f"{refused} of {total} records of a batch are refused",
                expected=f"at most {self._loader.rejects.tolerance_percent} %",
                found=first,
                action="mend the columns or raise the tolerance, and start the loader again",
            )
        return decoded

    def _keep(self, content: Content, decoded: Decoded) -> None:
        self._keep_letters(content.batch, decoded.rejects)

    def _keep_letters(self, batch: Batch, rejects: Rejects) -> None:
        try:
            self._box.keep(self._loader.topic, batch, rejects)
        except Unavailable as error:
            raise Trouble(error) from error
        except (RtolapError, OSError) as error:
            raise Stopped(StopCause.REJECTS_NOT_KEPT, str(error)) from error

    def _options(self, content: Content, decoded: Decoded) -> SendOptions:
        """What is left of the tolerance is the sink's: of all records, as a share of the rows it gets."""
        allowed = len(content.batch) * self._loader.rejects.tolerance_percent / 100 - len(decoded.rejects)
        sink = self._loader.sink
        return SendOptions(
            format=sink.format,
            columns=tuple(decoded.rows.schema.names),
            timeout_s=sink.timeout_ms // 1000,
            max_filter_ratio=max(0.0, allowed) / decoded.rows.num_rows,
            keep_label=self._kept_ms is None,
            headers=HEADERS[sink.format],
        )

    def _second_phase(self, pending: Pending, said: Loaded) -> Outcome:
        label = pending.record.label
        answer = self._of_sink(lambda: self._sink.commit_label(self._loader.database, label))
        if answer.status != "Success":
            return Outcome.AGAIN  # it may be committed already: its state tells
        return self._loaded(pending, said)

    def _loaded(self, pending: Pending, said: Loaded) -> Outcome:
        if said.error_url is not None:
            self._keep_filtered(pending, said.error_url)
        pending.record = self._records.mark_loaded(self._ownership.lease, pending.sequence, said)
        self._progress.loaded(pending, said, self._clock)
        self._progress.times.settled(pending.sequence, pending.content.latest_ms if pending.content else {})
        pending.content = None
        return Outcome.SETTLED

    def _keep_filtered(self, pending: Pending, url: str) -> None:
        """What the sink rejected, as one letter of the batch; its address stays in the record in any case."""
        try:
            text = self._sink.error_log(url)
        except RtolapError as error:
            self._progress.error(f"the rejected rows of batch {pending.sequence} are only at {url}: {error}")
            return
        batch = Batch([text.encode()], np.array([-1], np.int32), np.array([pending.sequence], np.int64))
        rejects = Rejects(
            np.array([0], np.int64), [FILTERED_BY_SINK], [f"label {pending.record.label}: {url}"]
        )
        self._keep_letters(batch, rejects)

    def _wait(self, pending: Pending) -> Outcome:
        now_s = self._clock.monotonic_s()
        if pending.waiting_since_s is None:
            pending.waiting_since_s = now_s
        since_s = pending.waiting_since_s
        if (now_s - since_s) * 1000 > _STUCK_FACTOR * self._loader.sink.timeout_ms:
            raise Stopped(
                StopCause.STUCK,
                f"label {pending.record.label} is still in PREPARE",
                expected=f"an end within {self._loader.sink.timeout_ms} ms",
                action="look at the sink, then start the loader again",
            )
        return Outcome.AGAIN

    def _failed(self, pending: Pending, words: str) -> None:
        """The next attempt asks what became of this one."""
        pending.fails += 1
        pending.last_fail = words
        if pending.failing_since_s is None:
            pending.failing_since_s = self._clock.monotonic_s()

    def _check_fails(self, pending: Pending) -> None:
        """Called when it is certain that the batch is not in the table."""
        if pending.failing_since_s is None:
            return
        failing_s = self._clock.monotonic_s() - pending.failing_since_s
        filtered = _FILTERED in pending.last_fail.lower()
        if filtered or (pending.fails >= FAILS_MAX and failing_s >= FAILING_S):
            cause = StopCause.TOO_MANY_FILTERED if filtered else StopCause.SINK_REFUSES
            raise Stopped(
                cause,
                f"batch {pending.sequence} cannot be loaded",
                found=pending.last_fail,
                action="mend the table, the columns or the tolerance, and start the loader again",
            )

    def _check_patience(self, pending: Pending, trouble: Trouble) -> None:
        now_s = self._clock.monotonic_s()
        if pending.silent_since_s is None:
            pending.silent_since_s = now_s
        since_s = pending.silent_since_s
        if now_s - since_s > self._patience_s:
            raise Stopped(
                StopCause.SINK_UNAVAILABLE,
                f"no answer for {now_s - since_s:.0f} s",
                found=str(trouble),
                action="start the loader again when the sink is back",
            )


def _told(answer: LoadAnswer, refused: int, sent: int) -> Loaded:
    """As it is kept. A label that was taken before tells no numbers: all rows that were sent are in."""
    txn_id = answer.txn_id if answer.txn_id >= 0 else None
    url = answer.error_url if isinstance(answer.error_url, str) else None
    if not answer.is_durable:
        return Loaded(txn_id, sent, refused, url)
    return Loaded(txn_id, answer.number_loaded_rows, refused + answer.number_filtered_rows, url)


def _words(answer: LoadAnswer) -> str:
    url = answer.error_url if isinstance(answer.error_url, str) else ""
    return f"{answer.message}; rejected rows: {url}" if url else answer.message

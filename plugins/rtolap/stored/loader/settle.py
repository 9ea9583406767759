"""The send role: brings one batch into the table, one attempt at a time.

1. request the label's state; `states.ACTIONS` says what follows
2. read the range again, if it is not at hand; it must read as it did
3. decode; store refused records         crash: stored twice, under one key
4. note the request (`mark_sent`)        crash: recovery takes it for made, and does 1
5. the request                           crash, no answer, failure: the label's state decides
6. commit the second phase, if there is one
7. note that it is loaded                crash: recovery does 1, and notes it then

In a sink whose requests may join, the next transaction of an aborted label is begun only once no commit of
an earlier attempt can come any more (`Pending.commit_until_s`).

In a sink that forgets labels, a marker may come before 4 (see `label_retention`), and 7 waits until the batch
is visible: labels are dropped in the order in which that happens, and a witness has to be one that has
finished.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from rtolap.base.errors import Refused, RtolapError, Unavailable
from rtolap.events.rejects import SentBatch
from rtolap.model.load_headers import declared_headers
from rtolap.model.loader import Loader
from rtolap.protocols.stream_load.messages import LoadAnswer, LoadState, SendOptions
from rtolap.stored.loader.job import JobResources, Ownership
from rtolap.stored.loader.job_progress import JobProgress
from rtolap.stored.loader.label_retention import marker_of, needs_marker, sent_when
from rtolap.stored.loader.preparing import Preparer, places_refused
from rtolap.stored.loader.records.decode import Decoded
from rtolap.stored.loader.records.encode import encode, format_headers
from rtolap.stored.loader.states import Action, Sent, StopCause, Stopped, Verdict, action_for, verdict
from rtolap.stored.loader.target import SinkColumns
from rtolap.stored.loader.visible import Visible
from rtolap.stored.loader.window import COMMIT_LATE_S, SILENT_S, BatchRetryBudget, Pending, SinkError
from rtolap.stored.metastore.dead_letter_sets import BatchRefusal
from rtolap.stored.metastore.offsets import Loaded, OffsetsRecord

T = TypeVar("T")

LOG_TRIES_MAX = 5


class AttemptOutcome(StrEnum):
    SETTLED = "SETTLED"
    AGAIN = "AGAIN"


class Settler:
    """Settles batches, in one thread, because the decoder is for one.

    Raises Stopped. NotLeader and the ledger's errors pass through: then the same attempt is due again.
    """

    def __init__(
        self,
        loader: Loader,
        resources: JobResources,
        ownership: Ownership,
        columns: SinkColumns,
        progress: JobProgress,
        visible: Visible,
        *,
        labels_retained: bool,
        share: int | None = None,
        silent_s: float = SILENT_S,
    ) -> None:
        self._loader = loader
        self._sink, self._records, self._clock = resources.sink, resources.records, resources.clock
        self._ownership = ownership
        self._columns = columns
        self._progress = progress
        self._visible = visible
        self._labels_retained = labels_retained
        self._share = share
        self._retry_budget = BatchRetryBudget(
            self._clock, timeout_ms=loader.sink.timeout_ms, silent_s=silent_s
        )
        self._preparer = Preparer(
            loader,
            columns,
            lambda: resources.open_consumer(loader),
            resources.box,
            resources.clock,
            resources.registries,
        )

    def attempt(self, pending: Pending) -> AttemptOutcome:
        try:
            if pending.fails > pending.fails_seen:  # the columns may have changed: that would explain it
                self._of_sink(self._columns.refresh)
                pending.fails_seen = pending.fails
            outcome = self._resolve(pending) if pending.must_ask else self._send(pending)
        except SinkError as error:
            self._progress.error(str(error))
            self._retry_budget.note_error(pending, error)
            return AttemptOutcome.AGAIN
        pending.silent_since_s = None
        return outcome

    def _of_sink(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Stopped:
            raise
        except RtolapError as error:
            raise SinkError(error) from error

    def _resolve(self, pending: Pending) -> AttemptOutcome:
        record = pending.record
        state = self._state(record.label)
        if state is LoadState.UNKNOWN and pending.is_durable:
            state = LoadState.VISIBLE  # only a finished label is dropped, and this one was committed
        sent = self._sent(record, state)
        counted = pending.said is not None or not self._sink.requests_may_join
        action = action_for(sent, state, counted=counted)
        if action is not Action.WAIT:
            pending.waiting_since_s = None
        match action:
            case Action.SEND:
                if state is LoadState.ABORTED and self._waits_for_commits(pending):
                    return AttemptOutcome.AGAIN
                return self._send(pending)
            case Action.LOADED:
                pending.is_durable = True
                if state is not LoadState.VISIBLE and not self._labels_retained:
                    self._progress.error(f"label {record.label} is {state}, and not visible yet")
                    return AttemptOutcome.AGAIN
                return self._loaded(pending, pending.said or Loaded(record.txn_id, record.row_count))
            case Action.COMMIT:
                self._retry_budget.before_trying(pending)
                return self._second_phase(pending, pending.said or Loaded(record.txn_id, record.row_count))
            case Action.ROLL_BACK:
                self._retry_budget.before_trying(pending)
                self._of_sink(lambda: self._sink.roll_back(self._loader.database, record.label))
                return AttemptOutcome.AGAIN
            case Action.WAIT:
                self._retry_budget.in_prepare(pending)
                return AttemptOutcome.AGAIN
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
                    expected=f"a label younger than {self._loader.sink.label_kept_ms} ms, among the last "
                    f"{self._loader.sink.label_kept_count} of the database",
                    found=f"sent {self._clock.now_ms() - (record.first_sent_at_ms or 0)} ms ago, offsets "
                    f"{_ranges(record)}",
                    action="look whether its rows are in the table, then `rtolap loader settle "
                    f"{self._loader.name} {record.sequence_id}{self._share_option()} --loaded` or "
                    "`--not-loaded`, and start it",
                )

    def _share_option(self) -> str:
        return "" if self._share is None else f" --share {self._share}"

    def _state(self, label: str) -> LoadState:
        return self._of_sink(lambda: self._sink.state(self._loader.database, label))

    def _sent(self, record: OffsetsRecord, state: LoadState) -> Sent:
        if record.attempts == 0:
            return Sent.NEVER
        if self._labels_retained or state is not LoadState.UNKNOWN:
            return Sent.LATELY  # the label is remembered
        records = self._records.all(self._ownership.lease.name)
        return sent_when(record, records, self._clock.now_ms(), self._loader.sink, self._state)

    def _send(self, pending: Pending) -> AttemptOutcome:
        self._retry_budget.before_trying(pending)
        content = self._preparer.content(pending)
        sha256 = content.sha256
        decoded = self._preparer.rows(content, SentBatch(pending.record.label, sha256))
        refused = BatchRefusal(sha256, places_refused(content.batch, decoded.rejects))
        if not decoded.rows.num_rows:
            return self._loaded(pending, Loaded(None, 0, len(decoded.rejects)), refused)
        body = encode(decoded.rows, self._loader.sink.format)
        if not self._labels_retained:
            self._mark(pending.record)
        options = self._options(decoded)  # before the note: who stands still behind it, sends in vain
        pending.record = self._noted(pending, refused)
        pending.must_ask = True
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
        sent = decoded.rows.num_rows if options.max_filter_ratio == 0 else None
        loaded = _as_recorded(answer, len(decoded.rejects), sent)
        match verdict(answer, two_phase=two_phase):
            case Verdict.LOADED:
                pending.said = loaded
                if answer.status == "Success":  # else it is committed, and no more is known
                    self._visible.note_visible(pending.sequence)
                elif not self._labels_retained:
                    pending.is_durable = True
                    return AttemptOutcome.AGAIN
                return self._loaded(pending, loaded, refused, taken=answer.is_durable)
            case Verdict.COMMIT:
                pending.said = loaded
                return self._second_phase(pending, loaded)
            case Verdict.ASK:
                if answer.status == "Fail":
                    self._progress.error(answer.message)
                    self._retry_budget.failed(pending, _words(answer))
                return AttemptOutcome.AGAIN

    def _mark(self, record: OffsetsRecord) -> None:
        """See to it that the sink knows a label of this job that has finished before the first request that
        this owner makes.
        """
        lease = self._ownership.lease
        if record.attempts and record.epoch == lease.epoch:
            return
        if not needs_marker(record, self._records.all(lease.name), self._clock.now_ms()):
            return
        loader, marker = self._loader, marker_of(record.label, lease.epoch)
        if not self._of_sink(lambda: self._sink.mark(loader.database, loader.table, marker)):
            self._progress.error(f"the sink does not remember label {marker}")

    def _noted(self, pending: Pending, refused: BatchRefusal) -> OffsetsRecord:
        try:
            return self._records.mark_sent(
                self._ownership.lease, pending.sequence, refused.sha256, refused.every
            )
        except Refused as error:
            raise Stopped(
                StopCause.RANGE_CHANGED,
                f"batch {pending.sequence} does not read as it did when it was first sent",
                found=str(error),
                action="was the topic compacted or recreated? `rtolap loader reset --abandon` starts over",
            ) from error

    def _options(self, decoded: Decoded) -> SendOptions:
        """Return the options of a request. The sink gets what is left of the tolerance: of all records, as a
        share of the rows it gets.
        """
        allowed = decoded.events * self._loader.rejects.tolerance_percent / 100 - len(decoded.rejects)
        sink = self._loader.sink
        return SendOptions(
            format=sink.format,
            columns=tuple(decoded.rows.schema.names),
            timeout_s=sink.timeout_ms // 1000,
            max_filter_ratio=max(0.0, allowed) / decoded.rows.num_rows,
            keep_label=self._labels_retained,
            not_after_ms=self._clock.now_ms() + sink.timeout_ms,
            rows=decoded.rows.num_rows,
            headers=format_headers(sink.target, sink.format) | declared_headers(self._loader.delivery),
        )

    def _waits_for_commits(self, pending: Pending) -> bool:
        """Return True while a second phase of an earlier attempt may come, in a sink where it would commit
        the next transaction of the label, before anybody has counted its rows."""
        if not (self._sink.requests_may_join and self._loader.sink.two_phase):
            return False
        left_s = pending.commit_until_s - self._clock.monotonic_s()
        if left_s > 0:
            self._progress.error(
                f"batch {pending.sequence} waits for {left_s:.0f} s: a commit of an earlier attempt may come"
            )
        return left_s > 0

    def _second_phase(self, pending: Pending, loaded: Loaded) -> AttemptOutcome:
        label = pending.record.label
        if self._sink.requests_may_join:
            self._ownership.renew()  # who stood still, and lost the job, would commit what another one loads
            pending.commit_until_s = self._clock.monotonic_s() + COMMIT_LATE_S
        answer = self._of_sink(lambda: self._sink.commit_label(self._loader.database, label))
        if answer.status != "Success":  # it may be committed already: its state tells
            self._progress.error(answer.msg)
            self._retry_budget.failed(pending, answer.msg)
            return AttemptOutcome.AGAIN
        if not self._labels_retained:
            pending.is_durable = True
            return AttemptOutcome.AGAIN
        return self._loaded(pending, loaded)

    def _loaded(
        self,
        pending: Pending,
        loaded: Loaded,
        refused: BatchRefusal | None = None,
        *,
        taken: bool = False,
    ) -> AttemptOutcome:
        """Note a batch as loaded. `refused`: what this attempt leaves out, where it has decoded the records;
        `taken`: it was the request of this attempt that was taken."""
        if loaded.error_url is not None:
            self._keep_filtered(pending, loaded.error_url)
        elif loaded.row_count is None and self._loader.rejects.tolerance_percent:
            self._progress.error(self._preparer.keep_unknown(pending))
        pending.record = self._records.mark_loaded(
            self._ownership.lease,
            pending.sequence,
            loaded,
            job_id=self._loader.name,
            refused=refused,
            taken=taken,
        )
        self._progress.loaded(pending, loaded, self._clock)
        self._progress.times.settled(pending.sequence, pending.content.latest_ms if pending.content else {})
        pending.content = None
        return AttemptOutcome.SETTLED

    def _keep_filtered(self, pending: Pending, url: str) -> None:
        """Store the rows that the sink filtered. Their address stays in the record, even if they are lost."""
        try:
            text = self._sink.error_log(url)
        except RtolapError as error:
            pending.log_tries += 1
            if isinstance(error, Unavailable) and pending.log_tries < LOG_TRIES_MAX:
                raise SinkError(error) from error
            self._progress.error(f"the rejected rows of batch {pending.sequence} are only at {url}: {error}")
            return
        self._preparer.keep_filtered(pending, url, text)


def _as_recorded(answer: LoadAnswer, refused: int, sent: int | None) -> Loaded:
    """Return the record of a response.

    A response for a label that was used before has no numbers: then all `sent` rows are loaded, unless the
    sink could filter some (None).
    """
    txn_id = answer.txn_id if answer.txn_id >= 0 else None
    url = answer.error_url if isinstance(answer.error_url, str) else None
    if not answer.is_durable:
        return Loaded(txn_id, sent, refused, url)
    return Loaded(txn_id, answer.number_loaded_rows, refused + answer.number_filtered_rows, url)


def _ranges(record: OffsetsRecord) -> str:
    starts = record.start_offsets.items()
    return ", ".join(
        f"{partition}: {start} to {record.end_offsets[partition]}" for partition, start in starts
    )


def _words(answer: LoadAnswer) -> str:
    url = answer.error_url if isinstance(answer.error_url, str) else ""
    return f"{answer.message}; rejected rows: {url}" if url else answer.message

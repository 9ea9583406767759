"""A job, or a share of one, under its owner: the parts that its roles need, and its beginning.

1. take the lease: the epoch rises, and no write of an earlier owner stands any more
2. the table's columns
3. no record yet: the origin is recorded, an empty batch 0 that is loaded at once, so that where the job
   began is known before anything is read
4. records that are not loaded go to the send role, which looks each up, the oldest first; nothing is read
   before they are settled
5. the next label must be unknown to the sink, or somebody else uses this job's labels
6. reading goes on where the last record ends; a partition that is new is read from its beginning
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from rtolap.base.errors import (
    CommitConflict,
    CommitUnknown,
    DefinitionError,
    Forbidden,
    NotFound,
    RtolapError,
    Unauthorized,
    Unavailable,
)
from rtolap.kafka.interfaces import LogTruncated, StreamConsumer, TopicLog
from rtolap.kafka.truncation import TruncationCheck
from rtolap.model.loader import Loader
from rtolap.model.offsets import Offsets
from rtolap.protocols.stream_load.messages import LoadState
from rtolap.stored.loader.commit import Committer
from rtolap.stored.loader.cut_batches import take_back
from rtolap.stored.loader.job import (
    WHOLE,
    JobConfig,
    JobResources,
    Ownership,
    Portion,
    label_of,
    read_config,
)
from rtolap.stored.loader.job_progress import JobProgress
from rtolap.stored.loader.settle import AttemptOutcome, Settler
from rtolap.stored.loader.source import BatchSource
from rtolap.stored.loader.states import TRUNCATED_ACTION, StopCause, Stopped
from rtolap.stored.loader.target import SinkColumns
from rtolap.stored.loader.visible import Visible
from rtolap.stored.loader.window import COMMIT_LATE_S, Pending, Window
from rtolap.stored.metastore.load_jobs import LoadJob, LoadJobEvent, LoadJobs, LoadJobState
from rtolap.stored.metastore.offsets import Loaded, OffsetsRecord

T = TypeVar("T")

ORIGIN = 0


class LoadJobRun:
    """Made by `begin`; its roles may each be driven by a thread of their own."""

    def __init__(
        self,
        job: LoadJob,
        config: JobConfig,
        ownership: Ownership,
        resources: JobResources,
        portion: Portion = WHOLE,
    ) -> None:
        sink, clock, records = resources.sink, resources.clock, resources.records
        self.job = job
        self.portion = portion
        self.loader: Loader = config.loader
        self.ownership = ownership
        self.progress = JobProgress()
        self.columns = SinkColumns(sink, self.loader)
        self.clock = clock
        self._config = config
        self._jobs = resources.jobs
        self._records = records
        self._sink = sink
        self._resources = resources
        _of_sink(self.columns.refresh)
        self._labels_retained = _of_sink(sink.keeps_labels)
        self.window = Window(
            self.loader.parallel + 1, ordered=lambda: self.columns.target.ordered, now_s=clock.monotonic_s
        )
        self.visible = Visible(self.loader, ownership.lease.name, records, sink)
        self.committer = Committer(
            self.loader,
            records,
            ownership,
            sink,
            labels_retained=self._labels_retained,
            visible=self.visible,
            left=config.all_left if portion.number in (None, 0) else (),
        )
        self.source = self._begin()

    def settler(self) -> Settler:
        """Return a settler for one more thread."""
        return Settler(
            self.loader,
            self._resources,
            self.ownership,
            self.columns,
            self.progress,
            self.visible,
            labels_retained=self._labels_retained,
            share=self.portion.number,
        )

    def settle_once(
        self,
        settler: Settler,
        timeout_s: float = 0.0,
        choose: Callable[[list[int]], int] = min,
        pause_s: Callable[[int], float] = lambda tries: 0.0,
    ) -> AttemptOutcome | None:
        """Attempt to settle a batch, and return the outcome; None when no batch is due.

        `pause_s` takes the number of attempts in a row that did not settle the batch, and returns the pause
        before the next one.
        """
        pending = self.window.take_batch(timeout_s, choose)
        if pending is None:
            return None
        outcome = AttemptOutcome.AGAIN
        try:
            self.progress.attempted()
            outcome = settler.attempt(pending)
        finally:
            if outcome is AttemptOutcome.SETTLED:
                self.window.settled(pending)
            else:
                self.window.give_back(pending, pause_s(pending.tries))
        return outcome

    def wanted(self) -> LoadJobState:
        return self._jobs.get(self.job.job_id).state

    def change_state(self, event: LoadJobEvent, reason: str) -> None:
        """Set the desired state of the job. Raises IllegalTransition."""
        self._jobs.change_state(self.job.job_id, event, reason)

    def fail(self, reason: Stopped) -> None:
        fail_job(self._jobs, self.ownership, self.job, self.portion, reason)

    def log(self) -> TopicLog | None:
        return self.source.log()

    def log_ends(self) -> Offsets | None:
        return self.source.log_ends()

    def label(self, sequence: int) -> str:
        """Return the label of a batch."""
        return label_of(self.loader.name, self.job.incarnation, sequence, self.portion.number)

    def last_record(self) -> OffsetsRecord:
        """Return the newest record of this run. Raises NotLeader where another owner has divided the job."""
        return self._own_records()[-1]

    def _own_records(self) -> tuple[OffsetsRecord, ...]:
        """Return the records, of which an owner always has one."""
        name = self.ownership.lease.name
        records = self._records.all(name)
        if not records:  # gone with the division of the job, by another owner: then this raises NotLeader
            self.ownership.renew()
            raise Unavailable(f"{name} has no record", expected="the one where reading goes on", found="none")
        return records

    def _open_consumer(self) -> StreamConsumer:
        return self._resources.open_consumer(self.loader)

    def _begin(self) -> BatchSource:
        records = self._still_there(self._records.all(self.ownership.lease.name)) or (self._origin(),)
        commit_until_s = self.clock.monotonic_s() + COMMIT_LATE_S  # an owner before may have sent one
        for record in records:
            if not record.loaded:
                until_s = commit_until_s if record.attempts else 0.0
                recovered = Pending(record, None, must_ask=True, commit_until_s=until_s)
                self.window.add_batch(recovered, recovered=True)
        last = records[-1]
        consumer = self._open_consumer()
        source = BatchSource(
            self.loader,
            self.label,
            consumer,
            self._records,
            self.ownership,
            self.window,
            self.clock,
            self.portion,
            positions=last.end_offsets,
            next_sequence=last.sequence_id + 1,
            topic_id=last.topic_id,
            epochs=last.end_epochs,
        )
        state = _of_sink(lambda: self._sink.state(self.loader.database, source.next_label))
        if state is not LoadState.UNKNOWN:
            raise Stopped(
                StopCause.LABEL_FOREIGN,
                f"label {source.next_label} is {state}, and nothing was ever sent under it",
                action="another job of this name loads into the same database: rename one of them",
            )
        return source

    def _still_there(self, records: tuple[OffsetsRecord, ...]) -> tuple[OffsetsRecord, ...]:
        """Return the records without those that an earlier process has left unsent and the log has lost,
        where the loader drops them. A record that cannot be taken back is settled first, and then stops the
        loader.
        """
        if self.loader.truncation != "drop" or not any(record.end_epochs for record in records[-1:]):
            return records
        consumer = self._open_consumer()
        check = TruncationCheck(consumer.topic, consumer.epoch_ends, action=TRUNCATED_ACTION)
        try:
            check.check(records[-1].end_epochs)
        except LogTruncated as error:
            with suppress(Stopped):
                return take_back(self._records, self.ownership, records, error)
        except NotFound as error:
            raise self._resources.missing.meaning(error, self.clock.monotonic_s()) from error
        finally:
            consumer.close()
        return records

    def _origin(self) -> OffsetsRecord:
        """Record an origin and mark it loaded, in two writes. Between them it is an empty range, which
        settles by itself."""
        at, topic_id = self._start_offsets()
        label = self.label(ORIGIN)
        try:
            self._records.insert(self.ownership.lease, ORIGIN, label, at, at, topic_id=topic_id)
        except CommitConflict:
            return self._own_records()[0]
        return self._records.mark_loaded(self.ownership.lease, ORIGIN, Loaded(None, 0))

    def _start_offsets(self) -> tuple[Offsets, str | None]:
        """Return the start offsets, and the id of the topic in which they count; None if it is not known."""
        if self._config.start_at is not None:
            # of all partitions; one that came later is read from its beginning
            return self._config.start_at, self._config.start_topic_id
        consumer = self._open_consumer()
        try:
            topic_id = consumer.topic_id()  # before the ranges: of a topic made in between they are not
            partitions = self.portion.partitions(consumer)
            ranges = {partition: consumer.log_range(partition) for partition in partitions}
        except NotFound as error:
            raise self._resources.missing.meaning(error, self.clock.monotonic_s()) from error
        finally:
            consumer.close()
        begin = self.loader.start == "earliest"
        at = {partition: known.start if begin else known.end for partition, known in ranges.items()}
        return at, topic_id or None


def begin(
    job_id: str,
    owner: str,
    resources: JobResources,
    check_rights: Callable[[Loader], None] = lambda loader: None,
) -> LoadJobRun:
    """Begin a run. `check_rights` is called before it begins, and raises where Kafka would not let the loader
    do its work.

    Raises NotYet while another process owns the job; Unavailable, CommitUnknown and NotLeader as they are;
    else Stopped, which is reported to the job first."""
    ownership = Ownership(resources.jobs.leases, job_id, owner)
    with released_unless_begun(ownership):
        return begin_owned(ownership, job_id, resources, check_rights=check_rights)


@contextmanager
def released_unless_begun(ownership: Ownership) -> Iterator[None]:
    """Release the lease where the block raises, so that nobody waits for a run that has not begun."""
    try:
        yield
    except RtolapError:
        with suppress(RtolapError):  # it runs out then
            ownership.release()
        raise


def begin_owned(
    ownership: Ownership,
    job_id: str,
    resources: JobResources,
    portion: Portion = WHOLE,
    *,
    configured: Callable[[JobConfig], JobConfig] = lambda config: config,
    check_rights: Callable[[Loader], None] = lambda loader: None,
) -> LoadJobRun:
    """Begin a run of what `ownership` owns: the job, or the share that `portion` names. `configured` changes
    the configuration for this run.

    Raises as `begin`, without NotYet."""
    job = resources.jobs.get(job_id)
    config = configured(read_config(job))
    loader = config.loader
    try:
        _of_kafka(lambda: check_rights(loader))
        return LoadJobRun(job, config, ownership, resources, portion)
    except (Unavailable, CommitUnknown):
        raise
    except RtolapError as error:
        reason = error if isinstance(error, Stopped) else Stopped(StopCause.BROKEN, str(error))
        fail_job(resources.jobs, ownership, job, portion, reason)
        if reason is error:
            raise
        raise reason from error


def fail_job(
    jobs: LoadJobs, ownership: Ownership, job: LoadJob, portion: Portion, reason: RtolapError
) -> None:
    """Fail the job. Raises NotLeader where what is owned is somebody else's by now."""
    if portion.number is None:
        jobs.fail(ownership.lease, str(reason))
    else:
        jobs.fail_by_share(ownership.lease, job.job_id, f"{reason}; in share {portion.number}")


def _of_kafka(call: Callable[[], None]) -> None:
    """Run a call to Kafka; raise Stopped where no retry helps: a missing right, a password, a setting of this
    host.
    """
    try:
        call()
    except (Forbidden, Unauthorized, DefinitionError) as error:
        raise Stopped(
            StopCause.KAFKA_REFUSES, str(error), action="mend it, and start the loader again"
        ) from error


def _of_sink(call: Callable[[], T]) -> T:
    """Run a call to the sink; raise Stopped where it refuses before anything is sent, such as for a wrong
    password.
    """
    try:
        return call()
    except (Stopped, Unavailable):
        raise
    except RtolapError as error:
        raise Stopped(
            StopCause.SINK_REFUSES,
            "the sink refuses a request",
            found=str(error),
            action="mend it, and start the loader again",
        ) from error

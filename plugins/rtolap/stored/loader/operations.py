"""Use cases of loaders: declared, started, settled, reset; how far each is.

Commands and DAGs call these, which know the ledger, the processes' endpoints, the topic and the agent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain

import msgspec

from rtolap.base.clock import SystemClock
from rtolap.base.errors import (
    CommitConflict,
    DefinitionError,
    Forbidden,
    NotFound,
    NotYet,
    Unauthorized,
    Unavailable,
)
from rtolap.base.settings import Settings
from rtolap.events.formats.readers import Registries, no_registries
from rtolap.kafka.clusters import KafkaClusters
from rtolap.kafka.dead_letters import kept_letters
from rtolap.kafka.interfaces import LogRange, TopicLog
from rtolap.kafka.producer import KafkaAdmin
from rtolap.model.loader import Loader
from rtolap.model.offsets import Offsets
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessSpec, RestartPolicy
from rtolap.protocols.loader.client import LoaderClient
from rtolap.protocols.loader.messages import EXIT_FAILED, EXIT_OWNED, EXIT_STOPPED, LoaderStatus, process_key
from rtolap.stored.loader.assembly import reject_file
from rtolap.stored.loader.job import JobConfig, read_config, write_config
from rtolap.stored.loader.letters.access import LetterAccess, LetterPlace
from rtolap.stored.loader.records.rejects import letters_in_file, reject_topic
from rtolap.stored.loader.reset import given, going_on_as_defined, left_labels_of_all, settle_batch
from rtolap.stored.loader.shares.status import status_of_shared_job
from rtolap.stored.loader.sink import Sink
from rtolap.stored.loader.starting import address_of
from rtolap.stored.loader.status import status_of
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.dead_letters import DeadLetters
from rtolap.stored.metastore.load_jobs import LoadJob, LoadJobEvent, LoadJobs, Series
from rtolap.stored.metastore.load_shares import Division, LoadShares, share_id
from rtolap.stored.metastore.offsets import OffsetsRecord, OffsetsRecords

_STATUS_TIMEOUT_S = 3.0
_KEPT_ON_AGENT_S = 10 * 365 * 86_400.0  # whoever starts by hand renews no lease


class JobAccess:
    """Jobs of one ledger, and what a person does with them."""

    def __init__(self, ledger: Ledger, settings: Settings) -> None:
        self.jobs = LoadJobs(ledger)
        self.records = OffsetsRecords(ledger)
        self.shares = LoadShares(ledger)
        self.share_records = OffsetsRecords(ledger, of_shares=True)
        self.letters = DeadLetters(ledger)
        self._settings = settings

    def status(self, job: LoadJob) -> LoaderStatus:
        """Return what its process says where one answers, else what ledger and topic do."""
        loader = read_config(job).loader
        division = self.shares.division(job.job_id) if loader.sharing or job.shares else Division((), ())
        owners = [job.owner] if job.lease_until_ms and job.owner else []
        owners += [process.owner for process in division.processes if process.owner != job.owner]
        for owner in owners:
            if (answer := self._answer(job, owner)) is not None:
                return answer
        log_now = self._log_now(loader)
        if job.shares is None:
            return status_of(job, self.records.all(job.job_id), log_now, None)
        series = tuple(self.share_records.all(share.share_id) for share in division.shares)
        return status_of_shared_job(job, division, series, log_now, ())

    def _answer(self, job: LoadJob, owner: str) -> LoaderStatus | None:
        """Return the status as a process of the job says it; None where it does not answer."""
        url = f"http://{address_of(owner)}"
        try:
            with LoaderClient(url, self._settings.token(), timeout_s=_STATUS_TIMEOUT_S) as client:
                answer = client.status()
        except Unavailable:
            return None  # not alive: that is what the status says then
        return answer if answer.job == job.job_id else None

    def declare(self, loader: Loader) -> LoadJob:
        """Declare the loader. A job that exists takes changes of its definition for its further batches.

        Raises DefinitionError if the definition loads another topic, or into another table.
        """
        return self._declare(loader)[0]

    def declare_revocably(self, loader: Loader) -> Callable[[], object]:
        """Declare the loader as `declare` does, and return a function that takes the declaration back.

        Call that function only for a loader that nobody has started meanwhile.
        """
        return self._declare(loader)[1]

    def _declare(self, loader: Loader) -> tuple[LoadJob, Callable[[], object]]:
        config = write_config(JobConfig(loader))
        try:
            created_job = self.jobs.create(loader.name, loader.database, loader.table, loader.topic, config)
            return created_job, partial(self.jobs.remove, created_job)
        except CommitConflict:
            job = self.jobs.get(loader.name)
        if (job.db, job.table, job.topic) != (loader.database, loader.table, loader.topic):
            raise DefinitionError(
                f"loader {loader.name} is there already",
                expected=f"{job.topic} into {job.db}.{job.table}",
                found=f"{loader.topic} into {loader.database}.{loader.table}",
                action="give it another name",
            )
        present = read_config(job)
        if present.loader == loader:
            return job, lambda: None
        if present.loader.kafka_cluster != loader.kafka_cluster:
            raise DefinitionError(
                f"loader {loader.name} is there already",
                expected=f"a topic of Kafka cluster {present.loader.kafka_cluster}",
                found=loader.kafka_cluster,
                action="give it another name: its offsets count in another log",
            )
        changed = msgspec.structs.replace(present, loader=loader)
        after = self.jobs.reconfigure(job.job_id, write_config(changed))
        return after, partial(self.jobs.reconfigure, job.job_id, job.config)

    def define_again(self, job_id: str, at: Offsets | None, *, go_on: bool, abandon: bool) -> LoadJob:
        """Define a job again. `at` says where it begins; `go_on` says that it goes on where it was. Raises
        DefinitionError and Refused."""
        job = self.jobs.get(job_id)
        present = read_config(job)
        loader = present.loader
        log = self._log(loader) if go_on or at is not None else TopicLog("", {})
        start_at = None if at is None else given(at, log.ranges)

        def begins_at(series: tuple[Series, ...]) -> Offsets | None:
            if not go_on:
                return start_at
            return going_on_as_defined(present, series, log.ranges, topic_id=log.topic_id)

        def config(series: tuple[Series, ...]) -> str:
            start = begins_at(series)
            topic_id = None if start is None else log.topic_id or None
            if go_on and start is present.start_at:
                topic_id = present.start_topic_id  # never begun: it is still to begin there
            plain = JobConfig(loader, start, present.left, topic_id, present.more_left)
            return write_config(plain.leaving(left_labels_of_all(series, job)))

        return self.jobs.define_again(job_id, config, abandon=abandon, begins_at=begins_at)

    def settle(self, job_id: str, batch: int, *, loaded: bool, share: int | None = None) -> OffsetsRecord:
        """Record what a person has found out about a batch that was sent.

        `share` is that of the batch, in a divided job. Raises NotYet while a process owns the job or the
        share, Refused where the batch needs no such word.
        """
        job = self.jobs.get(job_id)
        if job.shares is None and share is None:
            return settle_batch(
                self.jobs.leases, self.records, job_id, batch, loaded=loaded, letters_of=job_id
            )
        if job.shares is None or share is None or not 0 <= share < job.shares:
            raise DefinitionError(
                f"not a share of loader {job_id}",
                expected="no share" if job.shares is None else f"--share 0 to {job.shares - 1}",
                found=share,
                action="the label of the batch says which: NAME_INCARNATION_sSHARE_BATCH",
            )
        name = share_id(job_id, job.incarnation, share)
        return settle_batch(
            self.shares.leases, self.share_records, name, batch, loaded=loaded, letters_of=job_id
        )

    def dead_letters(
        self, job_id: str, open_sink: Callable[[Loader], Sink], registries: Registries = no_registries
    ) -> LetterAccess:
        """Return access to the dead letters of a job. `open_sink` is called for a replay. Raises NotFound."""
        self.jobs.get(job_id)
        clusters = KafkaClusters.of_host(self._settings)

        def place(loader: Loader) -> LetterPlace:
            if loader.rejects.to == "file":
                file = reject_file(loader, self._settings)
                return LetterPlace(partial(letters_in_file, file), file=file)
            cluster, topic = clusters.get(loader.kafka_cluster), reject_topic(loader.topic, loader.name)
            return LetterPlace(partial(kept_letters, cluster, topic), topic=topic)

        return LetterAccess(
            job_id,
            self.jobs,
            self.letters,
            partial(self._pending_labels, job_id),
            place,
            open_sink,
            SystemClock(),
            registries,
        )

    def _pending_labels(self, job_id: str) -> frozenset[str]:
        """Return the labels of the batches that are recorded and not loaded."""
        job = self.jobs.get(job_id)
        if job.shares is None:
            records = self.records.all(job_id)
        else:
            shares = self.shares.division(job_id).shares
            records = tuple(chain.from_iterable(self.share_records.all(share.share_id) for share in shares))
        return frozenset(record.label for record in records if not record.loaded)

    def start(self, job: str) -> None:
        """Start a job. Raises Unavailable where no agent answers that could run it."""
        self.jobs.change_state(job, LoadJobEvent.START, "")
        try:
            self.start_by_agent(job)
        except Unavailable as error:
            raise Unavailable(
                f"loader {job} is wanted, but no agent answers that could run it",
                found=str(error),
                action=f"run `rtolap agent serve`, or `rtolap loader run {job}` yourself",
            ) from error

    def stop(self, job: str, why: str) -> None:
        """Stop a job. The batch under way is finished first."""
        self.jobs.change_state(job, LoadJobEvent.STOP, why)

    def restart(self, job: str, why: str, wait_s: float) -> None:
        """Start it again once its process has ended. Raises NotYet when that takes longer, and as `start`."""
        self.stop(job, why)
        self.wait(job, wait_s, lambda status: not status.alive)
        self.start(job)

    def wait(self, job: str, wait_s: float, is_so: Callable[[LoaderStatus], bool]) -> LoaderStatus:
        """Return the first status that `is_so`. Raises NotYet when the time is over."""
        deadline_s = time.monotonic() + wait_s
        while True:
            status = self.status(self.jobs.get(job))
            if is_so(status):
                return status
            if time.monotonic() >= deadline_s:
                raise NotYet(
                    f"loader {job} is not there yet", found=f"{status.state}, {status.phase or 'no process'}"
                )
            time.sleep(0.2)

    def start_by_agent(self, job: str) -> None:
        settings = self._settings
        with AgentClient(settings.agent_url(), settings.token()) as agent:
            key = process_key(job)
            spec = ProcessSpec(
                generation=agent.generation(key) + 1,
                argv=("rtolap", "loader", "run", job),
                orphan_s=_KEPT_ON_AGENT_S,
                restart=RestartPolicy(final_codes=(EXIT_STOPPED, EXIT_FAILED, EXIT_OWNED)),
            )
            agent.ensure(key, spec)

    def _log(self, loader: Loader) -> TopicLog:
        admin = KafkaAdmin(KafkaClusters.of_host(self._settings).get(loader.kafka_cluster))
        try:
            starts, ends = admin.offsets(loader.topic, "earliest"), admin.offsets(loader.topic, "latest")
            topic_id = admin.topic_id(loader.topic)
        finally:
            admin.close()
        ranges = {partition: LogRange(start, ends[partition]) for partition, start in starts.items()}
        return TopicLog(topic_id, ranges)

    def _log_now(self, loader: Loader) -> TopicLog | None:
        try:
            return self._log(loader)
        except (NotFound, Unavailable, Forbidden, Unauthorized):
            return None


@contextmanager
def job_access(settings: Settings) -> Iterator[JobAccess]:
    with Ledger.open(settings.ledger, password_file=settings.ledger_password_file) as ledger:
        yield JobAccess(ledger, settings)

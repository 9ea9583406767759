"""Runs one job: takes it, serves its endpoint, and ends with the process."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable

from rtolap.base.errors import DefinitionError, NotYet
from rtolap.base.metrics import Family, Metrics
from rtolap.base.stopping import stop_event
from rtolap.model.loader import Loader, LoaderSink, SinkPartitions
from rtolap.protocols.loader.messages import (
    EXIT_FAILED,
    EXIT_OWNED,
    EXIT_STOPPED,
    LoaderStatus,
)
from rtolap.stored.loader.http import LoaderEndpoint
from rtolap.stored.loader.job import JobResources, SharedResources, read_config
from rtolap.stored.loader.job_run import LoadJobRun, begin
from rtolap.stored.loader.operator import operator_of
from rtolap.stored.loader.partition_role import OpenSession, PartitionRole
from rtolap.stored.loader.process import LoaderProcess
from rtolap.stored.loader.shared_runner import run_shared
from rtolap.stored.loader.shares.supervision import Agent
from rtolap.stored.loader.starting import Starting, owner_of, stop_with
from rtolap.stored.loader.states import Stopped
from rtolap.stored.loader.status import status_of, waiting_status
from rtolap.stored.metastore.load_jobs import LoadJobEvent, LoadJobState
from rtolap.watermark_client.client import WatermarkClient

log = logging.getLogger(__name__)

_ENDED = {LoadJobState.STOPPED: EXIT_STOPPED, LoadJobState.FAILED: EXIT_FAILED}


def run(
    job_id: str,
    resources: JobResources,
    endpoint: LoaderEndpoint,
    *,
    open_watermarks: Callable[[str], WatermarkClient],
    partition_session: Callable[[LoaderSink, SinkPartitions], OpenSession],
    check_rights: Callable[[Loader], None] = lambda loader: None,
    start: str | None = None,
    again: bool = False,
    number: int = 0,
    shared: SharedResources | None = None,
    agent: Agent | None = None,
) -> int:
    """Run the job until it is stopped, fails or belongs to another owner, and return the exit code.

    Call from the main thread. A job that was stopped or has failed is started by this, once for each `start`
    (None: one of its own). `again`: a crash has brought the process back; if it had started the job before, a
    stop since then stands. A paused job stays paused. `open_watermarks` connects to the application that the
    definition names, if it names one. `partition_session` connects to the endpoint where its partitions are
    created, if they are created. `check_rights`: see `job_run.begin`. Its endpoint answers from the start;
    while the job, the sink or the topic is waited for, the phase is `waiting`.

    A job whose partitions are shared, or are to be, is run as its process `number`, with the resources of
    `shared`. Process 0 has `agent` run the others, and it alone starts a job that was stopped or has failed.
    """
    jobs, records, clock = resources.jobs, resources.records, resources.clock
    stopping = stop_event()
    job = jobs.get(job_id) if number else jobs.start(job_id, start or uuid.uuid4().hex, again=again)
    if (ended := _ENDED.get(job.state)) is not None:
        log.info("%s was ended while its process was gone", job_id)
        return ended
    sharing = read_config(job).loader
    if shared is not None and (job.shares is not None or sharing.sharing is not None):
        return run_shared(
            job_id,
            number,
            shared,
            stopping,
            endpoint,
            open_watermarks=open_watermarks,
            partition_session=None
            if (made := sharing.sink.partitions) is None
            else lambda: partition_session(sharing.sink, made),
            agent=agent if number == 0 else None,
        )
    if number:
        raise DefinitionError(
            f"loader {job_id} has one process",
            expected="`processes` in its definition",
            found=f"process {number}",
            action="declare `processes`, and create it again",
        )
    with endpoint.listening() as (sockets, address):
        owner = owner_of(address)
        starting = Starting(stopping, clock, lambda: jobs.get(job_id).state in _ENDED)
        begun: list[LoaderProcess] = []

        def status() -> LoaderStatus:
            job = jobs.get(job_id)
            if not begun:
                return waiting_status(job, records.all(job_id), starting.waits_for)
            read_ms, log_now = clock.now_ms(), begun[0].work.log()
            return status_of(job, records.all(job_id), log_now, begun[0], read_ms)

        def want(event: LoadJobEvent) -> None:
            if begun:
                begun[0].want(event)
            else:  # what waits looks at the ledger between two tries
                jobs.change_state(job_id, event, f"asked to {event.lower()}")

        metrics = Metrics("loader")
        server = endpoint.serve(job_id, sockets, metrics, status, want)
        log.info("loader of %s; endpoint at %s", job_id, address)
        watermarks: WatermarkClient | None = None
        try:
            work = starting.begun(lambda: begin(job_id, owner, resources, check_rights))
            if work is None:
                return EXIT_STOPPED
            operator = None
            if (application := work.loader.application) is not None:
                watermarks = open_watermarks(application.name)
                operator = operator_of(work, application, watermarks)
            process = LoaderProcess(work, operator=operator, partitions=_partitions(work, partition_session))
            begun.append(process)
            measure(metrics, process, status)
            log.info("loading %s into %s.%s", work.loader.topic, work.loader.database, work.loader.table)
            stop_with(stopping, process.stop)
            code = process.run()
        except NotYet as error:
            log.error("%s", error)
            return EXIT_OWNED
        except Stopped as error:
            log.error("%s", error)
            return EXIT_FAILED
        finally:
            server.should_exit = True
            if watermarks is not None:
                watermarks.close()
        log.info("loader of %s ends with code %d", job_id, code)
        return code


def _partitions(
    work: LoadJobRun, session: Callable[[LoaderSink, SinkPartitions], OpenSession]
) -> PartitionRole | None:
    sink = work.loader.sink
    if sink.partitions is None:
        return None
    opened = session(sink, sink.partitions)
    return PartitionRole(work.loader, sink.partitions, opened, lambda: work.columns.target, work.clock)


def measure(metrics: Metrics, process: LoaderProcess, status: Callable[[], LoaderStatus]) -> None:
    """Add the metrics of a loader. The lag is left out while the topic does not return its ends."""

    def sample() -> Iterable[Family]:
        work = process.work
        figures: dict[str, float | None] = {
            **work.progress.shown(work.clock).counts.figures(),
            "batches_pending": len(work.window),
            "lag_records": status().lag_records,
        }
        if process.partitions is not None:
            made = process.partitions.status
            figures["partitions_made"] = made.made_count
            figures["partitions_failing"] = made.state == "failing"
            figures["partitions_until_seconds"] = None if made.until_ms is None else made.until_ms / 1000
        for name, figure in figures.items():
            if figure is not None:
                yield metrics.family(name, [((work.loader.name,), figure)])

    metrics.sampled(sample)

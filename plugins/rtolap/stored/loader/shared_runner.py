"""Runs one of several processes of a job: takes its place, serves its endpoint, and ends with the process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import closing

from rtolap.base.errors import NotYet
from rtolap.base.metrics import Family, Metrics
from rtolap.protocols.loader.messages import EXIT_OWNED, EXIT_STOPPED, LoaderStatus
from rtolap.stored.loader.http import LoaderEndpoint
from rtolap.stored.loader.job import SharedResources, read_config
from rtolap.stored.loader.operator import Operator, problem_of
from rtolap.stored.loader.partition_role import OpenSession, PartitionRole
from rtolap.stored.loader.shares.leader import TopicView
from rtolap.stored.loader.shares.process import SharedLoaderProcess, SideRole
from rtolap.stored.loader.shares.status import ask_processes, series_of, status_of_shared_job
from rtolap.stored.loader.shares.supervision import Agent, Supervision
from rtolap.stored.loader.shares.visible import VisibleOfShares
from rtolap.stored.loader.starting import Starting, owner_of, stop_with
from rtolap.stored.loader.target import SinkColumns, Target
from rtolap.watermark_client.client import WatermarkClient

log = logging.getLogger(__name__)


def run_shared(
    job_id: str,
    number: int,
    resources: SharedResources,
    stopping: threading.Event,
    endpoint: LoaderEndpoint,
    *,
    open_watermarks: Callable[[str], WatermarkClient],
    partition_session: Callable[[], OpenSession] | None,
    agent: Agent | None = None,
) -> int:
    """Run process `number` of the job until the job ends or the process is not wanted; return the exit code.

    `agent` runs the further processes, for process 0. The others are as in `runner.run`.
    """
    loader = read_config(resources.job.jobs.get(job_id)).loader
    with endpoint.listening() as (sockets, address), closing(TopicView(resources, loader)) as topic:
        owner = owner_of(address)
        roles: list[SideRole] = []
        watermarks: WatermarkClient | None = None
        if (application := loader.application) is not None:
            watermarks = open_watermarks(application.name)
            roles.append(Reports(watermarks, topic))
        if agent is not None:
            roles.append(_supervise(job_id, agent, resources))

        def take() -> SharedLoaderProcess:
            partitions = None
            if partition_session is not None and loader.sink.partitions is not None:
                columns = SinkColumns(resources.job.sink, loader)
                partitions = PartitionRole(
                    loader,
                    loader.sink.partitions,
                    partition_session(),
                    lambda: _refreshed(columns),  # its status says where the sink does not answer
                    resources.job.clock,
                )
            return SharedLoaderProcess(
                job_id, number, owner, resources, topic.log, partitions=partitions, side_roles=tuple(roles)
            )

        try:
            process = Starting(stopping, resources.job.clock).begun(take)
        except NotYet as error:
            log.error("%s", error)
            return EXIT_OWNED
        if process is None:
            return EXIT_STOPPED

        def status() -> LoaderStatus:
            job, division = resources.job.jobs.get(job_id), resources.shares.division(job_id)
            processes = ask_processes(division.processes, job, endpoint.token, process.status())
            series = series_of(resources, job, division)
            return status_of_shared_job(job, division, series, topic.log(), processes, process.partitions)

        metrics = Metrics("loader")
        measure_shared(metrics, process)
        server = endpoint.serve(job_id, sockets, metrics, status, process.want, process.status)
        log.info("process %d of job %s; endpoint at %s", number, job_id, address)
        stop_with(stopping, process.stop)
        code = process.run()
        server.should_exit = True
        if watermarks is not None:
            watermarks.close()
        log.info("process %d of job %s ends with code %d", number, job_id, code)
        return code


class Reports:
    """Reports what is readable to the application, while this process leads the job.

    Its generation is the epoch of the job's lease, so what an earlier leader reports later is void.
    """

    def __init__(self, watermarks: WatermarkClient, topic: TopicView) -> None:
        self._watermarks = watermarks
        self._topic = topic
        self._operator: Operator | None = None
        self._epoch = -1

    def __call__(self, process: SharedLoaderProcess) -> None:
        ownership = process.leader.ownership
        if ownership is None:
            self._operator = None
            return
        resources, lease = process.resources, ownership.lease
        job = resources.job.jobs.get(process.job_id)
        if job.shares is None:
            return
        loader = read_config(job).loader
        if self._operator is None or self._epoch != lease.epoch:
            assert loader.application is not None, "the role is only there with an application"
            self._epoch = lease.epoch
            visible = VisibleOfShares(loader, resources, process.job_id)
            self._operator = Operator(
                self._watermarks,
                loader.application,
                loader.name,
                lease.epoch,
                visible,
                lambda: visible.log_ends(self._topic.log()),
                lambda: problem_of(self._watermarks),
            )
        self._operator.run_once()
        process.note_error("report", self._operator.problem)


def _supervise(job_id: str, agent: Agent, resources: SharedResources) -> SideRole:

    def wanted() -> tuple[int, Iterable[int]]:
        division = resources.shares.division(job_id)
        number = resources.job.jobs.get(job_id).processes or 1
        return number, (process.number for process in division.processes)

    supervision = Supervision(job_id, agent, wanted)
    return lambda process: supervision.round()


def _refreshed(columns: SinkColumns) -> Target:
    columns.refresh()
    return columns.target


def measure_shared(metrics: Metrics, process: SharedLoaderProcess) -> None:
    """Add the metrics of a process: figures of its own shares, so that those of all processes add up. Its
    counters go on counting where a share moves away."""

    def sample() -> Iterable[Family]:
        status = process.status()
        figures: dict[str, float | None] = {
            **process.runs.counts().figures(),
            "batches_pending": sum(share.pending for share in status.shares),
            "shares_owned": len(status.shares),
            "partitions_owned": len(status.partition_numbers),
            "leads": status.leads,
            "lag_records": status.lag_records,
        }
        if status.leads:
            figures["processes_wanted"] = process.resources.job.jobs.get(process.job_id).processes or 0
        for name, figure in figures.items():
            if figure is not None:
                yield metrics.family(name, [((process.job_id,), figure)])

    metrics.sampled(sample)

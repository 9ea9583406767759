"""The status of a divided job, and of each of its processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from rtolap.base.errors import RtolapError
from rtolap.kafka.interfaces import TopicLog
from rtolap.model.offsets import Offsets
from rtolap.protocols.loader.client import LoaderClient
from rtolap.protocols.loader.messages import LoaderProcessStatus, LoaderStatus, ShareStatus
from rtolap.stored.loader.job import Portion, SharedResources
from rtolap.stored.loader.partition_role import PartitionRole
from rtolap.stored.loader.shares.share_run import ShareRun
from rtolap.stored.loader.starting import address_of
from rtolap.stored.loader.status import status_of, status_of_job
from rtolap.stored.metastore.load_jobs import LoadJob, Series
from rtolap.stored.metastore.load_shares import Division, LoadProcess

_ASK_TIMEOUT_S = 2.0
_ASKED_AT_ONCE = 16


def status_of_shared_job(
    job: LoadJob,
    division: Division,
    series: Iterable[Series],
    log: TopicLog | None,
    processes: tuple[LoaderProcessStatus, ...],
    partitions: PartitionRole | None = None,
) -> LoaderStatus:
    """Return the status of a job that is divided, or is to be. `series` are the records of its shares.

    Figures of what was loaded are those of the processes that answered."""
    answering = [process for process in processes if process.alive]
    visible: Offsets = {}
    for process in answering:
        visible |= process.visible
    times = [process.event_ms_loaded for process in answering]
    owned = {share.number for process in answering for share in process.shares}
    is_whole = bool(answering) and owned == {share.number for share in division.shares}
    known_times = [time for time in times if time is not None]
    errors = [f"process {each.number}: {each.last_error}" for each in answering if each.last_error]
    return status_of_job(
        job,
        tuple(series),
        log,
        alive=bool(answering),
        phase=", ".join(dict.fromkeys(process.phase for process in answering if process.phase)),
        visible=visible,
        rows_loaded=sum(process.rows_loaded for process in answering),
        rows_rejected=sum(process.rows_rejected for process in answering),
        rows_per_s=sum(process.rows_per_s for process in answering),
        bytes_per_s=sum(process.bytes_per_s for process in answering),
        event_ms_loaded=min(known_times) if is_whole and len(known_times) == len(times) else None,
        last_error="; ".join(errors),
        partitions=None if partitions is None else partitions.status,
        processes=processes,
        processes_wanted=job.processes,
        shares=job.shares,
    )


def series_of(resources: SharedResources, job: LoadJob, division: Division) -> tuple[Series, ...]:
    """Return the records of a job: of each share, or of the whole job while it is not divided."""
    if job.shares is None:
        return (resources.job.records.all(job.job_id),)
    return tuple(resources.records.all(share.share_id) for share in division.shares)


def ask_processes(
    others: Iterable[LoadProcess], job: LoadJob, token: str, own: LoaderProcessStatus | None = None
) -> tuple[LoaderProcessStatus, ...]:
    """Return the status of each process, requested from it unless it is `own`."""

    def ask(process: LoadProcess) -> LoaderProcessStatus:
        if own is not None and process.number == own.number:
            return own
        try:
            url = f"http://{address_of(process.owner)}"
            with LoaderClient(url, token, timeout_s=_ASK_TIMEOUT_S) as client:
                return client.process()
        except RtolapError as error:
            return LoaderProcessStatus(
                number=process.number,
                owner=process.owner,
                leads=process.owner == job.owner,
                last_error=str(error),
            )

    processes = tuple(others)
    if not processes:
        return ()
    with ThreadPoolExecutor(max_workers=min(_ASKED_AT_ONCE, len(processes))) as pool:
        return tuple(pool.map(ask, processes))


def status_of_process(
    number: int,
    owner: str,
    phase: str,
    runs: Mapping[int, ShareRun],
    *,
    leads: bool,
    shares: int,
    log: TopicLog | None,
    records_of: Callable[[str], Series],
    last_error: str,
    read_ms: int,
) -> LoaderProcessStatus:
    """Return the status of this process. `log` shows the topic at `read_ms` or later."""
    of_shares: list[ShareStatus] = []
    loading: list[LoaderStatus] = []
    visible: Offsets = {}
    errors = [last_error]
    for share, run in sorted(runs.items()):
        process = run.process
        errors.append(run.last_error)
        if process is None:
            of_shares.append(ShareStatus(number=share, phase="waiting"))
            continue
        records = records_of(run.share.share_id)
        own_log = None if log is None else _part(log, Portion(share, shares))
        status = status_of(process.work.job, records, own_log, process, read_ms)
        loading.append(status)
        errors.append(status.last_error)
        visible |= process.work.visible.ends
        partitions = sorted(records[-1].end_offsets) if records else []
        of_shares.append(
            ShareStatus(
                number=share,
                phase=status.phase,
                epoch=process.work.ownership.lease.epoch,
                partitions=tuple(partitions),
                sequence=status.sequence,
                pending=status.pending,
            )
        )
    lags = [status.lag_records for status in loading]
    times = [status.event_ms_loaded for status in loading]
    known_times = [time for time in times if time is not None]
    return LoaderProcessStatus(
        number=number,
        owner=owner,
        alive=True,
        leads=leads,
        phase=phase,
        shares=tuple(of_shares),
        visible=visible,
        lag_records=None if None in lags else sum(lag or 0 for lag in lags),
        rows_loaded=sum(status.rows_loaded for status in loading),
        rows_rejected=sum(status.rows_rejected for status in loading),
        rows_per_s=sum((status.rows_per_s for status in loading), 0.0),
        bytes_per_s=sum((status.bytes_per_s for status in loading), 0.0),
        event_ms_loaded=min(known_times, default=read_ms) if len(known_times) == len(runs) else None,
        last_error="; ".join(dict.fromkeys(error for error in errors if error)),
    )


def _part(log: TopicLog, portion: Portion) -> TopicLog:
    ranges = {each: known for each, known in log.ranges.items() if portion.has_partition(each)}
    return TopicLog(log.topic_id, ranges)

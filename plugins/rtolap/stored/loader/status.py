"""Status of a job: by the ledger, by the topic, and by the process that owns it."""

from __future__ import annotations

from typing import Any

import msgspec

from rtolap.kafka.interfaces import TopicLog
from rtolap.model.offsets import Offsets
from rtolap.protocols.loader.messages import LoaderStatus
from rtolap.stored.loader.job import read_config
from rtolap.stored.loader.process import LoaderProcess
from rtolap.stored.loader.records.rejects import reject_topic
from rtolap.stored.loader.starting import WAITING
from rtolap.stored.loader.states import StopCause
from rtolap.stored.metastore.load_jobs import LoadJob, LoadJobState, Series


def status_of(
    job: LoadJob,
    records: Series,
    log: TopicLog | None,
    process: LoaderProcess | None,
    read_ms: int = 0,
) -> LoaderStatus:
    """Return the status of an undivided job. `log` shows the topic at `read_ms` or later, and is None where
    the topic does not answer; `process` is None for another process."""
    found = status_of_job(job, (records,), log)
    if process is None:
        return found
    times = process.work.progress.times
    times.contiguous(found.sequence)
    shown = process.work.progress.shown(process.work.clock)
    return msgspec.structs.replace(
        found,
        alive=True,
        phase=process.phase,
        visible={} if _is_another(found) else process.work.visible.ends,
        rows_loaded=shown.counts.rows_loaded,
        rows_rejected=shown.counts.rows_rejected,
        rows_per_s=shown.rows_per_s,
        bytes_per_s=shown.bytes_per_s,
        event_ms_loaded=times.loaded_ms(found.loaded, None if log is None else log.ends, read_ms),
        last_error=shown.last_error,
        partitions=None if process.partitions is None else process.partitions.status,
    )


def waiting_status(job: LoadJob, records: Series, waits_for: str) -> LoaderStatus:
    """Return the status of an undivided job whose process has not begun to load, and what it waits for."""
    words = f"waits for: {waits_for}" if waits_for else ""
    return status_of_job(job, (records,), None, alive=True, phase=WAITING, last_error=words)


def status_of_job(
    job: LoadJob, series: tuple[Series, ...], log: TopicLog | None, **of_processes: Any
) -> LoaderStatus:
    """Return the status of a job by its records, one series for each share. `of_processes` are the fields
    that its processes know.

    Records of a deleted topic do not count for the topic that has its name now."""
    loaded: Offsets = {}
    topic_id: str | None = None
    sequence: int | None = None
    last_ms: int | None = None
    for records in series:
        for record in records:
            if not record.loaded:
                break
            loaded = loaded | record.end_offsets
            topic_id = record.topic_id or topic_id
            sequence = record.sequence_id if len(series) == 1 else None
            last_ms = max(filter(None, (last_ms, record.loaded_at_ms)), default=None)
    if log is not None and log.topic_id and topic_id and log.topic_id != topic_id:
        loaded = {}
    loader = read_config(job).loader
    return LoaderStatus(
        job=job.job_id,
        state=job.state.value,
        reason=job.reason,
        stop_cause=_cause(job),
        owner=job.owner,
        epoch=job.epoch,
        incarnation=job.incarnation,
        database=job.db,
        table=job.table,
        topic=job.topic,
        kafka_cluster=loader.kafka_cluster,
        target=loader.sink.target,
        rejects_topic=reject_topic(loader.topic, loader.name) if loader.rejects.to == "topic" else "",
        server=next(iter(loader.sink.urls), ""),
        sequence=sequence,
        pending=sum(not record.loaded for records in series for record in records),
        loaded=loaded,
        log_ends={} if log is None else log.ends,
        lag_records=None if log is None else sum(unloaded(log, loaded).values()),
        topic_id=topic_id or "",
        log_topic_id="" if log is None else log.topic_id,
        last_loaded_ms=last_ms,
        **of_processes,
    )


def unloaded(log: TopicLog, loaded: Offsets) -> Offsets:
    """Return records that are in the log and not loaded. A log that ends before the loaded offsets is another
    log, and nothing of it is loaded.
    """
    at = {partition: loaded.get(partition, 0) for partition in log.ranges}
    return {
        partition: known.end - (at[partition] if at[partition] <= known.end else known.start)
        for partition, known in log.ranges.items()
    }


def _is_another(status: LoaderStatus) -> bool:
    return bool(status.topic_id and status.log_topic_id) and status.topic_id != status.log_topic_id


def _cause(job: LoadJob) -> str:
    word = job.reason.partition(":")[0]
    return word if job.state is LoadJobState.FAILED and word in set(StopCause) else ""

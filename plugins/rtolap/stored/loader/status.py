"""Status of a job: by the ledger, by the topic, and by the process that owns it."""

from __future__ import annotations

from rtolap.kafka.interfaces import TopicLog
from rtolap.model.offsets import Offsets
from rtolap.protocols.loader.messages import LoaderStatus
from rtolap.stored.loader.job import read_config
from rtolap.stored.loader.process import LoaderProcess
from rtolap.stored.loader.states import StopCause
from rtolap.stored.metastore.load_jobs import LoadJob, LoadJobState
from rtolap.stored.metastore.offsets import OffsetsRecord


def status_of(
    job: LoadJob,
    records: tuple[OffsetsRecord, ...],
    log: TopicLog | None,
    process: LoaderProcess | None,
    read_ms: int = 0,
) -> LoaderStatus:
    """Return the status of a job. `log` shows the topic at `read_ms` or later, and is None where the topic
    does not answer; `process` is None for another process.

    Records of a deleted topic do not count for the topic that has its name now."""
    loaded: Offsets = {}
    topic_id: str | None = None
    sequence, last_ms, filtered, rows = None, None, 0, 0
    for record in records:
        if not record.loaded:
            break
        loaded, sequence, last_ms = record.end_offsets, record.sequence_id, record.loaded_at_ms
        topic_id = record.topic_id
    another = log is not None and bool(log.topic_id and topic_id) and log.topic_id != topic_id
    if another:
        loaded = {}
    log_ends = None if log is None else log.ends
    error, rows_per_s, bytes_per_s, event_ms = "", 0.0, 0.0, None
    if process is not None:
        times = process.work.progress.times
        times.contiguous(sequence)
        event_ms = times.loaded_ms(loaded, log_ends, read_ms)
        shown = process.work.progress.shown(process.work.clock)
        error, rows_per_s, bytes_per_s = shown.last_error, shown.rows_per_s, shown.bytes_per_s
        rows, filtered = shown.counts.rows_loaded, shown.counts.rows_rejected
    visible = {} if process is None or another else process.work.visible.ends
    return LoaderStatus(
        job=job.job_id,
        state=job.state.value,
        reason=job.reason,
        stop_cause=_cause(job),
        phase="" if process is None else process.phase,
        alive=process is not None,
        owner=job.owner,
        epoch=job.epoch,
        incarnation=job.incarnation,
        database=job.db,
        table=job.table,
        topic=job.topic,
        kafka_cluster=read_config(job).loader.kafka_cluster,
        sequence=sequence,
        pending=sum(not record.loaded for record in records),
        loaded=loaded,
        visible=visible,
        log_ends=log_ends or {},
        lag_records=None if log is None else sum(_left(log, loaded).values()),
        topic_id=topic_id or "",
        log_topic_id="" if log is None else log.topic_id,
        rows_loaded=rows,
        rows_rejected=filtered,
        rows_per_s=rows_per_s,
        bytes_per_s=bytes_per_s,
        event_ms_loaded=event_ms,
        last_error=error,
        last_loaded_ms=last_ms,
        partitions=None if process is None or process.partitions is None else process.partitions.status,
    )


def _left(log: TopicLog, loaded: Offsets) -> Offsets:
    """Return records that are in the log and not loaded. A log that ends before the loaded offsets is another
    log, and nothing of it is loaded.
    """
    at = {partition: loaded.get(partition, 0) for partition in log.ranges}
    return {
        partition: known.end - (at[partition] if at[partition] <= known.end else known.start)
        for partition, known in log.ranges.items()
    }


def _cause(job: LoadJob) -> str:
    word = job.reason.partition(":")[0]
    return word if job.state is LoadJobState.FAILED and word in set(StopCause) else ""

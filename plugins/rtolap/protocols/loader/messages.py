"""Loader protocol, REST of one loader's process (bearer token): messages.

    GET  /health                            no token: {"status", "role", "job"}
    GET  /api/v1/loader                     → LoaderStatus, of the whole job, whichever process answers
    GET  /api/v1/loader/process             → LoaderProcessStatus, of this process; 404 where a job has one
    POST /api/v1/loader/pause|resume|stop   → LoaderStatus, as it is then; the ledger keeps what is wanted;
                                              409 illegal_transition where the job's state forbids it
    GET  /metrics

The process is `rtolap loader run JOB`. It ends with code 0 once the job is stopped, 3 when it has failed (why
stands in the job, and in the last line of its log), 4 when another process owns the job. What is wanted of a
job, and why it is as it is, stands in the ledger: `rtolap loader status` reads both.
"""

from __future__ import annotations

import msgspec

from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

EXIT_STOPPED, EXIT_FAILED, EXIT_OWNED = 0, 3, 4
API = "/api/v1/loader"


PROCESS_API = f"{API}/process"


def process_key(job: str, number: int = 0) -> str:
    """Return the key of the loader's process on an agent. `number`: of several of one job."""
    return f"loader.{job}.{number}" if number else f"loader.{job}"


class PartitionsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the role that makes partitions in the sink.

    Attributes:
        state: `starting`, `kept`, or `failing` because of `last_error`.
        made: names of the last ones that this process has made, of `made_count`.
        until_ms: from now on up to there, each instant has its partition.
        checked_ms: when all were there the last time.
    """

    state: str
    last_error: str = ""
    made: tuple[str, ...] = ()
    made_count: int = 0
    until_ms: int | None = None
    checked_ms: int | None = None


class ShareStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A share in the process that has it.

    Attributes:
        phase: `waiting` until the share is free, then as of a loader.
        partitions: those of the topic that are in it.
        pending: number of batches that are recorded and not loaded.
    """

    number: int
    phase: str
    epoch: int = 0
    partitions: tuple[int, ...] = ()
    sequence: int | None = None
    pending: int = 0


class LoaderProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a job whose partitions several share. Figures are of its own shares.

    Attributes:
        alive: it answered.
        leads: it owns the job.
        visible: offsets up to which records can be read in the table, as far as it knows.
    """

    number: int
    owner: str = ""
    alive: bool = False
    leads: bool = False
    phase: str = ""
    shares: tuple[ShareStatus, ...] = ()
    visible: dict[int, int] = {}
    lag_records: int | None = None
    rows_loaded: int = 0
    rows_rejected: int = 0
    rows_per_s: float = 0.0
    bytes_per_s: float = 0.0
    event_ms_loaded: int | None = None
    last_error: str = ""

    @property
    def partition_numbers(self) -> tuple[int, ...]:
        return tuple(sorted(partition for share in self.shares for partition in share.partitions))


class LoaderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A loader, as its process or its ledger shows it. Offsets are next-to-read.

    Attributes:
        state: RUNNING, PAUSED, STOPPED or FAILED.
        phase: what a running one does now.
        reason: why it is in its state.
        kafka_cluster: the cluster that has the topic.
        target: the kind of server that has the table: rtolap, doris or starrocks.
        rejects_topic: the topic of refused records; "" where they go to a file.
        server: URL of its first front end; "" for the front ends of the settings.
        loaded: offsets up to which all records are in the table.
        visible: offsets up to which records can be read in the table, as far as its process knows.
        log_ends: offsets at which the topic ends, requested from the broker for this response.
        lag_records: None where `log_ends` are unknown.
        topic_id: of the topic that is loaded, as it is recorded.
        log_topic_id: of the topic that is there. Where the two differ, nothing of this one is loaded.
        rows_per_s: of the last minute, like every rate.
        event_ms_loaded: every record with a timestamp up to it is in the table; None where it is unknown.
        alive: its process answered. Otherwise the response is made of the ledger alone.
        partitions: of a process that makes them.
        processes: those of a job whose partitions several share.
        processes_wanted: how many the job is to have; None for an undivided job, or before that is known.
        shares: number of the shares of a divided job.
    """

    job: str
    state: str
    reason: str = ""
    stop_cause: str = ""
    phase: str = ""
    alive: bool = False
    owner: str = ""
    epoch: int = 0
    incarnation: int = 1
    database: str = ""
    table: str = ""
    topic: str = ""
    kafka_cluster: str = DEFAULT_KAFKA_CLUSTER
    target: str = "rtolap"
    rejects_topic: str = ""
    server: str = ""
    sequence: int | None = None
    pending: int = 0
    loaded: dict[int, int] = {}
    visible: dict[int, int] = {}
    log_ends: dict[int, int] = {}
    lag_records: int | None = None
    topic_id: str = ""
    log_topic_id: str = ""
    rows_loaded: int = 0
    rows_rejected: int = 0
    rows_per_s: float = 0.0
    bytes_per_s: float = 0.0
    event_ms_loaded: int | None = None
    last_error: str = ""
    last_loaded_ms: int | None = None
    partitions: PartitionsStatus | None = None
    processes: tuple[LoaderProcessStatus, ...] = ()
    processes_wanted: int | None = None
    shares: int | None = None


class LoaderList(msgspec.Struct, frozen=True):
    loaders: tuple[LoaderStatus, ...] = ()

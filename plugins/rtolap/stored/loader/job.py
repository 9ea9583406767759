"""A loader's job as its process has it: configuration, labels, ownership, and what it is run with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.undecodable import decode_own
from rtolap.kafka.interfaces import StreamConsumer
from rtolap.model.loader import Loader
from rtolap.model.offsets import Offsets
from rtolap.stored.loader.records.rejects import RejectBox
from rtolap.stored.loader.sink import Sink
from rtolap.stored.metastore.leases import Lease, Leases
from rtolap.stored.metastore.load_jobs import LoadJob, LoadJobs
from rtolap.stored.metastore.offsets import OffsetsRecords

LEASE_MS = 15_000


class LeftLabels(msgspec.Struct, frozen=True):
    """Labels of the batches `first` to `last` of an ended incarnation, not given back yet."""

    incarnation: int
    first: int
    last: int
    loaded_at_ms: int


class JobConfig(msgspec.Struct, frozen=True):
    """The configuration of a job in the ledger.

    Attributes:
        start_at: where a job that was reset begins, in every partition; None to begin as its definition says.
        left: the labels that the earlier incarnation left to this one; None for no labels.
        start_topic_id: the topic in which `start_at` counts; None where it is not known.
    """

    loader: Loader
    start_at: Offsets | None = None
    left: LeftLabels | None = None
    start_topic_id: str | None = None


def write_config(config: JobConfig) -> str:
    return msgspec.json.encode(config).decode()


def read_config(job: LoadJob) -> JobConfig:
    return decode_own(job.config, JobConfig, f"the configuration of job {job.job_id} cannot be read")


def label_of(job: str, incarnation: int, sequence: int) -> str:
    """Return the label, which says which job, which incarnation of it and which batch: `flights_1_42`.

    Nothing in it is random, and it can be read in one way only, for its last two parts are numbers.
    """
    return f"{job}_{incarnation}_{sequence}"


class Ownership:
    """The lease that all writes of this process stand on. Thread-safe.

    NotYet while somebody else owns the job, NotLeader once somebody else has taken it.
    """

    def __init__(self, leases: Leases, job: str, owner: str, *, lease_ms: int = LEASE_MS) -> None:
        self._leases = leases
        self._lease_ms = lease_ms
        self._lock = threading.Lock()
        self._lease = leases.acquire(job, owner, lease_ms)

    @property
    def lease(self) -> Lease:
        with self._lock:
            return self._lease

    def renew(self) -> None:
        renewed = self._leases.renew(self.lease, self._lease_ms)
        with self._lock:
            self._lease = renewed

    def release(self) -> None:
        self._leases.release(self.lease)


@dataclass(frozen=True)
class JobResources:
    """Resources that a job is run with, by its owner and by its roles. `box`: where refused records go."""

    jobs: LoadJobs
    records: OffsetsRecords
    sink: Sink
    open_consumer: Callable[[Loader], StreamConsumer]
    box: RejectBox
    clock: Clock

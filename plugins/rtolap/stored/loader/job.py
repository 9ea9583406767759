"""A loader's job as its process has it: configuration, labels, ownership, and what it is run with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.errors import NotFound, Unavailable
from rtolap.base.undecodable import decode_own
from rtolap.events.formats.readers import Registries, no_registries
from rtolap.kafka.interfaces import StreamConsumer, TopicLog
from rtolap.model.loader import Loader, share_of_partition
from rtolap.model.offsets import Offsets
from rtolap.stored.loader.records.rejects import RejectBox
from rtolap.stored.loader.sink import Sink
from rtolap.stored.loader.states import MissingTopic
from rtolap.stored.metastore.leases import Lease, Leases
from rtolap.stored.metastore.load_jobs import LoadJob, LoadJobs
from rtolap.stored.metastore.load_shares import LoadShares
from rtolap.stored.metastore.offsets import OffsetsRecords

LEASE_MS = 15_000
LEFT_MAX = 1_000  # entries; each reset of a divided job leaves one for each share


class LeftLabels(msgspec.Struct, frozen=True):
    """Labels of the batches `first` to `last` of ended records, not given back yet. `share`: of which share;
    None for an undivided job."""

    incarnation: int
    first: int
    last: int
    loaded_at_ms: int
    share: int | None = None


class JobConfig(msgspec.Struct, frozen=True):
    """The configuration of a job in the ledger.

    Attributes:
        start_at: where a job that was reset begins, in every partition; None to begin as its definition says.
        left: the labels that the earlier incarnation left to this one; None for no labels.
        more_left: further ones, of shares and of the undivided job that was divided.
        start_topic_id: the topic in which `start_at` counts; None where it is not known.
    """

    loader: Loader
    start_at: Offsets | None = None
    left: LeftLabels | None = None
    start_topic_id: str | None = None
    more_left: tuple[LeftLabels, ...] = ()

    @property
    def all_left(self) -> tuple[LeftLabels, ...]:
        return self.more_left if self.left is None else (self.left, *self.more_left)

    def leaving(self, labels: tuple[LeftLabels, ...]) -> JobConfig:
        """Return the configuration with more labels to give back."""
        kept = (*self.more_left, *labels)[-LEFT_MAX:]
        return msgspec.structs.replace(self, more_left=kept)


def write_config(config: JobConfig) -> str:
    return msgspec.json.encode(config).decode()


def read_config(job: LoadJob) -> JobConfig:
    return decode_own(job.config, JobConfig, f"the configuration of job {job.job_id} cannot be read")


def label_of(job: str, incarnation: int, sequence: int, share: int | None = None) -> str:
    """Return the label, which says which job, which incarnation of it and which batch: `flights_1_42`; of a
    share also which one: `flights_1_s3_42`.

    Nothing in it is random, and it can be read in one way only: its last part is a number, and so is the one
    before unless that names a share.
    """
    place = f"{incarnation}" if share is None else f"{incarnation}_s{share}"
    return f"{job}_{place}_{sequence}"


@dataclass(frozen=True)
class Portion:
    """The part of a job that a run loads: all of it, or a share.

    Attributes:
        number: the share; None for all of the job.
        shares: number of shares of the job.
    """

    number: int | None = None
    shares: int = 1

    def has_partition(self, partition: int) -> bool:
        return self.number is None or share_of_partition(partition, self.shares) == self.number

    def partitions(self, consumer: StreamConsumer) -> list[int]:
        """Return those of its partitions that the topic has now. Raises NotFound, and Unavailable."""
        return [each for each in consumer.partitions() if self.has_partition(each)]

    def log(self, consumer: StreamConsumer) -> TopicLog | None:
        """Return its part of the topic's log; None where the brokers do not give it. For any thread."""
        try:
            ranges = {each: consumer.log_range(each) for each in self.partitions(consumer)}
            return TopicLog(consumer.topic_id(), ranges)
        except (NotFound, Unavailable):
            return None  # the consumer's errors report the reason


WHOLE = Portion()


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
    """Resources that a job is run with, by its owner and by its roles. `box`: where refused records go;
    `registries`: those of the host, by name."""

    jobs: LoadJobs
    records: OffsetsRecords
    sink: Sink
    open_consumer: Callable[[Loader], StreamConsumer]
    box: RejectBox
    clock: Clock
    registries: Registries = no_registries
    missing: MissingTopic = field(default_factory=MissingTopic)  # as its run begins, again and again


@dataclass(frozen=True)
class SharedResources:
    """Resources of a job whose partitions several processes share.

    Attributes:
        job: resources of the job as a whole.
        shares: its shares in the ledger.
        records: the records of its shares.
        check_rights: raises where Kafka would not let the loader do its work.
    """

    job: JobResources
    shares: LoadShares
    records: OffsetsRecords
    check_rights: Callable[[Loader], None] = lambda loader: None

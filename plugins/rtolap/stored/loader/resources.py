"""Resources that a job is run with, by its owner and by the roles of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rtolap.base.clock import Clock
from rtolap.kafka.interfaces import StreamConsumer
from rtolap.model.loader import Loader
from rtolap.stored.loader.records.rejects import RejectBox
from rtolap.stored.loader.sinks.interface import Sink
from rtolap.stored.metastore.load_jobs import LoadJobs
from rtolap.stored.metastore.offsets import OffsetsRecords


@dataclass(frozen=True)
class JobResources:
    """`box`: where refused records go."""

    jobs: LoadJobs
    records: OffsetsRecords
    sink: Sink
    open_consumer: Callable[[Loader], StreamConsumer]
    box: RejectBox
    clock: Clock

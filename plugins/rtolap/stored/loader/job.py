"""A job's configuration as the ledger keeps it."""

from __future__ import annotations

import msgspec

from rtolap.base.undecodable import decode_own
from rtolap.model.loader import Loader
from rtolap.model.offsets import Offsets
from rtolap.stored.metastore.load_jobs import LoadJob


class LeftLabels(msgspec.Struct, frozen=True):
    """Labels of the batches `first` to `last` of an ended incarnation, not given back yet."""

    incarnation: int
    first: int
    last: int
    loaded_at_ms: int


class JobConfig(msgspec.Struct, frozen=True):
    """`start_at`: where a job that was reset begins, in every partition, not as its definition says, and
    `start_topic_id` in which topic; `left`: what the incarnation before has left to it."""

    loader: Loader
    start_at: Offsets | None = None
    left: LeftLabels | None = None
    start_topic_id: str | None = None


def write_config(config: JobConfig) -> str:
    return msgspec.json.encode(config).decode()


def read_config(job: LoadJob) -> JobConfig:
    return decode_own(job.config, JobConfig, f"the configuration of job {job.job_id} cannot be read")

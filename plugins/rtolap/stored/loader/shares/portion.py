"""A share of a topic, as a loader's run sees it: how many there are, and bounds of its batches."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rtolap.model.loader import Loader, LoaderBatch, LoaderProcesses
from rtolap.stored.loader.job import JobConfig

_ROWS_MIN, _BYTES_MIN = 1, 1 << 10


def shares_of(sharing: LoaderProcesses, partitions: int) -> int:
    """Return into how many shares a topic of so many partitions is divided."""
    wanted = sharing.shares if sharing.shares is not None else 2 * sharing.max
    return max(1, min(wanted, partitions))


def configured_for_share(shares: int) -> Callable[[JobConfig], JobConfig]:
    """Return the change that makes a job's configuration that of one of its shares.

    A process may have all shares that the smallest number of processes leaves it. Together they hold no more
    records than the process of an undivided job.
    """

    def configured(config: JobConfig) -> JobConfig:
        return msgspec.structs.replace(config, loader=_of_share(config.loader, shares))

    return configured


def _of_share(loader: Loader, shares: int) -> Loader:
    sharing = loader.sharing or LoaderProcesses()
    at_once = max(1, -(-shares // sharing.min))
    batch, parallel = loader.batch, max(1, loader.parallel // at_once)
    factor = at_once * (parallel + 2) / (loader.parallel + 2)
    return msgspec.structs.replace(
        loader,
        parallel=parallel,
        batch=LoaderBatch(
            rows=max(_ROWS_MIN, int(batch.rows / factor)),
            bytes=max(_BYTES_MIN, int(batch.bytes / factor)),
            interval_ms=batch.interval_ms,
        ),
    )

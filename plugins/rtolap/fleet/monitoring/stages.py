"""Times of requests by broker, request type and stage, in columns: one look, and what lies between two.

A request's way through a broker, each stage a histogram of its own in JMX:

    request queue ─▶ local ─▶ remote ─▶ response queue ─▶ send            total: their sum
       waits for      log       waits for       waits for      to the
       a handler      append    followers, or   a network      socket
                      or read   for new data    thread

`throttle` is the time for which the client's channel is muted afterwards, by a quota: it is part of no total,
since the answer has been sent by then. `remote` of a fetch is the long poll.

A histogram tells two kinds of things. Its percentiles are of a sample that forgets over minutes, so that they
still tell of requests long past when few have come since. Its count and mean are of all requests since the
broker started: the difference of two looks is exact, `between` computes it. Every request is rounded to whole
milliseconds in each stage.

A look's rows are in the order of broker and request type; NaN: not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted

Int8s = NDArray[np.int8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

_MATRICES = ("mean_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms")
# No more than one in a hundred requests can take a hundred times the mean (Markov's inequality).
_P99_OF_MEAN_MAX = 100.0


class RequestType(IntEnum):
    """A request type of Kafka's metrics; `request_name` gives the name that Kafka uses."""

    PRODUCE = 0
    FETCH_CONSUMER = 1
    FETCH_FOLLOWER = 2


class Stage(IntEnum):
    """Columns of the matrices of `RequestStages`."""

    REQUEST_QUEUE = 0
    LOCAL = 1
    REMOTE = 2
    THROTTLE = 3
    RESPONSE_QUEUE = 4
    SEND = 5
    TOTAL = 6


REQUEST_NAMES = {
    RequestType.PRODUCE: "Produce",
    RequestType.FETCH_CONSUMER: "FetchConsumer",
    RequestType.FETCH_FOLLOWER: "FetchFollower",
}
METRIC_NAMES = {
    Stage.REQUEST_QUEUE: "RequestQueueTimeMs",
    Stage.LOCAL: "LocalTimeMs",
    Stage.REMOTE: "RemoteTimeMs",
    Stage.THROTTLE: "ThrottleTimeMs",
    Stage.RESPONSE_QUEUE: "ResponseQueueTimeMs",
    Stage.SEND: "ResponseSendTimeMs",
    Stage.TOTAL: "TotalTimeMs",
}
STAGE_NAMES = {stage: stage.name.lower().replace("_", " ") for stage in Stage}
# What adds up to the total.
PARTS = (Stage.REQUEST_QUEUE, Stage.LOCAL, Stage.REMOTE, Stage.RESPONSE_QUEUE, Stage.SEND)


@dataclass(frozen=True)
class StageTimes:
    """A histogram of times.

    Attributes:
        count: the number of requests since the broker started; -1 if the source has none.
    """

    count: int = -1
    mean_ms: float = np.nan
    p50_ms: float = np.nan
    p95_ms: float = np.nan
    p99_ms: float = np.nan
    p999_ms: float = np.nan


@dataclass(frozen=True, eq=False)
class RequestStages:
    """Times of request stages. The matrices have a column for each `Stage`.

    Counts of stages differ by the requests that finished while they were read.

    Attributes:
        brokers: Ids of brokers.
        requests: Values of `RequestType`.
        counts: Number of requests. -1 where not known.
        mean_ms: Mean of all requests since the broker started. The percentiles are of late ones.
    """

    brokers: Int32s
    requests: Int8s
    counts: Int64s
    mean_ms: Floats
    p50_ms: Floats
    p95_ms: Floats
    p99_ms: Floats
    p999_ms: Floats

    def __len__(self) -> int:
        return len(self.brokers)

    @property
    def keys(self) -> Int64s:
        """Return a number per row by which two looks are joined."""
        return self.brokers.astype(np.int64) << 8 | self.requests

    def check(self) -> None:
        """Raise Corrupted where columns contradict each other."""
        rows = len(self.brokers)
        for name, column in vars(self).items():
            shape = (rows,) if name in ("brokers", "requests") else (rows, len(Stage))
            if column.shape != shape:
                raise Corrupted(f"stages of requests: {name}", expected=f"shape {shape}", found=column.shape)
        if (np.diff(self.keys) <= 0).any():
            raise Corrupted("stages of requests are not in the order of broker and request")
        if not np.isin(self.requests, list(RequestType)).all():
            raise Corrupted("stages of a request that is not known")


def from_times(times: Mapping[tuple[int, RequestType, Stage], StageTimes]) -> RequestStages:
    """Return the columns of what sources report about brokers."""
    rows = sorted({(broker, request) for broker, request, _ in times})
    index = {row: number for number, row in enumerate(rows)}
    shape = (len(rows), len(Stage))
    counts = np.full(shape, -1, np.int64)
    matrices = {name: np.full(shape, np.nan) for name in _MATRICES}
    for (broker, request, stage), found in times.items():
        row = index[broker, request]
        counts[row, stage] = found.count
        for name, matrix in matrices.items():
            matrix[row, stage] = getattr(found, name)
    return RequestStages(
        np.array([broker for broker, _ in rows], np.int32),
        np.array([request for _, request in rows], np.int8),
        counts,
        **matrices,
    )


@dataclass(frozen=True, eq=False)
class StageWindow:
    """The time between two looks, by broker and request type, in the rows of the later look.

    Attributes:
        counts: Number of requests. -1 where not known.
        mean_ms: Mean of those requests. NaN without any.
        p99_ms: The histogram's percentile, bounded by what the mean allows, so that an old percentile does
            not outlive its requests. NaN without requests.
        histogram_p99_ms: The percentile without that bound.
    """

    from_ms: int
    to_ms: int
    brokers: Int32s
    requests: Int8s
    counts: Int64s
    mean_ms: Floats
    p99_ms: Floats
    histogram_p99_ms: Floats

    def __len__(self) -> int:
        return len(self.brokers)


def between(before: RequestStages, before_ms: int, now: RequestStages, now_ms: int) -> StageWindow:
    """Return the window between two looks. A broker whose counts have fallen was started in between, and is
    counted from its start. A broker that the earlier look has not seen has no window: -1 and NaN."""
    counts_before = np.full(now.counts.shape, -1, np.int64)
    sums_before = np.zeros(now.counts.shape)
    _, rows_before, rows_now = np.intersect1d(before.keys, now.keys, return_indices=True)
    counts_before[rows_now] = before.counts[rows_before]
    sums_before[rows_now] = _sums(before)[rows_before]
    known = (counts_before >= 0) & (now.counts >= 0)
    restarted = (known & (now.counts < counts_before)).any(axis=1, keepdims=True)
    counts_before = np.where(restarted, 0, counts_before)
    sums_before = np.where(restarted, 0.0, sums_before)
    counts = np.where(known, now.counts - counts_before, -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_ms = np.where(counts > 0, (_sums(now) - sums_before) / counts, np.nan)
    p99_ms = np.where(counts == 0, np.nan, np.fmin(now.p99_ms, _P99_OF_MEAN_MAX * mean_ms))
    requests = counts[:, Stage.TOTAL]
    return StageWindow(before_ms, now_ms, now.brokers, now.requests, requests, mean_ms, p99_ms, now.p99_ms)


def _sums(stages: RequestStages) -> Floats:
    """Return the milliseconds of all requests: whole numbers, whose quotient the histogram reports."""
    sums: Floats = np.rint(stages.mean_ms * stages.counts)
    return np.where(stages.counts == 0, 0.0, sums)

"""Readings of one broker's source, and where sources put them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rtolap.fleet.monitoring.stages import RequestType, Stage, StageTimes


@dataclass(frozen=True)
class BrokerGauges:
    """Gauges of a broker. None where the source does not report them.

    Attributes:
        lag_records_max: Records that this broker, as a follower, is behind any leader.
        isr_shrinks: Number since the broker started.
        handlers_idle: Share of time, 0 to 1.
        network_idle: Share of time, 0 to 1.
        offline_log_dirs: Paths.
    """

    lag_records_max: float | None = None
    under_replicated: float | None = None
    isr_shrinks: float | None = None
    handlers_idle: float | None = None
    network_idle: float | None = None
    request_queue: float | None = None
    offline_log_dirs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class BrokerReading:
    """The answer of a broker's source.

    Attributes:
        ids: Ids that the broker gives itself. Empty where the source does not report any.
    """

    times: Mapping[tuple[RequestType, Stage], StageTimes]
    gauges: BrokerGauges = BrokerGauges()
    ids: tuple[int, ...] = field(default=())


@dataclass(frozen=True)
class TopicBytes:
    """Bytes of the partitions that a broker leads.

    Attributes:
        by_topic: Bytes in and out.
        counted: The bytes are counted since the broker started. Otherwise they are per second.
        ids: As in `BrokerReading`.
    """

    by_topic: Mapping[str, tuple[float, float]]
    counted: bool
    ids: tuple[int, ...] = field(default=())

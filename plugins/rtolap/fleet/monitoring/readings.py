"""Readings of one broker's source, and where sources put them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rtolap.fleet.monitoring.stages import RequestType, Stage, StageTimes


@dataclass(frozen=True)
class BrokerGauges:
    """None: the source does not tell. lag_records_max: how far this broker, as a follower, is behind any
    leader. handlers_idle, network_idle: 0 to 1. isr_shrinks: since the broker started.
    offline_log_dirs: paths, None where directories are not told."""

    lag_records_max: float | None = None
    under_replicated: float | None = None
    isr_shrinks: float | None = None
    handlers_idle: float | None = None
    network_idle: float | None = None
    request_queue: float | None = None
    offline_log_dirs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class BrokerReading:
    """ids: what the broker calls itself, empty where the source does not tell."""

    times: Mapping[tuple[RequestType, Stage], StageTimes]
    gauges: BrokerGauges = BrokerGauges()
    ids: tuple[int, ...] = field(default=())


@dataclass(frozen=True)
class TopicBytes:
    """by_topic: bytes in and out, of the partitions that the broker leads; a second, or counted since the
    broker started. ids: as in `BrokerReading`."""

    by_topic: Mapping[str, tuple[float, float]]
    counted: bool
    ids: tuple[int, ...] = field(default=())

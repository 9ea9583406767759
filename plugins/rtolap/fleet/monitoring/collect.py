"""Collects figures from all brokers at the same time.

A broker that does not answer is named, not an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from rtolap.base.errors import RtolapError
from rtolap.base.ids import CarryingPool
from rtolap.fleet.monitoring.http_pages import check_is, post_to_agent, read_page
from rtolap.fleet.monitoring.jolokia import ANSWER_BYTES_MAX, BULK_READ, parse_bulk_answer
from rtolap.fleet.monitoring.prometheus_text import PAGE_BYTES_MAX, parse_page
from rtolap.fleet.monitoring.readings import BrokerGauges, BrokerReading
from rtolap.fleet.monitoring.sources import FleetSources, open_http
from rtolap.fleet.monitoring.stages import RequestStages, RequestType, Stage, StageTimes, from_times

TIMEOUT_S = 3.0
_THREADS = 32


@dataclass(frozen=True)
class MissingSource:
    """A source that could not be read.

    Attributes:
        broker: Id of the broker. None for a source that belongs to none.
    """

    source: str
    reason: str
    broker: int | None = None


@dataclass(frozen=True, eq=False)
class StageLook:
    """A look at the brokers' stages.

    Attributes:
        gauges: Gauges of the brokers that have answered.
    """

    at_ms: int
    stages: RequestStages
    gauges: Mapping[int, BrokerGauges]
    missing: tuple[MissingSource, ...] = ()

    @property
    def silent_brokers(self) -> tuple[int, ...]:
        return tuple(sorted({missing.broker for missing in self.missing if missing.broker is not None}))


class StageReader:
    """Keeps a connection to each broker's source. Close it.

    Raises DefinitionError for secrets and certificates that cannot be used.
    """

    def __init__(self, sources: FleetSources, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._sources = {broker: declared for broker, declared in sources.brokers.items() if declared.url}
        self._https: dict[int, httpx.Client] = {}
        for broker in self._sources:
            self._https[broker] = open_http(sources.access_of(broker), f"broker {broker}", timeout_s)

    def __enter__(self) -> StageReader:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        for http in self._https.values():
            http.close()

    def look(self, at_ms: int) -> StageLook:
        """Look at all brokers at the same time, each within the timeout."""
        missing: list[MissingSource] = []
        if not self._sources:
            missing.append(
                MissingSource("JMX", "no broker's Jolokia agent or Prometheus exporter is declared")
            )
            return StageLook(at_ms, from_times({}), {}, tuple(missing))
        brokers = sorted(self._sources)
        with CarryingPool(min(_THREADS, len(brokers))) as pool:
            answers = list(pool.map(self._read, brokers))
        times: dict[tuple[int, RequestType, Stage], StageTimes] = {}
        gauges: dict[int, BrokerGauges] = {}
        for broker, answer in zip(brokers, answers, strict=True):
            if isinstance(answer, MissingSource):
                missing.append(answer)
                continue
            gauges[broker] = answer.gauges
            times |= {(broker, *key): found for key, found in answer.times.items()}
        return StageLook(at_ms, from_times(times), gauges, tuple(missing))

    def _read(self, broker: int) -> BrokerReading | MissingSource:
        declared = self._sources[broker]
        name = f"{'Jolokia' if declared.jolokia else 'Prometheus'} of broker {broker}"
        try:
            reading = self._jolokia(broker) if declared.jolokia else self._prometheus(broker)
            check_is(broker, reading.ids)
        except RtolapError as error:
            return MissingSource(name, str(error), broker)
        return reading

    def _jolokia(self, broker: int) -> BrokerReading:
        http, url = self._https[broker], self._sources[broker].jolokia
        return parse_bulk_answer(
            post_to_agent(http, url, BULK_READ, bytes_max=ANSWER_BYTES_MAX, timeout_s=self._timeout_s)
        )

    def _prometheus(self, broker: int) -> BrokerReading:
        url = self._sources[broker].prometheus
        http, timeout_s = self._https[broker], self._timeout_s
        return parse_page(read_page(http, "GET", url, bytes_max=PAGE_BYTES_MAX, timeout_s=timeout_s))

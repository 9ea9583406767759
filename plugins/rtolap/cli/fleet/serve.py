"""`rtolap fleet serve`: the mover of a Kafka cluster; start several, and one of them works.

This module computes the times of writes that the mover uses, from looks at the brokers' sources.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

from rtolap.base.clock import SystemClock
from rtolap.base.errors import Unavailable
from rtolap.base.settings import Settings
from rtolap.base.stopping import stop_event
from rtolap.cli.fleet.access import ClusterOption, open_administration, open_metadata
from rtolap.cli.fleet.looking import SourcesOption, declared_sources
from rtolap.cli.serving import ServedMetricsPortOption, service_settings
from rtolap.fleet.monitoring.collect import StageLook, StageReader
from rtolap.fleet.monitoring.stages import RequestType, Stage, between
from rtolap.fleet.moves.metrics import MoverMetrics
from rtolap.fleet.moves.mover import Mover
from rtolap.fleet.moves.produce_latency import ProduceReader, ProduceReading
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.store import FleetStore
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.metadata import paths
from rtolap.metadata.store import MetadataStore
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER
from rtolap.servers.metrics_server import MetricsServer

_log = logging.getLogger(__name__)
_DEFAULTS = MoverSettings()
_REACH_AGAIN_S = 1.0

REQUESTS_MIN = 20  # fewer writes between two looks have no 99th percentile worth the name
_WINDOW_MS_MAX = 60_000  # a look that is older tells of another time, before the plan


class ProduceTimes:
    """A `ProduceReader` by looks at the brokers' sources. `look`: as `StageReader.look`."""

    def __init__(self, look: Callable[[int], StageLook]) -> None:
        self._look = look
        self._before: StageLook | None = None

    def read(self, now_ms: int) -> ProduceReading | None:
        before, now = self._before, self._look(now_ms)
        self._before = now
        if before is None or now.at_ms - before.at_ms > _WINDOW_MS_MAX:
            return None
        window = between(before.stages, before.at_ms, now.stages, now.at_ms)
        # a broker that has answered and served no write at all has no row
        p99_ms: dict[int, float | None] = dict.fromkeys(now.gauges)
        for row in np.flatnonzero(window.requests == RequestType.PRODUCE):
            found = float(window.p99_ms[row, Stage.TOTAL])
            broker, requests = int(window.brokers[row]), int(window.counts[row])
            if requests < 0:
                p99_ms.pop(broker, None)  # its source counts nothing, or is new
            elif requests >= REQUESTS_MIN and np.isfinite(found):
                p99_ms[broker] = found
        return ProduceReading(p99_ms)


def serve(
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    metrics_port: ServedMetricsPortOption = 0,
    look_every_s: Annotated[
        float, typer.Option(min=0.1, help="Time between two looks at the brokers.")
    ] = _DEFAULTS.look_every_s,
    produce_p99_ms_max: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Produce latency above which a broker gets fewer moves, read by --sources."
        ),
    ] = None,
    produce_every_s: Annotated[
        float, typer.Option(min=0.5, help="Time between two readings of the produce latency.")
    ] = _DEFAULTS.produce_every_ms / 1000,
    sources: SourcesOption = None,
) -> None:
    """Carry out the plans that are submitted for a cluster, until the process is stopped.

    Active moves go on then, and the next mover continues.
    """
    settings = service_settings()
    stopping = stop_event()
    clock = SystemClock()
    mover_settings = replace(
        _DEFAULTS,
        look_every_s=look_every_s,
        produce_p99_ms_max=produce_p99_ms_max,
        produce_every_ms=round(produce_every_s * 1000),
    )
    metrics = MoverMetrics(clock, mover_settings)
    with ExitStack() as opened:
        produce: ProduceReader | None = None
        if produce_p99_ms_max is not None:
            produce = ProduceTimes(opened.enter_context(StageReader(declared_sources(sources))).look)
        server = MetricsServer.of_settings(metrics.registry, settings, metrics_port)
        opened.callback(server.close)
        _log.info("metrics at %s", server.url)
        administration = _reached(opened, cluster, stopping, metrics)
        if administration is not None:
            store = opened.enter_context(open_metadata(settings))
            _move(settings, administration, store, stopping, mover_settings, metrics, produce)


def _reached(
    opened: ExitStack, cluster: str, stopping: threading.Event, metrics: MoverMetrics
) -> FleetAdministration | None:
    """Return the cluster, as soon as it answers; None if the process is stopped before."""
    while not stopping.is_set():
        try:
            return opened.enter_context(open_administration(cluster))
        except Unavailable as error:
            _log.warning("the cluster is waited for: %s", error)
            metrics.failed(error.code)
        stopping.wait(_REACH_AGAIN_S)
    return None


def _move(
    settings: Settings,
    administration: FleetAdministration,
    store: MetadataStore,
    stopping: threading.Event,
    mover_settings: MoverSettings,
    metrics: MoverMetrics,
    produce: ProduceReader | None,
) -> None:
    cluster_id = administration.describe_cluster().cluster_id
    identity = f"{socket.gethostname()}:{os.getpid()}"
    election = store.elect(paths.fleet_lease(cluster_id), identity, lambda: None)
    try:
        mover = Mover(
            administration,
            FleetStore(store, cluster_id),
            election.fence,
            SystemClock(),
            settings.token(),
            identity=identity,
            settings=mover_settings,
            metrics=metrics,
            stopping=stopping,
            produce=produce,
        )
        mover.run()
    finally:
        election.close()

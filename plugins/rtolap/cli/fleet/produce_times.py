"""The times of writes that the mover goes by, out of looks at the brokers' sources."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rtolap.fleet.monitoring.collect import StageLook
from rtolap.fleet.monitoring.stages import RequestType, Stage, between
from rtolap.fleet.moves.produce_latency import ProduceReading

REQUESTS_MIN = 20  # fewer writes between two looks have no 99th percentile worth the name
_WINDOW_MS_MAX = 60_000  # a look that is older tells of another time, before the plan


class ProduceTimes:
    """`look`: as `StageReader.look`."""

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

"""A watermark client without thread and socket: who owns the run says when it sends, and what is lost."""

from __future__ import annotations

import random
from collections.abc import Callable

from rtolap.base.errors import RtolapError, Unavailable
from rtolap.protocols.watermark.messages import ReportAnswer, ReportBatch
from rtolap.watermark_client.session import WatermarkSession

from tests.support.twins.clock import ManualClock

OLD_KEPT = 20


class SteppedClient(WatermarkSession):
    """`deliver` gives a batch to the leader."""

    def __init__(
        self, client_id: str, random_: random.Random, deliver: Callable[[ReportBatch], ReportAnswer]
    ) -> None:
        super().__init__(client_id, ManualClock())  # equal numbers in equal runs
        self._random, self._deliver = random_, deliver
        self._old: list[ReportBatch] = []

    def close(self, timeout_s: float) -> None:
        """Close; what was not sent is lost."""

    def send(self) -> None:
        """Send one batch, which or whose answer may be lost; now and then an old one comes in again."""
        if self._old and self._random.random() < 0.2:
            self._ignoring(self._random.choice(self._old))
        batch, chance = self.batch(), self._random.random()
        if chance < 0.1:
            return  # lost on the way
        answer = self._deliver(batch)
        self._old = [*self._old, batch][-OLD_KEPT:]
        if chance < 0.2:
            return  # taken, and the answer is lost
        self.answered(answer)

    def _ignoring(self, batch: ReportBatch) -> None:
        try:
            self._deliver(batch)
        except RtolapError as error:
            if isinstance(error, Unavailable):
                raise

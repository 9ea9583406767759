"""A watermark client without thread and socket: who owns the run says when it sends, and what is lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from rtolap.base.errors import RtolapError, Unavailable
from rtolap.wire.watermark import ReportAnswer, ReportBatch
from rtolap.wire.watermark_pending import Pending

OLD_KEPT = 20


class SteppedClient:
    """The protocol of `wire.watermark_client`, on its `Pending`. `deliver` gives a batch to the leader."""

    def __init__(
        self, client_id: str, random_: random.Random, deliver: Callable[[ReportBatch], ReportAnswer]
    ) -> None:
        self._client_id, self._random, self._deliver = client_id, random_, deliver
        self._pending = Pending()
        self._answer: ReportAnswer | None = None
        self._unsent: ReportBatch | None = None
        self._old: list[ReportBatch] = []
        self._sequence = self._last_answered = 0
        self._begins = True

    def report_progress(
        self,
        level: str,
        partition: int,
        generation: int,
        hosts: Sequence[str],
        latest_ms: ArrayLike,
        counts: ArrayLike | None = None,
        *,
        partitions: int = 0,
    ) -> None:
        events = None if counts is None else np.asarray(counts, np.int64)
        latest = np.asarray(latest_ms, np.int64)
        self._pending.progress(level, partition, generation, hosts, latest, events, partitions)

    def has_taken(self, level: str, partition: int, generation: int) -> bool:
        said_in = self._pending.said_in(level, partition, generation)
        return said_in is not None and said_in <= self._last_answered

    def input_watermark(self, level: str) -> int | None:
        return None if self._answer is None else self._answer.inputs.get(level)

    def approved_until(self) -> int | None:
        return None if self._answer is None else self._answer.approved_until_ms

    def close(self, timeout_s: float) -> None:
        self._unsent = None

    def send(self) -> None:
        """One batch, which or whose answer may be lost; now and then an old one comes in again."""
        if self._old and self._random.random() < 0.2:
            self._ignoring(self._random.choice(self._old))
        if self._unsent is None:
            self._sequence += 1
            self._unsent = self._next()
        batch, chance = self._unsent, self._random.random()
        if chance < 0.1:
            return  # lost on the way
        answer = self._deliver(batch)
        self._old = [*self._old, batch][-OLD_KEPT:]
        if chance < 0.2:
            return  # taken, and the answer is lost
        self._unsent, self._begins = None, answer.resend
        if self._answer is None or answer.epoch >= self._answer.epoch:
            self._answer = answer
        if not answer.resend:
            self._last_answered = batch.sequence

    def _ignoring(self, batch: ReportBatch) -> None:
        try:
            self._deliver(batch)
        except RtolapError as error:
            if isinstance(error, Unavailable):
                raise

    def _next(self) -> ReportBatch:
        if self._answer is None:
            return ReportBatch(self._client_id, self._sequence, 0, True)
        if self._begins:
            self._pending.begin()
        return self._pending.take(self._client_id, self._sequence, self._answer.epoch, self._begins)

"""The consumer's state of one cube, with the reason for people, and the switch that follows it."""

from __future__ import annotations

import logging

from rtolap.base.errors import RtolapError
from rtolap.cubes.receiver.states import READING, ConsumerEvent, ConsumerState, transition
from rtolap.kafka.interfaces import StreamConsumer

log = logging.getLogger(__name__)


class Lifecycle:
    """Changed by the core thread only; `states` has the table."""

    def __init__(self, cube: str, consumer: StreamConsumer) -> None:
        self.state = ConsumerState.STOPPED
        self.reason = ""
        self._cube = cube
        self._consumer = consumer

    @property
    def reading(self) -> bool:
        return self.state in READING

    def apply(self, event: ConsumerEvent) -> None:
        self.state = transition(self.state, event, subject=f"cube {self._cube}")

    def fail(self, error: RtolapError) -> None:
        if self.state is ConsumerState.FAILED:
            return
        log.error("cube %s stops: %s", self._cube, error)
        self.apply(ConsumerEvent.FAIL)
        self.reason = str(error)

    def rename(self, error: RtolapError) -> None:
        """It has failed, and this is known to be why."""
        if self.state is ConsumerState.FAILED and self.reason != str(error):
            log.error("cube %s: %s", self._cube, error)
            self.reason = str(error)

    def restart(self) -> bool:
        """Return True if it had failed, and may start again."""
        if self.state is not ConsumerState.FAILED:
            return False
        self.apply(ConsumerEvent.STOP)
        self.reason = ""
        return True

    def hold(self, reason: str | None) -> None:
        """Pause while there is a reason to."""
        if reason is not None and self.reading:
            self._consumer.pause()
            self.apply(ConsumerEvent.PAUSE)
        elif reason is None and self.state is ConsumerState.PAUSED:
            self._consumer.resume()
            self.apply(ConsumerEvent.RESUME)
        self.reason = reason or self._consumer.broker_trouble or ""

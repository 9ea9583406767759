"""The pauses of one cube's consumer: of the cube, of this receiver, and those that its limits ask for."""

from __future__ import annotations

from collections.abc import Collection

from rtolap.base.clock import Clock
from rtolap.cubes.receiver.core.limits import ConsumerLimits
from rtolap.cubes.receiver.local.tables import LocalState
from rtolap.cubes.receiver.states import ConsumerLifecycle
from rtolap.cubes.receiver.views import CubeView
from rtolap.model.cube import Schema
from rtolap.model.offsets import Offsets


class Pauses:
    """The hold on a consumer, and since when it lasts.

    Attributes:
        is_paused_here: the local switch, beside the cube's own.
        since_ms: time at which the consumer stopped reading all that arrives; None while it reads.
    """

    def __init__(self, schema: Schema, life: ConsumerLifecycle, limits: ConsumerLimits, clock: Clock) -> None:
        self.is_paused_here = False
        self.since_ms: int | None = None
        self._schema = schema
        self._life = life
        self._limits = limits
        self._clock = clock

    def ended(self) -> None:
        """Note that the consumer reads nothing, and has nothing to read."""
        self.since_ms = None

    def follow(self, state: LocalState, view: CubeView, behind: Offsets) -> None:
        """Hold the consumer, or let it read, by what the cube, the switch and the limits say now.

        Args:
            state: the state of now.
            view: what the records say.
            behind: by partition, promised offsets that its position has not reached.
        """
        self._limits.observe(state, self._schema, view.records)
        if view.control.paused:
            self._hold(state, "paused for the cube")
        elif self.is_paused_here:
            self._hold(state, "paused here")
        else:
            self._hold(state, self._limits.reason, behind if self._limits.reads_promised else ())

    def _hold(self, state: LocalState, reason: str | None, owed: Collection[int] = ()) -> None:
        self._life.hold(reason, owed, state.positions)
        if reason is None:
            self.since_ms = None
        elif self.since_ms is None:
            self.since_ms = self._clock.now_ms()

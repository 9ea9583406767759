"""The watermarks of an application as its owner persists them, and publishes them afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from rtolap.base.clock import Clock
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.records import ApplicationState, KnownUnit, LevelState
from rtolap.watermark.topology import LevelMarks, Marks


class Published(msgspec.Struct, frozen=True):
    marks: Marks
    at_ms: int


class ExpectedReporters(msgspec.Struct, frozen=True):
    """The reporters that a next owner awaits before it goes on: see `metadata.records.ApplicationState`."""

    generations: dict[str, dict[int, int]]
    units: tuple[KnownUnit, ...]


class Publisher:
    """`heard` is called under a lock of its own making. One write at a time."""

    def __init__(
        self,
        name: str,
        records: ApplicationRecords,
        clock: Clock,
        state: ApplicationState,
        heard: Callable[[], ExpectedReporters],
    ) -> None:
        self._name = name
        self._records = records
        self._clock = clock
        self._persisted = state
        self._heard = heard
        self._writing = threading.Lock()
        self.published = Published(_marks(state), clock.now_ms())

    def persist(self, marks: Marks | None = None) -> None:
        """Persist a turn of publishing, or, without `marks`, only the reporters that a next owner awaits.

        Raises what the store raises, NotOwner where a later epoch has begun; then nothing is published.
        """
        with self._writing:
            reporters = self._heard()
            wanted = _state(self._persisted, self.published.marks if marks is None else marks, reporters)
            if wanted != self._persisted:
                self._persisted = self._records.publish(self._name, wanted)
            if marks is not None:
                self.published = Published(_marks(self._persisted), self._clock.now_ms())


def _state(before: ApplicationState, marks: Marks, reporters: ExpectedReporters) -> ApplicationState:
    return ApplicationState(
        epoch=before.epoch,
        owner=before.owner,
        levels={name: LevelState(level.input_ms, level.output_ms) for name, level in marks.levels.items()},
        global_ms=marks.global_ms,
        generations=reporters.generations,
        units=reporters.units,
    )


def _marks(state: ApplicationState) -> Marks:
    levels = {name: LevelMarks(level.input_ms, level.output_ms) for name, level in state.levels.items()}
    return Marks(levels, state.global_ms)

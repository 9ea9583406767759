"""The histories of this owner's applications: written by the tick, read over REST."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.coordinator.answers import as_message
from rtolap.coordinator.applications.history import NOBODY, History, Name, Rows
from rtolap.coordinator.applications.holders import sample
from rtolap.coordinator.applications.running import RunningApplication
from rtolap.metadata.records import UnitKey
from rtolap.model.application import Application
from rtolap.protocols.watermark import messages as wire
from rtolap.watermark.snapshot import NEVER, Indices, Instants

_FOREVER_MS = 2**62

Places = NDArray[np.int32]


class Histories:
    """The histories of what runs here; thread-safe. Levels that a changed application keeps go on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._histories: dict[str, History] = {}

    def record(self, running: RunningApplication, now_ms: int) -> None:
        """Record a sample, once a tick, after the tick has published."""
        sampled = sample(running, now_ms)
        with self._lock:
            self._of(running).record(sampled)

    def forget(self, name: str) -> None:
        with self._lock:
            self._histories.pop(name, None)

    def clear(self) -> None:
        """Note that another term has begun: what was seen in the one before has a gap after it."""
        with self._lock:
            self._histories.clear()

    def answer(
        self,
        running: RunningApplication,
        now_ms: int,
        level: str | None,
        since_ms: int | None,
        until_ms: int | None,
        samples: int,
    ) -> wire.ApplicationHistory:
        """Return the history of one level, or of all. Raises DefinitionError for an unknown level or a span
        that ends before it begins."""
        levels = running.levels(level)
        first_ms, last_ms = since_ms or 0, _FOREVER_MS if until_ms is None else until_ms
        if first_ms > last_ms:
            raise DefinitionError("the span ends before it begins", found=f"{first_ms} to {last_ms}")
        with self._lock:
            history = self._of(running)
            rows = history.rows(first_ms, last_ms, samples)
            oldest_ms = history.oldest_ms
            names = list(history.names.names)
        return wire.ApplicationHistory(
            application=running.application.name,
            epoch=running.epoch,
            now_ms=now_ms,
            since_ms=oldest_ms,
            at_ms=rows["at_ms"].tolist(),
            global_ms=_instants(rows["global_ms"]),
            levels={
                name: _level(running.application, rows, at, name, names)
                for at, name in enumerate(history.levels)
                if name in levels
            },
            approvals=tuple(as_message(wire.ApprovalInfo, each) for each in running.approvals),
        )

    def _of(self, running: RunningApplication) -> History:
        levels = running.application.in_order()
        history = self._histories.get(running.application.name)
        if history is None:
            history = self._histories[running.application.name] = History(levels)
        elif history.levels != levels:
            history = self._histories[running.application.name] = history.changed(levels)
        return history


def _level(application: Application, rows: Rows, at: int, name: str, names: list[Name]) -> wire.LevelHistory:
    marks_ms = rows["marks_ms"][:, at]
    hosts = _traces(rows["host"][:, at], rows["host_ms"][:, at])
    units = _traces(rows["unit"][:, at], rows["unit_ms"][:, at])
    return wire.LevelHistory(
        role=application.role(name),
        input_ms=_instants(marks_ms[:, 0]),
        output_ms=_instants(marks_ms[:, 1]),
        holding=tuple(rows["holding"][:, at].tolist()),
        hosts=tuple(
            wire.HostTrace(host=host, at=tuple(samples.tolist()), latest_ms=_instants(instants_ms))
            for index, samples, instants_ms in hosts
            if isinstance(host := names[index], str)
        ),
        units=tuple(
            wire.UnitTrace(
                processor=unit.processor,
                key_group=unit.key_group,
                at=tuple(samples.tolist()),
                oldest_work_ms=tuple(instants_ms.tolist()),
            )
            for index, samples, instants_ms in units
            if isinstance(unit := names[index], UnitKey)
        ),
    )


def _traces(places: Places, instants_ms: Instants) -> Iterator[tuple[int, Indices, Instants]]:
    """Yield, per name, the samples in which it has a place, and its instant in each."""
    samples, place = np.nonzero(places != NOBODY)
    index = places[samples, place]
    order = np.argsort(index, kind="stable")
    indices, begin = np.unique(index[order], return_index=True)
    groups = np.split(order, begin[1:])
    for name, mine in zip(indices.tolist(), groups, strict=False):  # nothing splits in one
        yield name, samples[mine], instants_ms[samples[mine], place[mine]]


def _instants(column: Instants) -> tuple[int | None, ...]:
    """Return instants for a message, where NEVER, which is unknown, becomes None."""
    return tuple(None if instant_ms == NEVER else instant_ms for instant_ms in column.tolist())

"""Oldest work per unit, with leases."""

from __future__ import annotations

from collections.abc import Iterable

from rtolap.coordinator.applications.limits import UNITS_MAX
from rtolap.metadata.records import UnitKey
from rtolap.model.application import Application
from rtolap.watermark.topology import Marks, Unit
from rtolap.wire.watermark import UnitReport

BEFORE_EVERYTHING_MS = 0  # event times before 1970 are refused


class Units:
    """Of one application. A unit that a former leader knew is awaited: until it speaks or its lease ends it
    holds the output of its level where that stands. The caller locks."""

    def __init__(self, application: Application, known: Iterable[UnitKey], now_ms: int) -> None:
        self._lease_ms = {level.name: level.unit_lease_ms for level in application.levels}
        self._units: dict[UnitKey, Unit] = {}
        self._awaited: dict[UnitKey, int] = {
            key: now_ms + self._lease_ms[key.level] for key in known if key.level in self._lease_ms
        }
        self.expired = 0

    def __len__(self) -> int:
        return len(self._units) + len(self._awaited)

    def has_room(self, report: UnitReport) -> bool:
        key = UnitKey(report.level, report.processor, report.key_group)
        return report.left or key in self._units or key in self._awaited or len(self) < UNITS_MAX

    def take(self, report: UnitReport, now_ms: int) -> None:
        """Ask `has_room` first."""
        key = UnitKey(report.level, report.processor, report.key_group)
        if report.left:
            self._units.pop(key, None)
            self._awaited.pop(key, None)
            return
        lease_until_ms = now_ms + self._lease_ms[report.level]
        self._units[key] = Unit(report.processor, report.key_group, report.oldest_work_ms, lease_until_ms)
        self._awaited.pop(key, None)

    def expire(self, now_ms: int) -> tuple[UnitKey, ...]:
        """Let those go whose lease has ended."""
        over = [key for key, unit in self._units.items() if unit.lease_until_ms <= now_ms]
        over += [key for key, until_ms in self._awaited.items() if until_ms <= now_ms]
        for key in over:
            self._units.pop(key, None)
            self._awaited.pop(key, None)
        self.expired += len(over)
        return tuple(over)

    def keys(self) -> tuple[UnitKey, ...]:
        return tuple(sorted([*self._units, *self._awaited]))

    def work(self, published: Marks) -> dict[str, list[Unit]]:
        """Level → its units, those awaited with the work that holds the output where it was published."""
        found: dict[str, list[Unit]] = {}
        for key, unit in self._units.items():
            found.setdefault(key.level, []).append(unit)
        for key, until_ms in self._awaited.items():
            marks = published.levels.get(key.level)
            output_ms = None if marks is None else marks.output_ms
            held_ms = BEFORE_EVERYTHING_MS if output_ms is None else output_ms
            found.setdefault(key.level, []).append(Unit(key.processor, key.key_group, held_ms, until_ms))
        return found

    def awaited(self, level: str) -> tuple[UnitKey, ...]:
        return tuple(sorted(key for key in self._awaited if key.level == level))

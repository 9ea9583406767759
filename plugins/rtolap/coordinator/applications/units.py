"""Oldest work per unit, with leases, fenced by the generation of the unit's owner."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from rtolap.coordinator.applications.limits import NUMBER_MAX, UNITS_BYTES_MAX, UNITS_MAX
from rtolap.metadata import codec
from rtolap.metadata.records import KnownUnit, UnitKey
from rtolap.model.application import Application
from rtolap.protocols.watermark.messages import UnitReport
from rtolap.watermark.topology import Marks, Unit

BEFORE_EVERYTHING_MS = 0  # event times before 1970 are refused


class Units:
    """The units of one application. A unit that a former coordinator knew is awaited: until it reports or its
    lease ends it holds the output of its level where that stands. The caller locks.

    An owner of a later generation replaces the one before, whose reports are void from then on, whichever
    coordinator they reach. A unit that has left or whose lease has ended is forgotten with its generation:
    nothing of it counts that could advance a watermark, and an older owner that reports then only holds the
    level back.
    """

    def __init__(self, application: Application, known: Iterable[KnownUnit], now_ms: int) -> None:
        self._lease_ms = {level.name: level.unit_lease_ms for level in application.levels}
        self._units: dict[UnitKey, Unit] = {}
        self._awaited: dict[UnitKey, int] = {
            unit.key: now_ms + self._lease_ms[unit.level] for unit in known if unit.level in self._lease_ms
        }
        self._generations: dict[UnitKey, int] = {
            unit.key: unit.generation for unit in known if unit.level in self._lease_ms
        }
        self._known: tuple[KnownUnit, ...] | None = None  # as `known` said it, while it is so
        self._bytes = sum(map(_size, self._generations))
        self.expired = 0

    def __len__(self) -> int:
        return len(self._units) + len(self._awaited)

    def has_room(self, report: UnitReport) -> bool:
        key = _key(report)
        if report.left or key in self._generations:
            return True
        return len(self) < UNITS_MAX and self._bytes + _size(key) <= UNITS_BYTES_MAX

    def later_generation(self, report: UnitReport) -> int | None:
        """Return the generation of the owner that has replaced the reporter; None if there is none."""
        known = self._generations.get(_key(report))
        return known if known is not None and report.generation < known else None

    def apply_report(self, report: UnitReport, now_ms: int) -> None:
        """Ask `has_room` and `later_generation` first."""
        key = _key(report)
        if report.left:
            self._forget(key)
            return
        lease_until_ms = now_ms + self._lease_ms[report.level]
        self._units[key] = Unit(report.processor, report.key_group, report.oldest_work_ms, lease_until_ms)
        before = self._generations.get(key)
        if before is None:
            self._bytes += _size(key)
        if before != report.generation:
            self._generations[key], self._known = report.generation, None
        self._awaited.pop(key, None)

    def shift(self, step_ms: int) -> None:
        """Move all leases, because the clock was set."""
        self._units = {
            key: replace(unit, lease_until_ms=unit.lease_until_ms + step_ms)
            for key, unit in self._units.items()
        }
        self._awaited = {key: until_ms + step_ms for key, until_ms in self._awaited.items()}

    def expire(self, now_ms: int) -> tuple[UnitKey, ...]:
        """Forget the units whose lease has ended. Return their keys."""
        over = [key for key, unit in self._units.items() if unit.lease_until_ms <= now_ms]
        over += [key for key, until_ms in self._awaited.items() if until_ms <= now_ms]
        for key in over:
            self._forget(key)
        self.expired += len(over)
        return tuple(over)

    def _forget(self, key: UnitKey) -> None:
        self._units.pop(key, None)
        self._awaited.pop(key, None)
        if self._generations.pop(key, None) is not None:
            self._bytes -= _size(key)
            self._known = None

    def known(self) -> tuple[KnownUnit, ...]:
        """Return the units that a next owner awaits. It is called with every report, so sorted only when
        new."""
        if self._known is None:
            units = [
                KnownUnit(key.level, key.processor, key.key_group, generation)
                for key, generation in self._generations.items()
            ]
            self._known = tuple(sorted(units))
        return self._known

    def work(self, published: Marks) -> dict[str, list[Unit]]:
        """Return the units of each level. Those that are awaited have the work that holds the output where it
        was published."""
        units_by_level: dict[str, list[Unit]] = {}
        for key, unit in self._units.items():
            units_by_level.setdefault(key.level, []).append(unit)
        for key, until_ms in self._awaited.items():
            marks = published.levels.get(key.level)
            output_ms = None if marks is None else marks.output_ms
            holds_ms = BEFORE_EVERYTHING_MS if output_ms is None else output_ms
            units_by_level.setdefault(key.level, []).append(
                Unit(key.processor, key.key_group, holds_ms, until_ms)
            )
        return units_by_level

    def awaited(self, level: str) -> tuple[UnitKey, ...]:
        return tuple(sorted(key for key in self._awaited if key.level == level))


def _key(report: UnitReport) -> UnitKey:
    return UnitKey(report.level, report.processor, report.key_group)


def _size(key: UnitKey) -> int:
    """Return the size in the node, with a comma, whatever the generation of its owner will be."""
    return len(codec.encode(KnownUnit(key.level, key.processor, key.key_group, NUMBER_MAX))) + 1

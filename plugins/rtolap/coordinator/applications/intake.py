"""Takes a batch of reports into sources and units, and says which parts of it had no effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rtolap.coordinator.applications import source_reports
from rtolap.coordinator.applications.limits import (
    INSTANT_MAX_MS,
    NAME_MAX,
    NUMBER_MAX,
    PARTITIONS_MAX,
    UNITS_BYTES_MAX,
    UNITS_MAX,
)
from rtolap.coordinator.applications.sessions import ReportSession, SessionNames
from rtolap.coordinator.applications.source_reports import ReportColumns
from rtolap.coordinator.applications.sources import SourceState
from rtolap.coordinator.applications.units import Units
from rtolap.model.application import Application
from rtolap.protocols.watermark import messages as wire


class Intake:
    """The intake of one application's reports. `check` a batch first, then `names_fit`, then `apply_reports`,
    under the caller's lock.
    """

    def __init__(
        self,
        application: Application,
        sources: Mapping[str, SourceState],
        units: Units,
        counters: Counter[str],
    ) -> None:
        self._application = application
        self._sources = sources
        self._units = units
        self._counters = counters
        self._levels = frozenset(level.name for level in application.levels)

    def check(self, report: wire.SourceReport) -> ReportColumns | None:
        """Check a report. Raises DefinitionError for a report that cannot be read; returns None for one in
        plain names."""
        return source_reports.check(report) if report.level in self._sources else None

    def names_fit(
        self, session: ReportSession, batch: wire.ReportBatch, read: Sequence[ReportColumns | None]
    ) -> bool:
        if not session.known and not batch.begins:
            return False
        known = {level: len(names.names) for level, names in session.names.items()}
        for report, columns in zip(batch.sources, read, strict=True):
            source = self._sources.get(report.level)
            if source is None:
                continue
            after = source_reports.names_after(source, report, known.get(report.level, 0), columns)
            if after is None:
                return False
            known[report.level] = after
        return True

    def apply_reports(
        self,
        session: ReportSession,
        batch: wire.ReportBatch,
        read: Sequence[ReportColumns | None],
        now_ms: int,
    ) -> list[wire.Refusal]:
        """Take units first: work that was taken in is reported before its source goes on."""
        refused = []
        for unit in batch.units:
            why = self._why_not(unit)
            if why:
                path = wire.unit_path(unit.level, unit.processor, unit.key_group)
                refused.append(wire.Refusal(path, why))
            else:
                self._units.apply_report(unit, now_ms)
        for report, columns in zip(batch.sources, read, strict=True):
            source = self._sources.get(report.level)
            if source is None:
                refused.append(wire.Refusal(report.level, self.no_level("source", sorted(self._sources))))
                continue
            names = session.names.setdefault(report.level, SessionNames())
            source_reports.learn_names(report, names)
            if why := _where_not(report):
                self._counters["unknown_partitions"] += 1
                refused.append(wire.Refusal(report.level, why))
            else:
                refused += source_reports.apply_report(source, report, names, columns, now_ms)
        return refused

    def missed_names(self, session: ReportSession) -> bool:
        """Return True if a host is listed now that this session believes it has reported."""
        return any(
            source_reports.missed_names(self._sources[level], names) for level, names in session.names.items()
        )

    def _why_not(self, unit: wire.UnitReport) -> str:
        if unit.level not in self._levels:
            return self.no_level("level", sorted(self._levels))
        if not unit.processor or len(unit.processor) > NAME_MAX or not 0 <= unit.key_group <= NUMBER_MAX:
            self._counters["unknown_units"] += 1
            return f"a processor has a name of 1 to {NAME_MAX} characters, key groups count from 0 on"
        if unit.oldest_work_ms is not None and unit.oldest_work_ms < 0:
            self._counters["negative"] += 1
            return "oldest work before 1970; expected ms since the epoch"
        if unit.oldest_work_ms is not None and unit.oldest_work_ms > INSTANT_MAX_MS:
            self._counters["in_future"] += 1
            return "oldest work after the year 9999; expected ms since the epoch"
        if not 0 <= unit.generation <= NUMBER_MAX:
            self._counters["unknown_units"] += 1
            return f"generations count from 0 to {NUMBER_MAX}; found {unit.generation}"
        if (later := self._units.later_generation(unit)) is not None:
            self._counters["stale_units"] += 1
            return f"generation {unit.generation} is over, the unit's owner is of generation {later}"
        if not self._units.has_room(unit):
            self._counters["too_many_units"] += 1
            return f"too many units; expected at most {UNITS_MAX}, with names of {UNITS_BYTES_MAX} bytes"
        return ""

    def no_level(self, kind: str, known: Sequence[str]) -> str:
        self._counters["unknown_levels"] += 1
        return f"no such {kind} in application {self._application.name}; expected one of {', '.join(known)}"


def _where_not(report: wire.SourceReport) -> str:
    if not 0 <= report.partition < PARTITIONS_MAX or not 0 <= report.partitions <= PARTITIONS_MAX:
        return f"partitions count from 0 on, up to {PARTITIONS_MAX} of them; found {report.partition}"
    if not 0 <= report.generation <= NUMBER_MAX:
        return f"generations count from 0 to {NUMBER_MAX}; found {report.generation}"
    return ""

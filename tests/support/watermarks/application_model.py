"""A leader's work for an application, the slow and obvious way.

It knows no stores, indices or columns, only what each step means; `coordinator.applications` is held against
it step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rtolap.coordinator.applications.sessions import SILENT_MS
from rtolap.model.application import Application
from rtolap.protocols.watermark.messages import HostsChange, ReportBatch, SourceReport, UnitReport

from tests.support.watermarks.application_model_source import Host, SlowSource, indices

UnitName = tuple[str, str, int]


@dataclass(slots=True)
class Kept:
    """The state that outlives a leader."""

    levels: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    global_ms: int | None = None
    generations: dict[str, dict[int, int]] = field(default_factory=dict)
    units: dict[UnitName, int] = field(default_factory=dict)  # → the generation of its owner
    hosts: dict[str, set[str]] = field(default_factory=dict)
    leaving: dict[str, set[tuple[str, int | None, int]]] = field(default_factory=dict)
    approved_until_ms: int | None = None


@dataclass
class Session:
    """A client's session. `refused` is how many parts of its last batch were. `told` has, by level and name,
    its `Host.joined` when this client spoke last; None if it was not listed."""

    sequence: int
    heard_ms: int
    known: bool = True
    missed: bool = False
    refused: int = 0
    names: dict[str, list[str]] = field(default_factory=dict)
    told: dict[tuple[str, str], int | None] = field(default_factory=dict)


class SlowServer:
    """A leader's term, of which every step is one method. `kept` is what the next leader begins with."""

    def __init__(self, application: Application, kept: Kept, epoch: int, now_ms: int) -> None:
        self.application = application
        self.epoch = epoch
        self.levels = dict(kept.levels)
        self.global_ms = kept.global_ms
        self.approved_until_ms = kept.approved_until_ms
        self.sessions: dict[str, Session] = {}
        self._unit_lease_ms = {level.name: level.unit_lease_ms for level in application.levels}
        self.work: dict[UnitName, tuple[int | None, int]] = {}
        self.owners = dict(kept.units)
        self.awaited_units = {unit: now_ms + self._unit_lease_ms[unit[0]] for unit in kept.units}
        self.sources: dict[str, SlowSource] = {}
        for source in application.sources:
            known = dict(kept.generations.get(source.name, {}))
            slow = self.sources[source.name] = SlowSource(source, {}, known, set(known))
            slow.hosts = {
                name: Host(True, now_ms + slow.lease_ms) for name in kept.hosts.get(source.name, ())
            }
            for name, end_ms, until_ms in kept.leaving.get(source.name, ()):
                slow.hosts[name] = Host(False, until_ms, end_ms)

    def kept(self) -> Kept:
        return Kept(
            levels=dict(self.levels),
            global_ms=self.global_ms,
            generations={name: dict(one.generations) for name, one in self.sources.items()},
            units=dict(self.owners),
            hosts={name: set(one.hosts) for name, one in self.sources.items()},
            leaving={
                name: {
                    (host, known.end_ms, known.until_ms)
                    for host, known in one.hosts.items()
                    if not known.listed
                }
                for name, one in self.sources.items()
            },
            approved_until_ms=self.approved_until_ms,
        )

    # -- reports ----------------------------------------------------------------------------------------

    def report(self, batch: ReportBatch, now_ms: int) -> tuple[bool, int]:
        """Return (resend, how many parts were refused)"""
        if batch.client_epoch != self.epoch:
            return True, 0
        session = self.sessions.get(batch.client_id)
        if session is not None and batch.sequence <= session.sequence:
            return False, session.refused if batch.sequence == session.sequence else 0
        if batch.begins:
            session = Session(-1 if session is None else session.sequence, now_ms)
            self.sessions[batch.client_id] = session
        if session is None or not session.known or not self._names_fit(session, batch):
            return True, 0
        refused = sum(self._take_unit(unit, now_ms) for unit in batch.units)
        refused += sum(self._take_source(session, report, now_ms) for report in batch.sources)
        for level, names in session.names.items():
            source = self.sources[level]
            for name in names if source.named else ():
                joined = source.hosts[name].joined if name in source.hosts else None
                before = session.told.get((level, name), joined)
                session.missed |= joined is not None and joined != before
                session.told[level, name] = joined
        session.heard_ms = now_ms
        if batch.sequence > session.sequence:
            session.sequence, session.refused = batch.sequence, refused
        session.known = not session.missed
        return session.missed, refused

    def _names_fit(self, session: Session, batch: ReportBatch) -> bool:
        known = {level: len(names) for level, names in session.names.items()}
        for report in batch.sources:
            before = known.get(report.level, 0)
            after = max(before, report.hosts_from + len(report.hosts))
            if report.hosts_from > before:
                return False
            if self.sources[report.level].named and any(at >= after for at in indices(report)):
                return False
            known[report.level] = after
        return True

    def _take_unit(self, unit: UnitReport, now_ms: int) -> bool:
        if unit.oldest_work_ms is not None and unit.oldest_work_ms < 0:
            return True
        name = (unit.level, unit.processor, unit.key_group)
        if unit.generation < self.owners.get(name, 0):
            return True
        self.awaited_units.pop(name, None)
        if unit.left:
            self.work.pop(name, None)
            self.owners.pop(name, None)
        else:
            self.work[name] = unit.oldest_work_ms, now_ms + self._unit_lease_ms[unit.level]
            self.owners[name] = unit.generation
        return False

    def _take_source(self, session: Session, report: SourceReport, now_ms: int) -> int:
        source = self.sources[report.level]
        names = session.names.setdefault(report.level, [])
        names += report.hosts[len(names) - report.hosts_from :]
        if report.partition < 0:
            return 1
        return source.take(report, names, now_ms)

    # -- hosts, approvals -------------------------------------------------------------------------------

    def change_hosts(self, change: HostsChange, now_ms: int) -> bool:
        """Change hosts. Returns False where a host is not known, and then nothing has changed."""
        return self.sources[change.level].change(change, now_ms)

    def approve(self, until_ms: int) -> None:
        before = self.approved_until_ms
        self.approved_until_ms = until_ms if before is None else max(until_ms, before)

    # -- publishing -------------------------------------------------------------------------------------

    def shift(self, step_ms: int) -> None:
        """Move what is counted by the clock, which was set."""
        for session in self.sessions.values():
            session.heard_ms += step_ms
        self.work = {unit: (oldest, until + step_ms) for unit, (oldest, until) in self.work.items()}
        self.awaited_units = {unit: until + step_ms for unit, until in self.awaited_units.items()}
        for source in self.sources.values():
            source.shift(step_ms)

    def tick(self, now_ms: int) -> None:
        self.sessions = {
            client: one for client, one in self.sessions.items() if one.heard_ms >= now_ms - SILENT_MS
        }
        self.work = {unit: one for unit, one in self.work.items() if one[1] > now_ms}
        self.awaited_units = {unit: until for unit, until in self.awaited_units.items() if until > now_ms}
        known = self.work.keys() | self.awaited_units.keys()
        self.owners = {unit: generation for unit, generation in self.owners.items() if unit in known}
        for source in self.sources.values():
            source.leave(now_ms)
        inputs = {name: source.watermark_ms(now_ms) for name, source in self.sources.items()}
        levels: dict[str, tuple[int | None, int | None]] = {}
        for level in self.application.in_order():
            before = self.levels.get(level, (None, None))
            above = self.application.upstreams(level)
            raw = _least([levels[one][1] for one in above]) if above else inputs[level]
            input_ms = _largest(raw, before[0])
            levels[level] = input_ms, _largest(_least([input_ms, *self._work(level, before[1])]), before[1])
        self.levels = levels
        self.global_ms = _largest(_least([output_ms for _, output_ms in levels.values()]), self.global_ms)

    def _work(self, level: str, output_ms: int | None) -> list[int]:
        known = [one[0] for unit, one in self.work.items() if unit[0] == level]
        awaited = [output_ms or 0 for unit in self.awaited_units if unit[0] == level]
        return [one for one in known if one is not None] + awaited


def _least(instants: Sequence[int | None]) -> int | None:
    known = [one for one in instants if one is not None]
    return min(known) if len(known) == len(instants) else None


def _largest(one_ms: int | None, other_ms: int | None) -> int | None:
    known: list[int] = [one for one in (one_ms, other_ms) if one is not None]
    return max(known, default=None)

"""What a leader does with an application, the slow and obvious way: one dictionary entry per host and
partition.

It knows no stores, indices or columns, only what each step means; `coordinator.applications` is held against
it step by step. Rules: `host_precise` and `partitions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rtolap.coordinator.applications.sessions import SILENT_MS
from rtolap.model.application import Application, Source
from rtolap.wire.watermark import HostsChange, ReportBatch, SourceReport, UnitReport

EVERYBODY = ""  # the one host of a source that knows none by name
UnitName = tuple[str, str, int]


@dataclass
class Host:
    """Leaves at `until_ms`, or, unless listed, when it has been read to `end_ms`."""

    listed: bool
    until_ms: int
    end_ms: int | None = None


@dataclass(slots=True)
class Kept:
    """What outlives a leader."""

    levels: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    global_ms: int | None = None
    generations: dict[str, dict[int, int]] = field(default_factory=dict)
    units: set[UnitName] = field(default_factory=set)
    hosts: dict[str, set[str]] = field(default_factory=dict)
    leaving: dict[str, set[tuple[str, int | None, int]]] = field(default_factory=dict)
    approved_until_ms: int | None = None


@dataclass
class Session:
    sequence: int
    heard_ms: int
    known: bool = True
    missed: bool = False
    names: dict[str, list[str]] = field(default_factory=dict)
    unlisted: set[tuple[str, str]] = field(default_factory=set)


@dataclass
class Progress:
    """Of one source. `read`: partition → host → latest instant, None where a new reader has not said it."""

    source: Source
    hosts: dict[str, Host]
    generations: dict[int, int]
    awaited: set[int]
    read: dict[int, dict[str, int | None]] = field(default_factory=dict)
    partitions: int = 0

    @property
    def named(self) -> bool:
        return self.source.rule.needs_hosts

    def of(self, host: str) -> int | None:
        found = [read[host] for read in self.read.values() if host in read]
        known = [one for one in found if one is not None]
        return min(known) if found and len(known) == len(found) else None

    def forget(self, host: str) -> None:
        for read in self.read.values():
            read.pop(host, None)

    def watermark_ms(self) -> int | None:
        everybody = list(self.hosts) if self.named else [EVERYBODY]
        if self.awaited or not everybody:
            return None
        precise = self.source.rule.host_precise
        late = 0 if precise is None else len(everybody) * precise.delayed_hosts_ppm // 1_000_000
        before_everything = -1
        latest = [self.of(host) for host in everybody]
        found = sorted(before_everything if one is None else one for one in latest)[late]
        return None if found == before_everything else found


class SlowServer:
    """A leader's term. Every step is one method; `kept` is what the next leader begins with."""

    def __init__(self, application: Application, kept: Kept, epoch: int, now_ms: int) -> None:
        self.application = application
        self.epoch = epoch
        self.levels = dict(kept.levels)
        self.global_ms = kept.global_ms
        self.approved_until_ms = kept.approved_until_ms
        self.sessions: dict[str, Session] = {}
        self._unit_lease_ms = {level.name: level.unit_lease_ms for level in application.levels}
        self.work: dict[UnitName, tuple[int | None, int]] = {}
        self.awaited_units = {unit: now_ms + self._unit_lease_ms[unit[0]] for unit in kept.units}
        self.sources: dict[str, Progress] = {}
        for source in application.sources:
            hosts = {name: Host(True, now_ms + _lease_ms(source)) for name in kept.hosts.get(source.name, ())}
            for name, end_ms, until_ms in kept.leaving.get(source.name, ()):
                hosts[name] = Host(False, until_ms, end_ms)
            known = dict(kept.generations.get(source.name, {}))
            self.sources[source.name] = Progress(source, hosts, known, set(known))

    def kept(self) -> Kept:
        return Kept(
            levels=dict(self.levels),
            global_ms=self.global_ms,
            generations={name: dict(one.generations) for name, one in self.sources.items()},
            units={*self.work, *self.awaited_units},
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
        """(resend, how many parts were refused)"""
        if batch.client_epoch != self.epoch:
            return True, 0
        session = self.sessions.get(batch.client_id)
        if session is not None and batch.sequence <= session.sequence:
            return False, 0
        if batch.begins:
            session = Session(-1 if session is None else session.sequence, now_ms)
            self.sessions[batch.client_id] = session
        if session is None or not session.known or not self._names_fit(session, batch):
            return True, 0
        refused = sum(self._take_unit(unit, now_ms) for unit in batch.units)
        refused += sum(self._take_source(session, report, now_ms) for report in batch.sources)
        for level, names in session.names.items():
            source = self.sources[level]
            if source.named:
                session.missed |= any((level, name) in session.unlisted for name in source.hosts)
                session.unlisted |= {(level, name) for name in names if name not in source.hosts}
        session.heard_ms = now_ms
        session.sequence = max(session.sequence, batch.sequence)
        session.known = not session.missed
        return session.missed, refused

    def _names_fit(self, session: Session, batch: ReportBatch) -> bool:
        known = {level: len(names) for level, names in session.names.items()}
        for report in batch.sources:
            before = known.get(report.level, 0)
            after = max(before, report.hosts_from + len(report.hosts))
            if report.hosts_from > before:
                return False
            if self.sources[report.level].named and any(at >= after for at in _indices(report)):
                return False
            known[report.level] = after
        return True

    def _take_unit(self, unit: UnitReport, now_ms: int) -> bool:
        if unit.oldest_work_ms is not None and unit.oldest_work_ms < 0:
            return True
        name = (unit.level, unit.processor, unit.key_group)
        self.awaited_units.pop(name, None)
        if unit.left:
            self.work.pop(name, None)
        else:
            self.work[name] = unit.oldest_work_ms, now_ms + self._unit_lease_ms[unit.level]
        return False

    def _take_source(self, session: Session, report: SourceReport, now_ms: int) -> int:
        source = self.sources[report.level]
        names = session.names.setdefault(report.level, [])
        names += report.hosts[len(names) - report.hosts_from :]
        told = _told(report, names if source.named else None)
        generation = source.generations.get(report.partition, report.generation)
        if report.generation < generation:
            return 1
        read = source.read.setdefault(report.partition, {})
        if report.generation > generation:
            read.update(dict.fromkeys(read))
        source.generations[report.partition] = report.generation
        source.awaited.discard(report.partition)
        if report.partitions > source.partitions:
            source.partitions = report.partitions
            source.awaited |= set(range(report.partitions)) - source.generations.keys()
        if not source.named:
            return _take_nameless(read, [instant for _, instant in told], now_ms, source.source.future_max_ms)
        wrong: set[str] = set()
        for host, instant_ms in told:
            if host not in source.hosts:
                wrong.add("unknown")
            elif instant_ms < 0:
                wrong.add("negative")
            elif instant_ms > now_ms + source.source.future_max_ms:
                wrong.add("future")
            else:
                before = read.get(host)
                read[host] = instant_ms if before is None else max(before, instant_ms)
        return len(wrong)

    # -- hosts, approvals -------------------------------------------------------------------------------

    def change_hosts(self, change: HostsChange, now_ms: int) -> bool:
        """False where a host is not known, and then nothing has changed."""
        source = self.sources[change.level]
        listed = source.source.hosts
        assert listed is not None
        if change.action in ("register", "renew"):
            for host in change.hosts:
                source.hosts[host] = Host(True, now_ms + _lease_ms(source.source))
            return True
        if any(host not in source.hosts for host in change.hosts):
            return False
        for host in change.hosts:
            if change.action == "drain":
                source.hosts[host] = Host(False, now_ms + listed.grace_ms, change.end_ms)
            else:
                del source.hosts[host]
                source.forget(host)
        return True

    def approve(self, until_ms: int) -> None:
        before = self.approved_until_ms
        self.approved_until_ms = until_ms if before is None else max(until_ms, before)

    # -- publishing -------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        self.sessions = {
            client: one for client, one in self.sessions.items() if one.heard_ms >= now_ms - SILENT_MS
        }
        self.work = {unit: one for unit, one in self.work.items() if one[1] > now_ms}
        self.awaited_units = {unit: until for unit, until in self.awaited_units.items() if until > now_ms}
        for source in self.sources.values():
            for host, known in list(source.hosts.items()):
                if known.until_ms <= now_ms or _at_its_end(known, source.of(host)):
                    del source.hosts[host]
                    source.forget(host)
        levels: dict[str, tuple[int | None, int | None]] = {}
        for level in self.application.in_order():
            before = self.levels.get(level, (None, None))
            above = self.application.upstreams(level)
            raw = _least([levels[one][1] for one in above]) if above else self.sources[level].watermark_ms()
            input_ms = _largest(raw, before[0])
            levels[level] = input_ms, _largest(_least([input_ms, *self._work(level, before[1])]), before[1])
        self.levels = levels
        self.global_ms = _largest(_least([output_ms for _, output_ms in levels.values()]), self.global_ms)

    def _work(self, level: str, output_ms: int | None) -> list[int]:
        known = [one[0] for unit, one in self.work.items() if unit[0] == level]
        awaited = [output_ms or 0 for unit in self.awaited_units if unit[0] == level]
        return [one for one in known if one is not None] + awaited


def _indices(report: SourceReport) -> list[int]:
    return [] if report.progress else np.frombuffer(report.index, "<i4").tolist()


def _told(report: SourceReport, names: Sequence[str] | None) -> list[tuple[str, int]]:
    if report.progress:
        return list(report.progress.items())
    instants = np.frombuffer(report.latest_ms, "<i8").tolist()
    if names is None:
        return [(EVERYBODY, one) for one in instants]
    return [(names[at], one) for at, one in zip(_indices(report), instants, strict=True)]


def _take_nameless(
    read: dict[str, int | None], instants: Sequence[int], now_ms: int, future_max_ms: int
) -> int:
    sound = [one for one in instants if 0 <= one <= now_ms + future_max_ms]
    before = read.get(EVERYBODY)
    if sound:
        read[EVERYBODY] = max(sound) if before is None else max(before, *sound)
    return int(bool(instants) and not sound)


def _at_its_end(host: Host, latest_ms: int | None) -> bool:
    return not host.listed and host.end_ms is not None and latest_ms is not None and latest_ms >= host.end_ms


def _lease_ms(source: Source) -> int:
    assert source.hosts is None or source.hosts.registry is not None, "the model knows registries only"
    return 0 if source.hosts is None or source.hosts.registry is None else source.hosts.registry.lease_ms


def _least(instants: Sequence[int | None]) -> int | None:
    known = [one for one in instants if one is not None]
    return min(known) if len(known) == len(instants) else None


def _largest(one_ms: int | None, other_ms: int | None) -> int | None:
    known: list[int] = [one for one in (one_ms, other_ms) if one is not None]
    return max(known, default=None)

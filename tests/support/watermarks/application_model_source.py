"""A source of an application, the slow and obvious way: one dictionary entry per host and partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from rtolap.model.application import ApplicationSource
from rtolap.protocols.watermark.messages import HostsChange, SourceReport

from tests.support.watermarks.application_model_rates import (
    SlowRates,
    Told,
    Weighed,
    deficit_mark,
    stated_ppm,
)

EVERYBODY = ""  # the one host of a source that knows none by name


@dataclass
class Host:
    """Leaves at `until_ms`, or, unless listed, when it has been read to `end_ms`. `joined`: another number
    each time that it begins to count."""

    listed: bool
    until_ms: int
    end_ms: int | None = None
    joined: int = 0


@dataclass
class SlowSource:
    """`read`: partition → host → latest instant, None where a new reader has not reported it. `furthest`: the
    same, by whichever reader. `stated_ppm`: of what was decided last, the expected share and the bound."""

    source: ApplicationSource
    hosts: dict[str, Host]
    generations: dict[int, int]
    awaited: set[int]
    read: dict[int, dict[str, int | None]] = field(default_factory=dict)
    furthest: dict[tuple[int, str], int] = field(default_factory=dict)
    partitions: int = 0
    joins: int = 0
    rates: SlowRates = field(default_factory=SlowRates)
    stated_ppm: tuple[int, int] = (0, 0)

    @property
    def named(self) -> bool:
        return self.source.rule.needs_hosts

    def of(self, host: str) -> int | None:
        found = [read[host] for read in self.read.values() if host in read]
        known = [one for one in found if one is not None]
        return min(known) if found and len(known) == len(found) else None

    def _forget(self, host: str) -> None:
        for partition, read in self.read.items():
            read.pop(host, None)
            self.furthest.pop((partition, host), None)

    # -- reports ----------------------------------------------------------------------------------------

    def take(self, report: SourceReport, names: Sequence[str], now_ms: int) -> int:
        """Take a report, and return how many kinds of its entries were refused."""
        generation = self.generations.get(report.partition, report.generation)
        if report.generation < generation:
            return 1
        read = self.read.setdefault(report.partition, {})
        if report.generation > generation:
            read.update(dict.fromkeys(read))
        self.generations[report.partition] = report.generation
        self.awaited.discard(report.partition)
        if report.partitions > self.partitions:
            self.partitions = report.partitions
            self.awaited |= set(range(report.partitions)) - self.generations.keys()
        if not self.named:
            return self._take_nameless(read, report, now_ms)
        return self._take_named(read, report, names, now_ms)

    def _take_named(
        self, read: dict[str, int | None], report: SourceReport, names: Sequence[str], now_ms: int
    ) -> int:
        wrong: set[str] = set()
        sound: list[Told] = []
        for host, instant_ms, events in _entries(report, names):
            if host not in self.hosts:
                wrong.add("unknown")
            elif instant_ms < 0:
                wrong.add("negative")
            elif instant_ms > now_ms + self.source.future_max_ms:
                wrong.add("future")
            else:
                before = read.get(host)
                at = report.partition, host
                goes_on = before is not None and before >= self.furthest.get(at, before)
                sound.append(Told(host, events, instant_ms, goes_on))
        for told in sound:
            at, known = (report.partition, told.host), read.get(told.host)
            read[told.host] = told.latest_ms if known is None else max(known, told.latest_ms)
            self.furthest[at] = max(self.furthest.get(at, 0), told.latest_ms)
        if report.events:
            self.rates.observe(sound)
        return len(wrong)

    def _take_nameless(self, read: dict[str, int | None], report: SourceReport, now_ms: int) -> int:
        instants = [instant_ms for _, instant_ms, _ in _entries(report, None)]
        sound = [one for one in instants if 0 <= one <= now_ms + self.source.future_max_ms]
        before = read.get(EVERYBODY)
        if sound:
            read[EVERYBODY] = max(sound) if before is None else max(before, *sound)
        return int(bool(instants) and not sound)

    # -- hosts ------------------------------------------------------------------------------------------

    @property
    def lease_ms(self) -> int:
        listed = self.source.hosts
        assert listed is None or listed.registry is not None, "the model knows registries only"
        return 0 if listed is None or listed.registry is None else listed.registry.lease_ms

    def change(self, change: HostsChange, now_ms: int) -> bool:
        """Change hosts. Returns False where a host is not known, and then nothing has changed."""
        listed = self.source.hosts
        assert listed is not None
        if change.action in ("register", "renew"):
            for host in change.hosts:
                self._register(host, now_ms + self.lease_ms)
            return True
        if any(host not in self.hosts for host in change.hosts):
            return False
        for host in set(change.hosts):
            if change.action == "drain":
                joined = self.hosts[host].joined
                self.hosts[host] = Host(False, now_ms + listed.grace_ms, change.end_ms, joined)
            else:
                del self.hosts[host]
                self._forget(host)
        return True

    def _register(self, host: str, until_ms: int) -> None:
        known = self.hosts.get(host)
        if known is None:
            self.joins += 1
        self.hosts[host] = Host(True, until_ms, joined=self.joins if known is None else known.joined)

    def shift(self, step_ms: int) -> None:
        """Move what is counted by the clock, which was set."""
        for host in self.hosts.values():
            host.until_ms += step_ms
        if self.rates.ticked_ms is not None:
            self.rates.ticked_ms += step_ms

    def leave(self, now_ms: int) -> None:
        for host, known in list(self.hosts.items()):
            if known.until_ms <= now_ms or self._at_its_end(host, known):
                del self.hosts[host]
                self._forget(host)

    def _at_its_end(self, host: str, known: Host) -> bool:
        latest_ms = self.of(host)
        if known.listed or known.end_ms is None or latest_ms is None:
            return False
        return latest_ms >= known.end_ms

    # -- the rule ---------------------------------------------------------------------------------------

    def watermark_ms(self, now_ms: int) -> int | None:
        if not self.named:
            found = [self.of(EVERYBODY)]
        else:
            weighed = self._weighed(now_ms)
            found = [one.latest_ms for one in weighed]
        rule, self.stated_ppm = self.source.rule, (0, 0)
        if not found:
            mark_ms = None
        elif rule.deficit is not None:
            bound = rule.deficit
            mark_ms = deficit_mark(weighed, bound.missing_events_ppm, bound.window_ms, self.rates.dispersion)
            if mark_ms is not None:
                self.stated_ppm = stated_ppm(weighed, mark_ms, bound.window_ms, self.rates.dispersion)
        else:
            mark_ms = _with_late_hosts(found, rule.host_precise.delayed_hosts_ppm if rule.host_precise else 0)
        return None if self.awaited else mark_ms

    def _weighed(self, now_ms: int) -> list[Weighed]:
        rates = self.rates.estimate(list(self.hosts), now_ms)
        return [Weighed(self.of(host), *rates[host]) for host in self.hosts]


def indices(report: SourceReport) -> list[int]:
    return [] if report.progress else np.frombuffer(report.index, "<i4").tolist()


def _entries(report: SourceReport, names: Sequence[str] | None) -> list[tuple[str, int, int]]:
    """Return (host, latest instant, events)"""
    if report.progress:
        return [(host, instant_ms, 0) for host, instant_ms in report.progress.items()]
    instants = np.frombuffer(report.latest_ms, "<i8").tolist()
    events = np.frombuffer(report.events, "<i8").tolist() if report.events else [0] * len(instants)
    hosts = [EVERYBODY] * len(instants) if names is None else [names[at] for at in indices(report)]
    return list(zip(hosts, instants, events, strict=True))


def _with_late_hosts(latest_ms: Sequence[int | None], late_ppm: int) -> int | None:
    late = len(latest_ms) * late_ppm // 1_000_000
    before_everything = -1
    found = sorted(before_everything if one is None else one for one in latest_ms)[late]
    return None if found == before_everything else found

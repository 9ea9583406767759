"""Progress, rates and hosts of one source, and the watermark that its rule computes from them. Reports come
in by `source_reports`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from rtolap.metadata.applications import ListedHosts
from rtolap.metadata.records import LeavingHost
from rtolap.model.application import ApplicationSource
from rtolap.model.quantities import instant_text
from rtolap.watermark.breaches import Breaches
from rtolap.watermark.hostlist import NO_LIMIT_MS, Hosts, Leaving
from rtolap.watermark.progress import SourceProgress
from rtolap.watermark.rules import WINDOW_MS, Decision, Deficit, HostPrecise, Rule
from rtolap.watermark.snapshot import SourceSnapshot
from rtolap.watermark.weights import HostRates

_GONE_KEPT = 1000  # hosts that left keep their room until there are so many, and more of them than others


class SourceState:
    """The state of a source, which the caller locks. It takes hosts x partitions x 8 bytes, and some tens of
    bytes per host.

    `generations`: partitions reported to a former owner, with their consumers' generations. All of them
    have to report again before the rule is evaluated: a host on two would count by the one that reported.
    """

    def __init__(
        self, source: ApplicationSource, generations: Mapping[int, int], hosts: ListedHosts, now_ms: int
    ) -> None:
        self.source = source
        self.named = source.rule.needs_hosts
        self.window_ms = source.rule.deficit.window_ms if source.rule.deficit else WINDOW_MS
        self.list_problem: str | None = None
        self.listed_once = False  # by this owner: until then the list is that of the former one
        self.hosts = Hosts()
        self._layout = 0
        self.progress = SourceProgress(0 if self.named else 1, source.future_max_ms)
        self.rates = HostRates(0 if self.named else 1)
        if hosts.names:
            self.hosts.register(hosts.names, now_ms, self._lease_ms)
            self.hosts.let_go(
                Leaving(host.host, NO_LIMIT_MS if host.end_ms is None else host.end_ms, host.until_ms)
                for host in hosts.leaving
            )
        self.hosts.epoch = hosts.epoch
        self.hosts_changed()
        self.awaited = set(generations)
        self._generations = dict(generations)
        self._partitions = 0
        nobody, nothing = np.empty(0, np.int64), np.empty(0, np.int64)
        for partition, generation in generations.items():
            self.progress.apply(partition, generation, nobody, nothing, now_ms)
        self._rule = _rule(source)
        deficit = source.rule.deficit
        self.breaches = None if deficit is None else Breaches(deficit.missing_events_ppm, deficit.window_ms)
        self.decision = Decision(None)

    @property
    def _lease_ms(self) -> int:
        registry = self.source.hosts.registry if self.source.hosts else None
        return NO_LIMIT_MS // 2 if registry is None else registry.lease_ms

    @property
    def list_state(self) -> object:
        return (self.hosts.epoch, self._layout)

    def hosts_changed(self) -> None:
        if self.named:
            self.progress.grow(len(self.hosts))
            self.rates.grow(len(self.hosts))

    def generations(self) -> dict[int, int]:
        """Return the generations of the consumers of the reported partitions, under this owner or a former
        one."""
        return dict(self._generations)

    def listed_hosts(self) -> ListedHosts:
        """Return what the next owner has to know of the hosts."""
        if not self.named:
            return ListedHosts(self.hosts.epoch, (), ())
        retained = self.hosts.retained()
        leaving = self.hosts.leaving()
        places = np.searchsorted(retained, [host.host for host in leaving]).tolist() if leaving else []
        return ListedHosts(
            self.hosts.epoch,
            tuple(self.hosts.names[at] for at in retained.tolist()),
            tuple(
                LeavingHost(place, None if host.end_ms == NO_LIMIT_MS else host.end_ms, host.until_ms)
                for place, host in zip(places, leaving, strict=True)
            ),
        )

    @property
    def counting(self) -> int:
        """Return the number of hosts that count."""
        return int(self.hosts.retained().size)

    def heard(self, partition: int, generation: int, partitions: int) -> None:
        """Note that a consumer has reported. A host may log to one of the `partitions` that has no report
        yet."""
        self.awaited.discard(partition)
        self._generations[partition] = generation
        if partitions > self._partitions:
            self._partitions = partitions
            self.awaited |= set(range(partitions)) - self._generations.keys()

    # -- the rule ---------------------------------------------------------------------------------------

    def shift(self, step_ms: int) -> None:
        """Move what is counted by the clock, because it was set."""
        self.hosts.shift(step_ms)
        self.rates.shift(step_ms)

    def snapshot(self, now_ms: int) -> SourceSnapshot:
        estimate = self.rates.estimate(now_ms)
        return SourceSnapshot(
            now_ms=now_ms,
            names=self.hosts.names if self.named else [""],
            latest_ms=self.progress.latest_ms(),
            events_per_ms=estimate.events_per_ms,
            relative_error=estimate.relative_error,
            listed=self.hosts.listed if self.named else np.ones(1, np.bool_),
            drained=self.hosts.drained if self.named else np.zeros(1, np.bool_),
            dispersion=estimate.dispersion,
        )

    def decide(self, now_ms: int) -> int | None:
        """Return the raw watermark; None while it is unknown. Hosts whose time is over leave first."""
        if self.named:
            self._leave(now_ms)
        self.decision = self._rule.decide(self.snapshot(now_ms))
        return None if self.awaited else self.decision.watermark_ms

    def published(self, mark_ms: int | None) -> None:
        """Note that the source's watermark is persisted: windows up to it may close."""
        if self.breaches is not None and mark_ms is not None:
            self.breaches.published(mark_ms)

    def breach_problem(self) -> str | None:
        """Return in words which windows missed more than declared; None while none is known."""
        found = () if self.breaches is None else self.breaches.found()
        if not found:
            return None
        worst = max(found, key=lambda breach: breach.missing_ppm)
        return (
            f"{self.source.name}: {worst.missing_ppm} ppm of the events were missing of the window to"
            f" {instant_text(worst.window_end_ms)}, and {worst.bound_ppm} ppm at most were declared; breached"
            f" windows end from {instant_text(found[0].window_end_ms)} to"
            f" {instant_text(found[-1].window_end_ms)}"
        )

    def _leave(self, now_ms: int) -> None:
        left = self.hosts.leave(self.progress.latest_ms(), now_ms)
        if left:
            self.progress.forget(np.array([self.hosts.index[name] for name in left], np.int64))
        retained = self.hosts.retained()
        gone = len(self.hosts) - retained.size
        if gone > max(_GONE_KEPT, retained.size):
            self.hosts.keep(retained)
            self.progress.keep(retained)
            self.rates.keep(retained)
            self._layout += 1

    def counters(self) -> Iterable[tuple[str, int]]:
        counted = self.progress.counters
        yield from ((name, int(getattr(counted, name))) for name in counted.__slots__)
        if self.breaches is not None:
            self.breaches.found()
            yield "breached_windows", self.breaches.breached_windows


def _rule(source: ApplicationSource) -> Rule:
    if source.rule.deficit is not None:
        return Deficit(source.rule.deficit.missing_events_ppm, source.rule.deficit.window_ms)
    precise = source.rule.host_precise
    return HostPrecise(0 if precise is None else precise.delayed_hosts_ppm)

"""Progress, rates and hosts of one source, and what its rule makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rtolap.coordinator.applications.columns import Columns, columns, zone_hint
from rtolap.coordinator.applications.sessions import SessionNames
from rtolap.model.application import Source
from rtolap.watermark.hostlist import NO_LIMIT_MS, Hosts
from rtolap.watermark.progress import HostProgress
from rtolap.watermark.rules import WINDOW_MS, Decision, Deficit, HostPrecise, Rule
from rtolap.watermark.snapshot import Snapshot
from rtolap.watermark.weights import HostRates
from rtolap.wire.watermark import Refusal, SourceReport, check_host_names

_NAMED_MAX = 5  # hosts named in one refusal
_GONE_KEPT = 1000  # hosts that left keep their room until there are so many, and more of them than others


class SourceState:
    """The caller locks. Memory: hosts x partitions x 8 bytes, and some tens of bytes per host.

    `generations`: partitions that a former leader heard, with their consumers' generations. All of them
    have to speak again before the rule is asked: a host on two of them would count by the one that spoke.
    """

    def __init__(
        self, source: Source, generations: Mapping[int, int], hosts: tuple[int, Sequence[str]], now_ms: int
    ) -> None:
        self.source = source
        self.named = source.rule.needs_hosts
        self.window_ms = source.rule.deficit.window_ms if source.rule.deficit else WINDOW_MS
        self.list_problem: str | None = None
        self.listed_once = False  # by this leader: until then the list is that of the former one
        self.hosts = Hosts()
        self._layout = 0
        self.progress = HostProgress(0 if self.named else 1, source.future_max_ms)
        self.rates = HostRates(0 if self.named else 1)
        if hosts[1]:
            self.hosts.register(hosts[1], now_ms, self._lease_ms)
        self.hosts.epoch = hosts[0]
        self.hosts_changed()
        self.awaited = set(generations)
        self._generations = dict(generations)
        self._partitions = 0
        nobody, nothing = np.empty(0, np.int64), np.empty(0, np.int64)
        for partition, generation in generations.items():
            self.progress.apply(partition, generation, nobody, nothing, now_ms)
        self._rule = _rule(source)
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
        """Of the consumers of the partitions that were heard, by this leader or a former one."""
        return dict(self._generations)

    def counting_names(self) -> list[str]:
        return [self.hosts.names[at] for at in self.hosts.kept().tolist()]

    # -- reports ----------------------------------------------------------------------------------------

    def check(self, report: SourceReport) -> Columns | None:
        """Raises DefinitionError for what cannot be read; None for a report in plain names."""
        if report.hosts:
            check_host_names(report.hosts, f"hosts of {report.level}/{report.partition}")
        return None if report.progress else columns(report)

    def names_after(self, report: SourceReport, known: int, found: Columns | None) -> int | None:
        """How many names the session knows after the report; None if it counts on names that were never
        said."""
        if report.hosts_from > known or report.hosts_from < 0:
            return None
        total = max(known, report.hosts_from + len(report.hosts))
        if found is None or not self.named or not found.index.size:
            return total
        return total if int(found.index.min()) >= 0 and int(found.index.max()) < total else None

    def take(
        self, report: SourceReport, session: SessionNames, found: Columns | None, now_ms: int
    ) -> list[Refusal]:
        """Call `check` and `names_after` first. What is refused has had no effect."""
        names: Sequence[str]
        if found is None:
            names = list(report.progress)
            latest_ms = np.fromiter(report.progress.values(), np.int64, len(names))
            at = self.hosts.indices(names) if self.named else np.zeros(len(names), np.int64)
            events = None
        else:
            session.names.extend(report.hosts[len(session.names) - report.hosts_from :])
            at = self._mapped(session)[found.index] if self.named else np.zeros(len(found.index), np.int64)
            names, latest_ms, events = session.names, found.latest_ms, found.events
        if not self.named:  # one nameless host that is on all partitions
            sound = latest_ms[(latest_ms >= 0) & (latest_ms <= now_ms + self.source.future_max_ms)]
            counted = sound if sound.size else latest_ms
            at, latest_ms = at[:1], counted.max(keepdims=True) if counted.size else counted
        applied = self.progress.apply(report.partition, report.generation, at, latest_ms, now_ms)
        where = f"{report.level}/{report.partition}"
        if applied.stale:
            now = self.progress.generation(report.partition)
            why = f"generation {report.generation} is over, the partition's consumer is of generation {now}"
            return [Refusal(where, why)]
        self.awaited.discard(report.partition)
        self._generations[report.partition] = report.generation
        if report.partitions > self._partitions:  # a host may log to one of which nobody has spoken yet
            self._partitions = report.partitions
            self.awaited |= set(range(report.partitions)) - self._generations.keys()
        if events is not None and self.named:
            taken = applied.accepted & (events >= 0)
            self.rates.observe(at[taken], events[taken], latest_ms[taken])
        if bool(applied.accepted.all()):
            return []
        index = None if found is None or not self.named else found.index
        return self._refusals(where, names, index, at, latest_ms, now_ms)

    def missed_names(self, session: SessionNames) -> bool:
        """Is a host listed now that was not when the session named it? Then it has to be said again."""
        if not self.named or session.mapped_at == self.list_state:
            return False
        before = session.at
        after = self._mapped(session)[: before.size]
        return bool(((before < 0) & (after >= 0)).any())

    def _mapped(self, session: SessionNames) -> NDArray[np.int64]:
        if session.mapped_at != self.list_state:
            session.at = self.hosts.indices(session.names)
            session.mapped_at = self.list_state
        elif session.at.size < len(session.names):
            fresh = self.hosts.indices(session.names[session.at.size :])
            session.at = np.concatenate([session.at, fresh])
        return session.at

    def _refusals(
        self,
        where: str,
        names: Sequence[str],
        index: NDArray[np.int32] | None,
        at: NDArray[np.int64],
        latest_ms: NDArray[np.int64],
        now_ms: int,
    ) -> list[Refusal]:
        def named(rows: NDArray[np.int64]) -> str:
            if not self.named:
                return f"{where}: an event time"
            shown = [names[int(row) if index is None else int(index[row])] for row in rows[:_NAMED_MAX]]
            more = f" and {rows.size - len(shown)} more" if rows.size > len(shown) else ""
            return f"{where}: {rows.size} hosts ({', '.join(shown)}{more})"

        found = []
        unknown = np.flatnonzero(at < 0)
        if unknown.size:
            kind = self.source.hosts.kind if self.source.hosts else "none"
            found.append(
                Refusal(named(unknown), f"not in the host list (from {kind}): list them, or register them")
            )
        negative = np.flatnonzero((at >= 0) & (latest_ms < 0))
        if negative.size:
            found.append(Refusal(named(negative), "event time before 1970; expected ms since the epoch"))
        ahead = np.flatnonzero((at >= 0) & (latest_ms > now_ms + self.source.future_max_ms))
        if ahead.size:
            ahead_ms = int(latest_ms[ahead[0]]) - now_ms
            hint = zone_hint(ahead_ms)
            most_ms = self.source.future_max_ms
            why = f"event time {ahead_ms} ms ahead of the clock; expected at most {most_ms} ms"
            found.append(Refusal(named(ahead), f"{why}; {hint}" if hint else why))
        return found

    # -- the rule ---------------------------------------------------------------------------------------

    def snapshot(self, now_ms: int) -> Snapshot:
        estimate = self.rates.estimate(now_ms)
        return Snapshot(
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
        """The raw watermark; None while nothing may be said. Hosts whose time is over leave first."""
        if self.named:
            self._leave(now_ms)
        self.decision = self._rule.decide(self.snapshot(now_ms))
        return None if self.awaited else self.decision.watermark_ms

    def _leave(self, now_ms: int) -> None:
        left = self.hosts.leave(self.progress.latest_ms(), now_ms)
        if left:
            self.progress.forget(np.array([self.hosts.index[name] for name in left], np.int64))
        kept = self.hosts.kept()
        gone = len(self.hosts) - kept.size
        if gone > max(_GONE_KEPT, kept.size):
            self.hosts.keep(kept)
            self.progress.keep(kept)
            self.rates.keep(kept)
            self._layout += 1

    def counters(self) -> Iterable[tuple[str, int]]:
        counted = self.progress.counters
        return ((name, int(getattr(counted, name))) for name in counted.__slots__)


def _rule(source: Source) -> Rule:
    if source.rule.deficit is not None:
        return Deficit(source.rule.deficit.missing_events_ppm, source.rule.deficit.window_ms)
    precise = source.rule.host_precise
    return HostPrecise(0 if precise is None else precise.delayed_hosts_ppm)

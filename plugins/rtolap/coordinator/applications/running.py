"""An application on its owner: reports in, watermarks out.

    report   1. check the whole batch   2. take it in, under the lock   3. persist who is new   4. answer
    tick     1. decide, under the lock  2. persist, never a smaller one  3. publish

A crash after 2 of a tick leaves what the next owner begins with. A unit or a partition that has been
answered is known to the next owner, which does not go on before it is reported again.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence

from rtolap.base.clock import Clock, ClockSteps
from rtolap.base.errors import DefinitionError, NotFound, Refused, RtolapError
from rtolap.coordinator.applications.host_changes import HostChanges
from rtolap.coordinator.applications.intake import Intake
from rtolap.coordinator.applications.limits import NAME_MAX
from rtolap.coordinator.applications.publisher import ExpectedReporters, Published, Publisher
from rtolap.coordinator.applications.sessions import ReportSessions
from rtolap.coordinator.applications.sources import SourceState
from rtolap.coordinator.applications.units import Units
from rtolap.metadata.applications import ApplicationRecords, ListedHosts
from rtolap.metadata.records import Approval, Owner
from rtolap.model.application import Application
from rtolap.protocols.watermark import messages as wire
from rtolap.watermark.topology import combine

log = logging.getLogger(__name__)

_RELEASE_EVERY_TICKS = 30


def _read_kept(
    application: Application, records: ApplicationRecords
) -> tuple[tuple[Approval, ...], dict[str, ListedHosts]]:
    """Return approvals, and the hosts of each source. Raises Corrupted."""
    name = application.name
    hosts = {source.name: records.hosts(name, source.name) for source in application.sources}
    return records.approvals(name), hosts


class RunningApplication:
    """An application that runs. It is thread-safe. Making one begins an epoch of `owner`, or raises NotOwner.
    `owner` is None where there is but one coordinator to run applications.

    Attributes:
        confirmed_s: when the epoch was known to go on, by the monotonic clock.
    """

    def __init__(
        self,
        application: Application,
        records: ApplicationRecords,
        clock: Clock,
        owner: Owner | None = None,
    ) -> None:
        self.application = application
        self.owner = owner
        self._records = records
        self._clock = clock
        self._steps = ClockSteps(clock)
        now_ms, _ = self._steps.look()
        self.confirmed_s = clock.monotonic_s()
        _read_kept(application, records)  # what cannot be read begins no epoch, and has no owner
        state = records.begin(application.name, now_ms, owner)
        self.epoch = state.epoch
        self.lock = threading.RLock()
        self.approvals, listed_hosts = _read_kept(application, records)
        self._approving = threading.Lock()
        self.sessions = ReportSessions()
        self.units = Units(application, state.units, now_ms)
        self.sources: dict[str, SourceState] = {}
        for source in application.sources:
            listed = listed_hosts[source.name]
            generations = state.generations.get(source.name, {})
            self.sources[source.name] = SourceState(source, generations, listed, now_ms)
        self.counters: Counter[str] = Counter()
        self.intake = Intake(application, self.sources, self.units, self.counters)
        self._host_changes = HostChanges(
            application.name, self.epoch, self.sources, records, self._now_ms, self.lock
        )
        self._publisher = Publisher(application.name, records, clock, state, self._heard)
        self._ticks = 0
        self._ticking = threading.Lock()

    @property
    def published(self) -> Published:
        return self._publisher.published

    def count(self, what: str) -> None:
        with self.lock:
            self.counters[what] += 1

    def confirm(self) -> None:
        """Read in ZooKeeper that the epoch goes on. Raises NotOwner if it is over, NotFound."""
        asked_s = self._clock.monotonic_s()  # the session that reads lives at this moment at least
        self._records.require_epoch(self.application.name, self.epoch)
        self.confirmed_s = asked_s

    def give_up(self) -> None:
        """Leave it to another coordinator, once nothing is answered by it any more."""
        self._records.give_up(self.application.name, self.epoch)

    def _now_ms(self) -> int:
        """Return the time. When the clock was set, leases move with it: nobody was silent for that long, and
        hosts or units that are forgotten would let a watermark pass their events. The caller locks."""
        now_ms, step_ms = self._steps.look()
        if step_ms:
            log.warning(
                "the clock was set by %d ms: leases of %s move with it", step_ms, self.application.name
            )
            self.sessions.shift(step_ms)
            self.units.shift(step_ms)
            for source in self.sources.values():
                source.shift(step_ms)
        return now_ms

    # -- reports ----------------------------------------------------------------------------------------

    def report(self, batch: wire.ReportBatch) -> wire.ReportAnswer:
        """Take a batch of reports. Raises DefinitionError, with nothing taken, where the batch as a whole
        cannot be read."""
        try:
            return self._report(batch)
        except RtolapError:
            self.count("refused_batches")
            raise

    def _report(self, batch: wire.ReportBatch) -> wire.ReportAnswer:
        if not batch.client_id or len(batch.client_id) > NAME_MAX or batch.sequence < 0:
            raise DefinitionError(
                "a batch without a sender",
                expected=f"client_id of 1 to {NAME_MAX} characters and a sequence from 0 on",
            )
        read = [self.intake.check(report) for report in batch.sources]
        with self.lock:
            now_ms = self._now_ms()
            if batch.client_epoch != self.epoch:
                self.counters["other_epochs"] += 1
                return self._answer(resend=True)
            session = self.sessions.get(batch.client_id)
            if session is not None and batch.sequence <= session.sequence:
                self.counters["repeated_batches"] += 1
                return self._answer(refused=session.refused if batch.sequence == session.sequence else ())
            if batch.begins:
                session = self.sessions.begin(batch, now_ms)
            if session is None or not self.intake.names_fit(session, batch, read):
                self.counters["unknown_sessions"] += 1
                return self._answer(resend=True)
            refused = self.intake.apply_reports(session, batch, read, now_ms)
            session.heard_ms = now_ms
            self.counters["refused_entries"] += len(refused)
            missed = self.intake.missed_names(session)
        self._publisher.persist()
        with self._ticking:
            pass  # a turn that began before may publish what it knew: the answer is not older than that
        with self.lock:
            if batch.sequence > session.sequence:
                session.sequence, session.refused = batch.sequence, tuple(refused)
            self.counters["batches"] += 1
            if missed:  # a host was listed meanwhile, which the client believes it has reported
                session.known = False
            return self._answer(resend=missed, refused=tuple(refused))

    def _answer(self, *, resend: bool = False, refused: tuple[wire.Refusal, ...] = ()) -> wire.ReportAnswer:
        marks = self.published.marks
        return wire.ReportAnswer(
            epoch=self.epoch,
            resend=resend,
            watermarks={level: level_marks.output_ms for level, level_marks in marks.levels.items()},
            inputs={level: level_marks.input_ms for level, level_marks in marks.levels.items()},
            global_ms=marks.global_ms,
            approved_until_ms=self.approved_until_ms(),
            refused=refused,
        )

    def levels(self, only: str | None) -> tuple[str, ...]:
        """Return one level, or all in their order. Raises DefinitionError for an unknown level."""
        known = self.application.in_order()
        if only is None:
            return tuple(known)
        if only not in known:
            raise DefinitionError("no such level", expected=f"one of {', '.join(known)}", found=repr(only))
        return (only,)

    # -- hosts ------------------------------------------------------------------------------------------

    def source(self, level: str) -> SourceState:
        source = self.sources.get(level)
        if source is None:
            raise DefinitionError(self.intake.no_level("source", sorted(self.sources)), found=repr(level))
        return source

    def change_hosts(self, change: wire.HostsChange) -> wire.HostsChanged:
        """Change the hosts of a level. Raises DefinitionError, NotFound, Refused."""
        try:
            self.source(change.level)
            return self._host_changes.change(change)
        except (DefinitionError, NotFound, Refused):
            self.count("refused_host_changes")
            raise

    def replace_hosts(self, level: str, names: Sequence[str]) -> None:
        """Replace the hosts of a level by a list that was fetched."""
        self._host_changes.replace(level, names)

    # -- approvals --------------------------------------------------------------------------------------

    def approve(self, request: wire.ApprovalRequest) -> None:
        if not request.by.strip() or not request.reason.strip():
            raise DefinitionError("an approval names who gives it and why", expected="by and reason")
        if not 0 <= request.until_ms <= self._clock.now_ms():
            raise DefinitionError(
                "an approval is for windows that have ended",
                expected=f"0 to {self._clock.now_ms()} (now)",
                found=request.until_ms,
            )
        approval = Approval(request.until_ms, request.by, request.reason, self._clock.now_ms())
        with self._approving:  # what was written last is what is known last
            self.approvals = self._records.approve(self.application.name, self.epoch, approval)

    def approved_until_ms(self) -> int | None:
        return max((approval.until_ms for approval in self.approvals), default=None)

    # -- publishing -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do the owner's periodic work, about once a second. Raises what persisting raises; then nothing is
        published."""
        with self._ticking:
            self._tick()

    def _tick(self) -> None:
        with self.lock:
            now_ms = self._now_ms()
            self._ticks += 1
            self.sessions.forget_silent(now_ms)
            self.units.expire(now_ms)
            if self._ticks % _RELEASE_EVERY_TICKS == 0:
                for source in self.sources.values():
                    if source.source.hosts is not None:
                        source.progress.release_abandoned(source.source.hosts.grace_ms)
            inputs = {name: source.decide(now_ms) for name, source in self.sources.items()}
            published = self.published.marks
            marks = combine(self.application, inputs, self.units.work(published), published, now_ms)
            self.counters["held"] += marks.raised
        for level in self.sources:
            self._host_changes.keep(level)
        self._publisher.persist(marks)
        with self.lock:
            for name, source in self.sources.items():
                source.published(marks.levels[name].input_ms)

    def _heard(self) -> ExpectedReporters:
        with self.lock:
            generations = {name: source.generations() for name, source in self.sources.items()}
            return ExpectedReporters(generations, self.units.known())

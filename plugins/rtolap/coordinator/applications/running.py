"""One application on its leader: reports in, watermarks out.

    report   1. check the whole batch   2. take it in, under the lock   3. persist who is new   4. answer
    tick     1. decide, under the lock  2. persist, never a smaller one  3. publish

A crash after 2 of a tick leaves what the next leader begins with. A unit or a partition that has been
answered is known to the next leader, which does not go on before it has heard it again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, NotFound, RtolapError
from rtolap.coordinator.applications.intake import HOSTS_MAX, NAME_MAX, Intake
from rtolap.coordinator.applications.sessions import Sessions
from rtolap.coordinator.applications.sources import SourceState
from rtolap.coordinator.applications.units import Units
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.records import ApplicationState, Approval, LevelState
from rtolap.model.application import Application
from rtolap.watermark.topology import LevelMarks, Marks, combine
from rtolap.wire import watermark as wire
from rtolap.wire.watermark import check_host_names

_RELEASE_EVERY_TICKS = 30


class Published(msgspec.Struct, frozen=True):
    marks: Marks
    at_ms: int


class RunningApplication:
    """Thread-safe. Making one begins an epoch, so only a leader can."""

    def __init__(self, application: Application, records: ApplicationRecords, clock: Clock) -> None:
        self.application = application
        self._records = records
        self._clock = clock
        now_ms = clock.now_ms()
        state = records.begin(application.name, now_ms)
        self.epoch = state.epoch
        self.lock = threading.RLock()
        self._writing = threading.Lock()
        self._persisted = state
        self.published = Published(_marks(state), now_ms)
        self.approvals: tuple[Approval, ...] = records.approvals(application.name)
        self.sessions = Sessions()
        self.units = Units(application, state.units, now_ms)
        self.sources: dict[str, SourceState] = {}
        self._kept_epochs: dict[str, int] = {}
        for source in application.sources:
            kept = records.hosts(application.name, source.name)
            generations = state.generations.get(source.name, {})
            self.sources[source.name] = SourceState(source, generations, kept, now_ms)
            self._kept_epochs[source.name] = kept[0]
        self.counters: Counter[str] = Counter()
        self.intake = Intake(application, self.sources, self.units, self.counters)
        self._ticks = 0

    # -- reports ----------------------------------------------------------------------------------------

    def report(self, batch: wire.ReportBatch) -> wire.ReportAnswer:
        """Raises DefinitionError, with nothing taken, where the batch as a whole cannot be read."""
        try:
            return self._report(batch)
        except RtolapError:
            self.counters["refused_batches"] += 1
            raise

    def _report(self, batch: wire.ReportBatch) -> wire.ReportAnswer:
        now_ms = self._clock.now_ms()
        if not batch.client_id or len(batch.client_id) > NAME_MAX or batch.sequence < 0:
            raise DefinitionError(
                "a batch without a sender",
                expected=f"client_id of 1 to {NAME_MAX} characters and a sequence from 0 on",
            )
        read = [self.intake.check(report) for report in batch.sources]
        with self.lock:
            if batch.client_epoch != self.epoch:
                self.counters["other_epochs"] += 1
                return self._answer(resend=True)
            session = self.sessions.get(batch.client_id)
            if session is not None and batch.sequence <= session.sequence:
                self.counters["repeated_batches"] += 1
                return self._answer()
            if batch.begins:
                session = self.sessions.begin(batch, now_ms)
            if session is None or not self.intake.names_fit(session, batch, read):
                self.counters["unknown_sessions"] += 1
                return self._answer(resend=True)
            refused = self.intake.take(session, batch, read, now_ms)
            session.heard_ms = now_ms
            self.counters["refused_entries"] += len(refused)
            missed = any(
                source.missed_names(session.names[level])
                for level, source in self.sources.items()
                if level in session.names
            )
        self._persist(None)
        with self.lock:
            session.sequence = max(session.sequence, batch.sequence)
            self.counters["batches"] += 1
            if missed:  # a host was listed meanwhile, of which the client believes to have told us
                session.known = False
            return self._answer(resend=missed, refused=tuple(refused))

    def _answer(self, *, resend: bool = False, refused: tuple[wire.Refusal, ...] = ()) -> wire.ReportAnswer:
        marks = self.published.marks
        return wire.ReportAnswer(
            epoch=self.epoch,
            resend=resend,
            watermarks={level: found.output_ms for level, found in marks.levels.items()},
            inputs={level: found.input_ms for level, found in marks.levels.items()},
            global_ms=marks.global_ms,
            approved_until_ms=self.approved_until_ms(),
            refused=refused,
        )

    # -- hosts ------------------------------------------------------------------------------------------

    def source(self, level: str) -> SourceState:
        found = self.sources.get(level)
        if found is None:
            raise DefinitionError(self.intake.no_level("source", sorted(self.sources)), found=repr(level))
        return found

    def change_hosts(self, change: wire.HostsChange) -> wire.HostsChanged:
        """Answers when a next leader would know it too. Raises DefinitionError, NotFound."""
        source = self.source(change.level)
        listed = source.source.hosts
        check_host_names(change.hosts, "hosts")
        now_ms = self._clock.now_ms()
        lease_ms = listed.registry.lease_ms if listed is not None and listed.registry is not None else None
        if listed is None or (change.action in ("register", "renew") and lease_ms is None):
            kind = "none" if listed is None else listed.kind
            raise DefinitionError(
                f"hosts of {change.level} do not register", expected="a host list of registry", found=kind
            )
        with self.lock:
            if lease_ms is not None and change.action in ("register", "renew"):
                if len(source.hosts) + len(set(change.hosts) - set(source.hosts.index)) > HOSTS_MAX:
                    raise DefinitionError("too many hosts", expected=f"at most {HOSTS_MAX}")
                source.hosts.register(change.hosts, now_ms, lease_ms)
            else:
                unknown = [
                    n
                    for n, at in zip(change.hosts, source.hosts.indices(change.hosts), strict=True)
                    if at < 0
                ]
                if unknown:  # all or nothing
                    raise NotFound(f"{len(unknown)} hosts are not in the list", found=", ".join(unknown[:5]))
                for name in change.hosts:
                    if change.action == "drain":
                        source.hosts.drain(name, change.end_ms, now_ms, listed.grace_ms)
                    else:
                        source.hosts.remove(name)
                        source.progress.forget(np.array([source.hosts.index[name]], np.int64))
            source.hosts_changed()
        self._keep_hosts(change.level)
        with self.lock:
            counting = int(source.hosts.kept().size)
            return wire.HostsChanged(
                level=change.level, list_epoch=source.hosts.epoch, counting=counting, lease_ms=lease_ms
            )

    def replace_hosts(self, level: str, names: Sequence[str]) -> None:
        """A list that was fetched."""
        source = self.source(level)
        listed = source.source.hosts
        assert listed is not None, "only sources with a list are fetched for"
        with self.lock:
            source.hosts.replace(names, self._clock.now_ms(), listed.grace_ms)
            source.hosts_changed()
            source.list_problem = None
            source.listed_once = True
        self._keep_hosts(level)

    def _keep_hosts(self, level: str) -> None:
        """One write for all that wait for one."""
        source = self.sources[level]
        with self._writing:
            with self.lock:
                epoch, names = source.hosts.epoch, source.counting_names()
            if self._kept_epochs[level] != epoch:
                self._records.keep_hosts(self.application.name, level, epoch, names)
                self._kept_epochs[level] = epoch

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
        self.approvals = self._records.approve(self.application.name, approval)

    def approved_until_ms(self) -> int | None:
        return max((one.until_ms for one in self.approvals), default=None)

    # -- publishing -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """The leader's duty, about once a second. Raises what persisting raises; then nothing is
        published."""
        now_ms = self._clock.now_ms()
        with self.lock:
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
            self.counters["held"] += marks.held
        for level in self.sources:
            self._keep_hosts(level)
        self._persist(marks)

    def _persist(self, marks: Marks | None) -> None:
        """With `marks` a turn of publishing; without, only of whom a next leader has to hear."""
        with self._writing:
            with self.lock:
                wanted = self._wanted(self.published.marks if marks is None else marks)
            if wanted != self._persisted:
                self._persisted = self._records.publish(self.application.name, wanted)
            if marks is not None:
                self.published = Published(_marks(self._persisted), self._clock.now_ms())

    def _wanted(self, marks: Marks) -> ApplicationState:
        return ApplicationState(
            epoch=self.epoch,
            levels={name: LevelState(one.input_ms, one.output_ms) for name, one in marks.levels.items()},
            global_ms=marks.global_ms,
            generations={name: source.generations() for name, source in self.sources.items()},
            units=self.units.keys(),
        )


def _marks(state: ApplicationState) -> Marks:
    levels = {name: LevelMarks(one.input_ms, one.output_ms) for name, one in state.levels.items()}
    return Marks(levels, state.global_ms)

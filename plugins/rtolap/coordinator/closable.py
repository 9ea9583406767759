"""The windows of a cube that its application approves, and how complete each of them is at that moment."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.errors import NotFound
from rtolap.coordinator.applications.registry import Applications
from rtolap.coordinator.applications.running import RunningApplication
from rtolap.metadata.records import Approval
from rtolap.model.application import Application, CubeWatermark
from rtolap.model.completeness import ClosedBy, Completeness
from rtolap.model.cube import Cube, SegmentPolicy
from rtolap.watermark.missing import Missing, missing

WINDOWS_KEPT = 16  # of a cube; what closes later than that is stated by a later window's bound


class Standing(msgspec.Struct, frozen=True):
    """The state of an application for a cube: the input watermark of its sink, and the approvals by
    people."""

    watermark_ms: int | None
    approvals: tuple[Approval, ...] = ()

    @property
    def approved_until_ms(self) -> int | None:
        return max((approval.until_ms for approval in self.approvals), default=None)


def due_ends(policy: SegmentPolicy, standing: Standing, decided_ms: int | None) -> tuple[int, ...]:
    """Return the ends of windows that may close now and were not decided before: the newest `WINDOWS_KEPT`,
    ascending.

    A window may close when the watermark is at its end plus the allowed lateness, or when a person has
    approved an instant at or beyond its end.
    """
    reached = [] if standing.watermark_ms is None else [standing.watermark_ms - policy.allowed_lateness_ms]
    if standing.approved_until_ms is not None:
        reached.append(standing.approved_until_ms)
    if not reached:
        return ()
    last_ms = max(reached) // policy.window_ms * policy.window_ms
    first_ms = last_ms - (WINDOWS_KEPT - 1) * policy.window_ms
    if decided_ms is not None:
        first_ms = max(first_ms, decided_ms // policy.window_ms * policy.window_ms + policy.window_ms)
    return tuple(range(first_ms, last_ms + 1, policy.window_ms))


def closed_by(policy: SegmentPolicy, standing: Standing, end_ms: int) -> tuple[ClosedBy, str | None]:
    """Return by what a due window may close, and who approved it, if a person did: the first approval of
    it."""
    watermark_ms = standing.watermark_ms
    if watermark_ms is not None and watermark_ms >= end_ms + policy.allowed_lateness_ms:
        return "watermark", None
    covering = [approval for approval in standing.approvals if approval.until_ms >= end_ms]
    if covering:
        return "approval", min(covering, key=lambda approval: approval.at_ms).by
    return "forced", None


class Closable:
    """Requests the standing of applications that this coordinator owns; others are known by their definition
    only."""

    def __init__(self, applications: Applications, clock: Clock) -> None:
        self._applications = applications
        self._clock = clock

    def owned(self, mark: CubeWatermark) -> RunningApplication | None:
        """Return the application of a cube, or None if another coordinator runs it.

        Raises NotFound where the application, or the cube's level in it, does not exist.
        """
        running = self._applications.own.owned(mark.application)
        _require_levels(
            mark, self._applications.definition(mark.application) if running is None else running.application
        )
        return running

    def decided(
        self, cube: Cube, running: RunningApplication, standing: Standing, ends: Sequence[int]
    ) -> tuple[Completeness, ...]:
        """Return each window as it is now. A closing comes later, at positions that lie further, so misses no
        more."""
        mark = cube.watermark
        if mark is None:
            return ()
        windows = []
        for end_ms in ends:
            by, who = closed_by(cube.segment, standing, end_ms)
            share = self._missing(running, mark, end_ms, cube.segment.window_ms)
            windows.append(
                Completeness(
                    application=mark.application,
                    window_end_ms=end_ms,
                    closed_by=by,
                    watermark_ms=standing.watermark_ms,
                    expected_missing_ppm=None if share is None else share.expected_ppm,
                    bound_ppm=None if share is None else share.bound_ppm,
                    approved_by=who,
                )
            )
        return tuple(windows)

    def forced(self, cube: Cube, running: RunningApplication, end_ms: int) -> Completeness:
        """Return what is known now of a window whose closing somebody requests.

        Raises NotFound for a cube that does not close by the application.
        """
        mark = cube.watermark
        if mark is None or mark.application != running.application.name:
            raise NotFound(f"cube {cube.name} does not close by application {running.application.name}")
        (known,) = self.decided(cube, running, standing_of(running, mark), [end_ms])
        return msgspec.structs.replace(known, closed_by="forced", approved_by=None)

    def _missing(
        self, running: RunningApplication, mark: CubeWatermark, end_ms: int, window_ms: int
    ) -> Missing | None:
        """Return None for a source whose hosts are not known by name."""
        source = running.source(mark.source)
        if not source.named:
            return None
        with running.lock:
            return missing(source.snapshot(self._clock.now_ms()), end_ms, window_ms)


def standing_of(running: RunningApplication, mark: CubeWatermark) -> Standing:
    sink_marks = running.published.marks.levels.get(mark.sink)
    return Standing(None if sink_marks is None else sink_marks.input_ms, running.approvals)


def _require_levels(mark: CubeWatermark, application: Application) -> None:
    """Raises NotFound."""
    known = {level.name for level in application.levels}
    absent = [name for name in (mark.source, mark.sink) if name not in known]
    if absent:
        raise NotFound(
            f"application {mark.application} has no level {' and no level '.join(absent)}",
            expected=f"one of {', '.join(sorted(known))}",
        )

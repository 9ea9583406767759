"""The way from a history of watermarks to lines and holders: what a picture or a table shows.

All arrays of one timeline have its length: an entry per sample. Instants are float64 ms since the epoch, NaN
where nothing is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.model.application import LevelRole
from rtolap.protocols.watermark.messages import ApplicationHistory, ApprovalInfo, LevelHistory

Line = NDArray[np.float64]
Samples = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A host, partition or unit in the samples that know it.

    Attributes:
        at: Positions of those samples.
        line_ms: Progress, or time of the oldest work, in each of them.
        holds: It held the watermark in that sample.
        behind_max_ms: Maximum distance from the clock while it held the watermark. None if it never held it.
        from_ms: Begin of the unbroken time around `worst` in which it held the watermark, or of the longest
            such time.
        until_ms: End of that time.
        worst: Sample at which it was furthest behind. None if it never held the watermark.
        weight_ms: Maximum distance of the watermark from the clock while this one held it. Many may hold it
            at once, some of them for days.
    """

    name: str
    at: Samples
    line_ms: Line
    holds: NDArray[np.bool_]
    behind_max_ms: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    worst: int | None = None
    weight_ms: int = 0

    @property
    def held(self) -> int:
        """Return in how many samples it held the watermark."""
        return int(np.count_nonzero(self.holds))


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """A level.

    Attributes:
        hosts: Traces of hosts. Those that held the watermark back come first, by `weight_ms`.
        units: Traces of units, in the same order.
        holding: Number of hosts that held the watermark when it was furthest behind.
    """

    level: str
    role: LevelRole
    input_ms: Line
    output_ms: Line
    hosts: tuple[Trace, ...]
    units: tuple[Trace, ...]
    holding: int

    @property
    def holders(self) -> tuple[Trace, ...]:
        return tuple(trace for trace in (*self.hosts, *self.units) if trace.held)


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    application: str
    at_ms: Line
    global_ms: Line
    panels: tuple[Panel, ...]
    closings: tuple[WindowClosing, ...] = ()
    approvals: tuple[ApprovalInfo, ...] = ()


def timeline(
    history: ApplicationHistory, levels: Collection[str] = (), window_ms: int | None = None
) -> Timeline:
    """Return the timeline of these levels, or of all. Raises DefinitionError for an unknown level, for a
    history whose parts do not fit each other, and what `closings` raises."""
    _check(history)
    for level in levels:
        if level not in history.levels:
            known = ", ".join(history.levels)
            raise DefinitionError(
                "no such level in the history", expected=f"one of {known}", found=repr(level)
            )
    at_ms = np.asarray(history.at_ms, np.float64)
    first, last = (at_ms.min(), at_ms.max()) if at_ms.size else (0.0, 0.0)
    return Timeline(
        application=history.application,
        at_ms=at_ms,
        global_ms=_line(history.global_ms),
        panels=tuple(
            _panel(level, level_history, at_ms)
            for level, level_history in history.levels.items()
            if not levels or level in levels
        ),
        closings=() if window_ms is None else tuple(closings(history, window_ms)),
        approvals=tuple(approval for approval in history.approvals if first <= approval.at_ms <= last),
    )


def _check(history: ApplicationHistory) -> None:
    """Check a history, which may come out of an edited file."""
    samples = len(history.at_ms)
    lengths = {"global_ms": len(history.global_ms)}
    for name, level in history.levels.items():
        for column in ("input_ms", "output_ms", "holding"):
            lengths[f"{column} of {name}"] = len(getattr(level, column))
    for what, length in lengths.items():
        if length != samples:
            raise DefinitionError(
                f"{what} does not fit the history", expected=f"{samples} entries", found=length
            )
    for name, level in history.levels.items():
        traces = [(holder.at, holder.latest_ms) for holder in level.hosts]
        traces += [(holder.at, holder.oldest_work_ms) for holder in level.units]
        for at, line_ms in traces:
            if len(at) != len(line_ms) or not all(0 <= place < samples for place in at):
                raise DefinitionError(
                    f"a host or unit of {name} does not fit the history",
                    expected=f"as many positions as instants, from 0 to {samples - 1}",
                )


def _panel(level: str, level_history: LevelHistory, at_ms: Line) -> Panel:
    input_ms, output_ms = _line(level_history.input_ms), _line(level_history.output_ms)
    hosts = (_trace(trace.host, trace.at, trace.latest_ms, input_ms, at_ms) for trace in level_history.hosts)
    units = (
        _trace(f"{trace.processor}/{trace.key_group}", trace.at, trace.oldest_work_ms, output_ms, at_ms)
        for trace in level_history.units
    )
    return Panel(
        level=level,
        role=level_history.role,
        input_ms=input_ms,
        output_ms=output_ms,
        hosts=tuple(sorted(hosts, key=_rank)),
        units=tuple(sorted(units, key=_rank)),
        holding=level_history.holding[_furthest(input_ms, at_ms)] if level_history.holding else 0,
    )


def _trace(
    name: str, samples: Sequence[int], instants_ms: Sequence[int | None], mark_ms: Line, at_ms: Line
) -> Trace:
    """Return a trace, which holds while the watermark is not beyond it. A host that was never seen holds, and
    an unknown watermark is held by all."""
    at, line_ms = np.asarray(samples, np.int64), _line(instants_ms)
    holds = ~(line_ms > mark_ms[at])
    if not holds.any():
        return Trace(name, at, line_ms, holds)
    seen = at[holds & ~np.isnan(line_ms)]
    worst, behind_max_ms = None, None
    if seen.size:
        behind_ms = at_ms[seen] - line_ms[holds & ~np.isnan(line_ms)]
        last = behind_ms.size - 1 - int(np.argmax(behind_ms[::-1]))
        worst, behind_max_ms = int(seen[last]), int(behind_ms[last])
    spell = _spell(at[holds], worst)
    lag_ms = at_ms - np.where(
        np.isnan(mark_ms), at_ms[0], mark_ms
    )  # unknown: the whole time counts as a wait
    return Trace(
        name=name,
        at=at,
        line_ms=line_ms,
        holds=holds,
        behind_max_ms=behind_max_ms,
        from_ms=int(at_ms[spell[0]]),
        until_ms=int(at_ms[spell[-1]]),
        worst=worst,
        weight_ms=int(lag_ms[at[holds]].max()),
    )


def _spell(held: Samples, worst: int | None) -> Samples:
    """Return the samples around `worst` that follow each other without a gap; the most of them if it is
    None.
    """
    spells = np.split(held, np.flatnonzero(np.diff(held) != 1) + 1)
    if worst is None:
        return max(spells, key=len)
    return next(spell for spell in spells if spell[0] <= worst <= spell[-1])


def _furthest(line_ms: Line, at_ms: Line) -> int:
    """Return the last sample at which it was furthest behind the clock; before everything where it is
    unknown.
    """
    behind_ms = np.where(np.isnan(line_ms), np.inf, at_ms - line_ms)
    return int(behind_ms.size - 1 - np.argmax(behind_ms[::-1]))


def _rank(trace: Trace) -> tuple[bool, int, bool, int, str]:
    return (
        not trace.held,
        -trace.weight_ms,
        trace.behind_max_ms is not None,
        -(trace.behind_max_ms or 0),
        trace.name,
    )


def _line(instants_ms: Sequence[int | None]) -> Line:
    return np.asarray(
        [np.nan if instant_ms is None else instant_ms for instant_ms in instants_ms], np.float64
    )


CLOSINGS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class WindowClosing:
    """The time at which a window could close.

    Attributes:
        by: Person who approved it. None if it needed no approval.
    """

    end_ms: int
    at_ms: int
    by: str | None = None


def closings(history: ApplicationHistory, window_ms: int) -> Iterator[WindowClosing]:
    """Yield windows of that length, from 1970 on, that could close at a sample after the first that knows a
    watermark: by the global one, or by a person's approval, whichever was sooner."""
    known = [
        (at_ms, mark_ms)
        for at_ms, mark_ms in zip(history.at_ms, history.global_ms, strict=True)
        if mark_ms is not None
    ]
    if not known:
        return
    began_ms, closed_ms = known[0]
    if (known[-1][1] - closed_ms) // window_ms > CLOSINGS_MAX:
        raise DefinitionError(
            "too many windows for one picture",
            expected=f"at most {CLOSINGS_MAX}",
            action="take longer windows",
        )
    events: list[tuple[int, int, str | None]] = [(at_ms, mark_ms, None) for at_ms, mark_ms in known]
    events += [
        (approval.at_ms, approval.until_ms, approval.by)
        for approval in history.approvals
        if approval.at_ms > began_ms
    ]
    for at_ms, until_ms, by in sorted(events, key=lambda event: event[0]):
        for end_ms in range((closed_ms // window_ms + 1) * window_ms, until_ms + 1, window_ms):
            yield WindowClosing(end_ms, at_ms, by)
        closed_ms = max(closed_ms, until_ms)

"""When windows could close, by a history of watermarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rtolap.base.errors import DefinitionError
from rtolap.protocols.watermark.history import ApplicationHistory

CLOSINGS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class WindowClosing:
    """The window that ends at `end_ms` could close at `at_ms`. `by`: who approved it; None if it needed no
    approval."""

    end_ms: int
    at_ms: int
    by: str | None = None


def closings(history: ApplicationHistory, window_ms: int) -> Iterator[WindowClosing]:
    """Windows of that length, from 1970 on, that could close at a sample after the first that knows a
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

"""Rules compute the watermark of a source from a snapshot. They are pure and vectorised, and have one
interface.

Raw decisions may fall when a host joins: who publishes them keeps the largest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Protocol

import numpy as np

from rtolap.watermark.missing import PPM, Totals, allowed_events, missing_of, totals
from rtolap.watermark.snapshot import NEVER, Indices, Instants, Mask, Rates, SourceSnapshot
from rtolap.watermark.solve import Shares, about, largest_mark

WINDOW_MS = 300_000  # of what a rule that knows no window states missing shares


def _nobody() -> Indices:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a rule. Shares are of a window that closes right now.

    Attributes:
        watermark_ms: windows up to it may close; None where nothing is known.
        holding: indices of the hosts that are not beyond the watermark, in no order; empty for rules without
            hosts.
        expected_missing_ppm: the share of events that is expected to be missing.
        bound_ppm: the share that is missing at most.
    """

    watermark_ms: int | None
    holding: Indices = field(default_factory=_nobody)
    expected_missing_ppm: int = 0
    bound_ppm: int = 0


class Rule(Protocol):
    def decide(self, snapshot: SourceSnapshot) -> Decision: ...


@dataclass(frozen=True, slots=True)
class HostPrecise:
    """N hosts count, k = floor(delayed_hosts_ppm · N / 10⁶) of them may be late: the (k+1)-th smallest
    progress.

    Whole numbers throughout: 0.9999 · 10 000 in floating point is off by one host.
    """

    delayed_hosts_ppm: int
    window_ms: int = WINDOW_MS

    def decide(self, snapshot: SourceSnapshot) -> Decision:
        counting, latest_ms, rates, errors = counting_columns(snapshot)
        if not latest_ms.size:
            return Decision(None)
        allowed = self.delayed_hosts_ppm * latest_ms.size // PPM
        part = latest_ms[latest_ms <= about(latest_ms, 4 * (allowed + 16))]
        if part.size <= allowed:
            part = latest_ms
        mark = int(np.partition(part, allowed)[allowed])
        return decided(snapshot, counting, mark, self.window_ms, totals(rates, errors))


@dataclass(frozen=True, slots=True)
class Deficit:
    """The largest t such that Σ_h u_h · min(t − L_h, window)⁺ / window ≤ ε, and t ≤ the largest L_h.

    u_h is the upper bound of the host's share of events: rate · (1 + error), over a lower bound of the
    total. ε is `missing_events_ppm` less the chance in the number of events. A host of which nothing is
    known holds the watermark at its own progress.
    """

    missing_events_ppm: int
    window_ms: int

    def decide(self, snapshot: SourceSnapshot) -> Decision:
        counting, latest_ms, rates, errors = counting_columns(snapshot)
        if not latest_ms.size:
            return Decision(None)
        total = totals(rates, errors)
        if total.least <= 0:
            return decided(snapshot, counting, int(latest_ms.min()), self.window_ms, total)
        most_ms, upper = int(latest_ms.max()), total.most
        if not isfinite(upper):
            known = np.isfinite(errors)
            most_ms = int(latest_ms[~known].min())
            latest_ms, rates, errors = latest_ms[known], rates[known], errors[known]
            upper = totals(rates, errors).most
        events = total.least * self.window_ms
        allowed = allowed_events(events * self.missing_events_ppm / PPM, snapshot.dispersion) / events
        shares = Shares(rates, errors, total.least, upper / total.least)
        mark = largest_mark(latest_ms, shares, allowed, self.window_ms, most_ms)
        return decided(snapshot, counting, mark, self.window_ms, total)


def counting_columns(snapshot: SourceSnapshot) -> tuple[Mask | None, Instants, Rates, Rates]:
    """Return (who counts, None if everybody does; progress, rates and errors of those), without a copy if it
    may."""
    counting = snapshot.counting
    columns = snapshot.latest_ms, snapshot.events_per_ms, snapshot.relative_error
    if counting.all():
        return None, *columns
    return counting, columns[0][counting], columns[1][counting], columns[2][counting]


def decided(
    snapshot: SourceSnapshot, counting: Mask | None, mark: int, window_ms: int, total: Totals
) -> Decision:
    """Return the decision for a watermark: who holds it, and what may be missing of a window that closes at
    it. `counting`: None if everybody does.
    """
    reached_not = snapshot.latest_ms <= mark
    holding = (reached_not if counting is None else reached_not & counting).nonzero()[0]
    if mark == NEVER:
        return Decision(None, holding)
    share = missing_of(snapshot, holding, mark, window_ms, total)
    return Decision(mark, holding, share.expected_ppm, share.bound_ppm)

"""The largest instant up to which no more than an allowed share of a window's events is missing.

F(t) = Σ share_h · min(t − L_h, window)⁺ grows piecewise linearly with t. Shares are rounded up to whole
multiples of 2⁻ᵏ and F is a whole number, so the answer is exact and depends on no order of summation.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from rtolap.watermark.snapshot import NEVER, Indices, Instants, Rates

BEYOND = 2**63 - 1  # every instant
_SAMPLE = 32
_SAMPLE_MIN = 64 * _SAMPLE  # fewer hosts are looked at as a whole
_SORTED_MAX = 768  # so many hosts are sorted in less time than it takes to step
_STEPS_MAX = 8


def scale_bits(window_ms: int, shares_sum: float) -> int:
    """Return the number of fractional bits with which the largest F still fits into 63 bits."""
    return 62 - window_ms.bit_length() - ceil(shares_sum + 1).bit_length()


@dataclass(frozen=True, slots=True)
class Shares:
    """Upper bounds of the hosts' shares: rates · (1 + errors) / total.

    Attributes:
        sum: of all of them, at least 0.
    """

    rates: Rates
    errors: Rates
    total: float
    sum: float

    def whole(self, hosts: Indices, bits: int) -> NDArray[np.int64]:
        """Return the shares of these hosts, rounded up to multiples of 2⁻ᵏ; none is more than everything."""
        shares = 1.0 + self.errors[hosts]
        shares *= self.rates[hosts]
        shares /= self.total * 2.0**-bits  # by a power of two: no digit is lost
        np.minimum(shares, 2.0**bits, out=shares)
        np.ceil(shares, out=shares)
        return shares.astype(np.int64)


def largest_mark(latest_ms: Instants, shares: Shares, allowed: float, window_ms: int, most_ms: int) -> int:
    """Return the largest mark, at most `most_ms`; NEVER if unseen hosts alone miss more than `allowed` (a
    share of a window)."""
    if most_ms == NEVER or not latest_ms.size:
        return most_ms
    bits = scale_bits(window_ms, shares.sum)
    budget = floor(allowed * 2.0**bits * window_ms)
    high = min(_reach(latest_ms, allowed / shares.sum * window_ms, window_ms), most_ms)
    while True:
        late = (latest_ms < high).nonzero()[0]
        mark = _before(latest_ms[late], shares.whole(late, bits), budget, window_ms, high)
        if mark is not None:
            return mark
        if high == most_ms:
            return most_ms
        high = most_ms


def _reach(latest_ms: Instants, allowed_ms: float, window_ms: int) -> int:
    """Return an instant at which F is probably above the budget, and not far: by a sample of the hosts, as if
    all had the same share. It only decides how many of them are looked at. `allowed_ms`: how far hosts may be
    behind, in the mean over all.
    """
    if latest_ms.size < _SAMPLE_MIN:
        return BEYOND
    sample_ms = np.sort(latest_ms[::_SAMPLE])
    last_ms = int(sample_ms[-1])
    if last_ms == NEVER:
        return BEYOND
    from_ms = last_ms - window_ms
    ahead_ms = np.maximum(sample_ms, from_ms) - from_ms
    behind_ms = np.arange(1, ahead_ms.size + 1) * ahead_ms - ahead_ms.cumsum()  # of all before each of them
    position = int(behind_ms.searchsorted(allowed_ms * sample_ms.size))
    position += 2 + position // 4
    return int(sample_ms[position]) if position < sample_ms.size else BEYOND


def about(latest_ms: Instants, position: int) -> int:
    """Return roughly the value at that position in order. The exact position only decides how many hosts are
    looked at."""
    sample = np.sort(latest_ms[::_SAMPLE])
    return int(sample[min(position // _SAMPLE + 1, sample.size - 1)])


def _before(
    latest_ms: Instants, shares: NDArray[np.int64], budget: int, window_ms: int, high: int
) -> int | None:
    """Return the last instant at which F fits into the budget when all hosts are before `high`.

    None means that F(high) fits; NEVER means that no instant does.

    A host that misses a whole window at `high` is first taken to miss it everywhere. What is left of F is not
    smaller than F, so the last instant at which it fits is the answer, or one below it.
    """
    if not latest_ms.size:
        return None
    if int(latest_ms.min()) > high - window_ms:
        mark = _convex(latest_ms, shares, budget, high)
        return None if mark >= high else mark
    rest = latest_ms > high - window_ms
    whole = ~rest
    full_ms, full = latest_ms[whole], shares[whole]
    left = budget - int(full.sum()) * window_ms
    if left >= 0:
        mark = _convex(latest_ms[rest], shares[rest], left, high)
        if mark >= high:
            return None
        if int(full_ms.max()) + window_ms <= mark:
            return mark  # all of it is missing there
    unseen = latest_ms == NEVER
    if unseen.any():
        budget -= int(shares[unseen].sum()) * window_ms
        latest_ms, shares = latest_ms[~unseen], shares[~unseen]
    if budget < 0 or not latest_ms.size:
        return NEVER
    instants = np.concatenate((latest_ms, latest_ms + window_ms))
    return _last_within(instants, np.concatenate((shares, -shares)), budget)


def _convex(latest_ms: Instants, shares: NDArray[np.int64], budget: int, high: int) -> int:
    """Return the last instant at which F fits, at least `high` if it does there.

    No host has reached `high`, none misses a whole window.

    Of many, Newton's steps come down from above and never pass the answer; who is ahead of one is left out.
    A few are enough unless shares differ by orders of magnitude.
    """
    if latest_ms.size >= _SORTED_MAX:
        for _ in range(_STEPS_MAX):
            excess = int(np.dot(shares, high - latest_ms)) - budget
            if excess <= 0:
                return high
            high -= -(-excess // int(shares.sum()))
            shares = shares * (latest_ms < high)
    return min(_last_within(latest_ms, shares, budget), high)  # beyond `high` some are left out


def _last_within(instants: Instants, steps: NDArray[np.int64], budget: int) -> int:
    """Return the last instant at which F is within the budget (0 or more); BEYOND if F always is. F is 0
    before all instants, and its slope changes by a step at each of them, never below 0."""
    if not instants.size:
        return BEYOND
    order = instants.argsort()
    at, slope = instants[order], steps[order].cumsum()
    owed = (slope[:-1] * (at[1:] - at[:-1])).cumsum()  # at each instant but the first
    last = int(owed.searchsorted(budget, "right"))
    if not slope[last]:
        return BEYOND  # it is level from there on, else the next instant were within the budget too
    left = budget - int(owed[last - 1]) if last else budget
    return int(at[last]) + left // int(slope[last])

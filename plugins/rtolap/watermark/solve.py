"""The largest instant up to which the hosts owe no more than an allowed share of a window's events.

F(t) = Σ share_h · min(t − L_h, window)⁺ grows piecewise linearly with t. Shares are rounded up to whole
multiples of 2⁻ᵏ and F is a whole number, so the answer is exact and depends on no order of summation.
"""

from __future__ import annotations

from itertools import count
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from rtolap.watermark.missing import deficit_ms
from rtolap.watermark.snapshot import NEVER, Instants, Rates

_SAMPLE = 16
_FIRST_PART = 8  # of the hosts, an eighth usually has everybody who is late


def scale_bits(window_ms: int, shares_sum: float) -> int:
    """k: so many bits after the point that the largest F still fits into 63 bits."""
    return 62 - window_ms.bit_length() - ceil(shares_sum + 1).bit_length()


def whole_shares(rates: Rates, errors: Rates, total: float, bits: int) -> NDArray[np.int64]:
    """Upper bounds of the hosts' shares, rounded up to multiples of 2⁻ᵏ; nobody has more than everything."""
    return np.ceil(np.minimum(rates * (1.0 + errors) / total, 1.0) * 2.0**bits).astype(np.int64)


def largest_mark(
    latest_ms: Instants,
    rates: Rates,
    errors: Rates,
    total: float,
    allowed: float,
    window_ms: int,
    most_ms: int,
) -> int:
    """At most `most_ms`; NEVER if unseen hosts alone owe more than `allowed` (a share of a window)."""
    if most_ms == NEVER or not latest_ms.size:
        return most_ms
    bits = scale_bits(window_ms, float(rates.sum() + np.dot(rates, errors)) / total)
    budget = floor(allowed * 2.0**bits * window_ms)
    part = max(latest_ms.size // _FIRST_PART, 64)
    while True:
        if part < latest_ms.size:
            high = min(about(latest_ms, part), most_ms)
            late = np.flatnonzero(latest_ms < high)
            known, shares = latest_ms[late], whole_shares(rates[late], errors[late], total, bits)
        else:
            high, known = most_ms, latest_ms
            shares = whole_shares(rates, errors, total, bits)
        if high == NEVER:
            part *= 4
            continue
        if owed(known, shares, high, window_ms) > budget:
            return _between(known, shares, budget, window_ms, high)
        if high == most_ms:
            return most_ms
        part *= 4


def about(latest_ms: Instants, position: int) -> int:
    """Roughly the value at that position in order: which one exactly only decides how many hosts are
    sorted."""
    sample = np.sort(latest_ms[::_SAMPLE])
    return int(sample[min(position // _SAMPLE + 1, sample.size - 1)])


def owed(latest_ms: Instants, shares: NDArray[np.int64], mark_ms: int, window_ms: int) -> int:
    """F(mark), in multiples of 2⁻ᵏ ms."""
    return int(np.dot(shares, deficit_ms(latest_ms, mark_ms, window_ms)))


def _between(latest_ms: Instants, shares: NDArray[np.int64], budget: int, window_ms: int, high: int) -> int:
    """F(high) is above the budget: the last instant before at which it is not. NEVER if there is none.

    Newton's steps, of which a few are enough where F bends upwards; where it bends downwards (a host owes its
    whole window) they may creep, so every fourth step halves the bracket.
    """
    seen = latest_ms != NEVER
    if not seen.all():
        budget -= int(shares[~seen].sum()) * window_ms
        latest_ms, shares = latest_ms[seen], shares[seen]
    if budget < 0 or not latest_ms.size:
        return NEVER
    low = int(latest_ms.min())  # nobody who was seen owes anything there
    guess = high
    for turn in count(1):
        if high - low <= 1:
            break
        owing = deficit_ms(latest_ms, guess, window_ms)
        excess = int(np.dot(shares, owing)) - budget
        slope = int(np.dot(shares, (owing > 0) & (owing < window_ms)))
        if excess > 0:
            high = guess
        else:
            low = guess
        newton = guess + (-excess // slope if slope else 0)
        guess = min(max(newton, low + 1), high - 1) if turn % 4 else (low + high) // 2
    return low

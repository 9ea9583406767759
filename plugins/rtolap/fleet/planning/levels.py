"""Levels of disks: the band around the mean that they are to be brought into, and what that costs.

Each disk's share of used bytes is to lie within a tolerance of the mean of all, weighted by capacity. What
lies above the band must leave, and what is missing below it must come; one move may do both, so the larger of
the two sums is the least that any plan moves. `levels` are two heights of water for just that many bytes:
down to the one, full disks are skimmed; up to the other, idle ones are filled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtolap.fleet.snapshot.model import Floats, Int64s


@dataclass(frozen=True, eq=False)
class Band:
    """Bytes per disk: `low_bytes` up to `high_bytes` is within the tolerance."""

    mean: float
    low_bytes: Int64s
    high_bytes: Int64s

    def outside_bytes(self, used_bytes: Int64s) -> Int64s:
        """Return by disk how far it is outside."""
        above: Int64s = np.maximum(used_bytes - self.high_bytes, 0)
        above += np.maximum(self.low_bytes - used_bytes, 0)
        return above

    def least_bytes(self, used_bytes: Int64s) -> int:
        """Return a lower bound of the bytes to move: fewer bring no placement into the band."""
        above = np.maximum(used_bytes - self.high_bytes, 0).sum()
        below = np.maximum(self.low_bytes - used_bytes, 0).sum()
        return int(max(above, below))


def band_of(used_bytes: Int64s, total_bytes: Int64s, tolerance: float) -> Band:
    # As floats: disks that are as large as a number can say, as those of some network file systems, add up to
    # more.
    mean = float(used_bytes.sum(dtype=np.float64)) / max(float(total_bytes.sum(dtype=np.float64)), 1.0)
    low = np.ceil(np.maximum(mean - tolerance, 0.0) * total_bytes).astype(np.int64)
    high = np.floor(np.minimum(mean + tolerance, 1.0) * total_bytes).astype(np.int64)
    return Band(mean, low, np.maximum(high, low))


def levels(used_bytes: Int64s, total_bytes: Int64s, band: Band) -> tuple[Int64s, Int64s]:
    """Return by disk the bytes down to which it gives, and up to which it gets."""
    amount = band.least_bytes(used_bytes)
    gives = _height(used_bytes, total_bytes, amount, above=True)
    gets = _height(used_bytes, total_bytes, amount, above=False)
    down = np.clip((gives * total_bytes).astype(np.int64), band.low_bytes, band.high_bytes)
    up = np.clip((gets * total_bytes).astype(np.int64), band.low_bytes, band.high_bytes)
    return down, up


def level_above(used_bytes: Int64s, total_bytes: Int64s, amount: int) -> Int64s:
    """Return bytes by disk down to which the fullest disks give `amount` together."""
    height = _height(used_bytes, total_bytes, amount, above=True)
    return np.minimum((height * total_bytes).astype(np.int64), used_bytes)


def _height(used_bytes: Int64s, total_bytes: Int64s, amount: int, *, above: bool) -> float:
    """Return the share at which what stands above it (or is free below it) is `amount`, by the sorted shares:
    the sum is a straight line between two of them.
    """
    shares: Floats = used_bytes / total_bytes
    order = np.argsort(-shares if above else shares, kind="stable")
    capacity = np.cumsum(total_bytes[order], dtype=np.float64)
    filled = np.cumsum(used_bytes[order], dtype=np.float64)
    sign = 1.0 if above else -1.0
    heights = (filled - sign * amount) / capacity
    following = np.append(shares[order][1:], -np.inf if above else np.inf)
    fits = sign * heights >= sign * following
    return float(heights[int(np.argmax(fits))])

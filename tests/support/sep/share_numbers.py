"""The share of a single row."""

from __future__ import annotations

import pyarrow as pa
from rtolap.sep.shares.division import shares_of


def share_of(row: bytes, count: int) -> int:
    return int(shares_of(pa.array([row], pa.binary()), count)[0])

"""A snapshot that contradicts itself is told, whatever table is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rtolap.base.errors import Corrupted
from rtolap.fleet.snapshot.model import (
    UNKNOWN,
    Brokers,
    LogDirs,
    Partitions,
    Replicas,
    Snapshot,
    Topics,
)


def _int32s(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def _snapshot() -> Snapshot:
    """Brokers 1 and 2 with a log directory each; topic t with partitions 0 (two replicas) and 1 (one)."""
    return Snapshot(
        cluster_id="c",
        taken_at_ms=0,
        controller=1,
        brokers=Brokers(_int32s(1, 2), ("a", "b"), _int32s(9092, 9092), ("r1", None), np.zeros(2, np.int8)),
        log_dirs=LogDirs(
            _int32s(0, 1),
            ("/d", "/d"),
            np.array([100, UNKNOWN]),
            np.array([50, UNKNOWN]),
            np.zeros(2, bool),
            np.zeros(2, bool),
        ),
        topics=Topics(("t",), _int32s(1), np.zeros(1, bool)),
        partitions=Partitions(
            _int32s(0, 0),
            _int32s(0, 1),
            _int32s(0, UNKNOWN),
            np.array([0, 2, 3]),
            np.array([1.0, np.nan]),
            np.array([1.0, np.nan]),
        ),
        replicas=Replicas(
            partitions=_int32s(0, 0, 1),
            brokers=_int32s(0, 1, 1),
            log_dirs=_int32s(0, 1, UNKNOWN),
            size_bytes=np.array([5, 5, UNKNOWN]),
            lag=np.zeros(3, np.int64),
            in_sync=np.ones(3, bool),
            states=np.zeros(3, np.int8),
            future_log_dirs=_int32s(UNKNOWN, UNKNOWN, UNKNOWN),
            future_bytes=np.array([UNKNOWN] * 3),
        ),
    )


def test_a_snapshot_that_holds_together_passes() -> None:
    _snapshot().check()


@pytest.mark.parametrize(
    ("table", "changes", "told"),
    [
        ("partitions", {"bytes_in_per_s": np.array([-1.0, np.nan])}, "below nothing"),
        ("partitions", {"bytes_out_per_s": np.array([np.inf, np.nan])}, "without end"),
        ("brokers", {"ids": _int32s(2, 1)}, "order of their ids"),
        ("brokers", {"hosts": ("a",)}, "brokers.hosts has 1 rows instead of 2"),
        ("log_dirs", {"brokers": _int32s(0, 2)}, "log_dirs.brokers names rows"),
        ("partitions", {"numbers": _int32s(0, 0)}, "order of topic and number"),
        ("partitions", {"leaders": _int32s(0, 2)}, "partitions.leaders names rows"),
        ("partitions", {"first_replicas": np.array([0, 1, 2])}, "does not span"),
        ("partitions", {"first_replicas": np.array([0, 1, 3])}, "order of partitions"),
        ("replicas", {"brokers": _int32s(0, UNKNOWN, 1)}, "replicas.brokers names rows"),
        ("replicas", {"log_dirs": _int32s(1, 1, UNKNOWN)}, "another broker's"),
        ("replicas", {"future_log_dirs": _int32s(1, UNKNOWN, UNKNOWN)}, "another broker's"),
    ],
)
def test_a_contradiction_is_named(table: str, changes: dict[str, object], told: str) -> None:
    snapshot = _snapshot()
    damaged = replace(snapshot, **{table: replace(getattr(snapshot, table), **changes)})
    with pytest.raises(Corrupted, match=told):
        damaged.check()

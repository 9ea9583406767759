"""A snapshot that contradicts itself is told, whatever table is wrong."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rtolap.base.errors import Corrupted
from rtolap.fleet.snapshot.file import save
from rtolap.fleet.snapshot.model import (
    UNKNOWN,
    Brokers,
    FleetSnapshot,
    LogDirs,
    Partitions,
    Quota,
    Replicas,
    Topics,
)

from tests.support.fleet.random_fleets import random_fleet
from tests.support.seeds import so_many


def _int32s(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def _snapshot() -> FleetSnapshot:
    """Brokers 1 and 2 with a log directory each; topic t with partitions 0 (two replicas) and 1 (one)."""
    return FleetSnapshot(
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
        ("brokers", {"ids": _int32s(-2, 1)}, "brokers.ids has -2"),
        ("brokers", {"ports": _int32s(-2, 1)}, "brokers.ports has -2"),
        ("brokers", {"ports": _int32s(70_000, 1)}, "a port above 65535"),
        ("brokers", {"states": np.array([0, 7], np.int8)}, r"brokers.states has \[7\]"),
        ("log_dirs", {"usable_bytes": np.array([101, UNKNOWN])}, "1:/d: more bytes are usable"),
        ("log_dirs", {"total_bytes": np.array([-5, UNKNOWN])}, "log_dirs.total_bytes has -5"),
        ("log_dirs", {"usable_bytes": np.array([-5, UNKNOWN])}, "log_dirs.usable_bytes has -5"),
        ("log_dirs", {"brokers": _int32s(1, 0)}, "order of broker and path"),
        ("log_dirs", {"brokers": _int32s(0, 0)}, "one stands twice"),
        ("log_dirs", {"paths": ("", "/d")}, "a log directory has no path"),
        ("topics", {"names": ("",)}, "a topic has no name"),
        ("topics", {"min_in_sync": _int32s(-2)}, "topics.min_in_sync has -2"),
        ("partitions", {"numbers": _int32s(-1, 1)}, "partitions.numbers has -1"),
        ("partitions", {"leaders": _int32s(0, 0)}, "t-1 is led by a broker that has no replica"),
        ("replicas", {"size_bytes": np.array([-7, 5, 5])}, "replicas.size_bytes has -7"),
        ("replicas", {"lag": np.array([-7, 5, 5])}, "replicas.lag has -7"),
        ("replicas", {"future_bytes": np.array([-7, 5, 5])}, "replicas.future_bytes has -7"),
        ("replicas", {"states": np.array([0, 0, 3], np.int8)}, r"replicas.states has \[3\]"),
        ("replicas", {"brokers": _int32s(1, 1, 1), "log_dirs": _int32s(1, 1, 1)}, "t-0 is twice on a broker"),
        ("replicas", {"future_log_dirs": _int32s(0, UNKNOWN, UNKNOWN)}, "where it is"),
    ],
)
def test_a_contradiction_is_named(table: str, changes: dict[str, object], told: str) -> None:
    snapshot = _snapshot()
    damaged = replace(snapshot, **{table: replace(getattr(snapshot, table), **changes)})
    with pytest.raises(Corrupted, match=told):
        damaged.check()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"taken_at_ms": -1}, "taken at -1 ms"),
        ({"quotas": (Quota((("user", "u"),), "producer_byte_rate", -1.0),)}, "producer_byte_rate"),
        ({"quotas": (Quota((("user", "u"),), "producer_byte_rate", math.nan),)}, "nan"),
    ],
)
def test_a_value_that_no_fleet_has_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(Corrupted, match=told):
        replace(_snapshot(), **changes).check()


@pytest.mark.seeded
def test_a_number_below_nothing_anywhere_in_a_random_fleet_is_refused_before_it_is_written(
    tmp_path: Path,
) -> None:
    columns = {
        "brokers": ("ids", "ports"),
        "log_dirs": ("total_bytes", "usable_bytes"),
        "topics": ("min_in_sync",),
        "partitions": ("numbers",),
        "replicas": ("size_bytes", "lag", "future_bytes"),
    }
    for seed in range(so_many(10)):
        fleet, source = random_fleet(seed), random.Random(seed)
        for table, names in columns.items():
            for name in names:
                column = getattr(getattr(fleet, table), name).copy()
                column[source.randrange(len(column))] = -source.randrange(2, 1000)
                spoilt = replace(fleet, **{table: replace(getattr(fleet, table), **{name: column})})
                with pytest.raises(Corrupted):
                    save(spoilt, tmp_path / "fleet")
    assert not (tmp_path / "fleet").exists()

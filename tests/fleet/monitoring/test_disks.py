"""Shares of log directories: held against a plain count, replica by replica."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from rtolap.fleet.monitoring.causes import log_dir_shares
from rtolap.fleet.snapshot.model import UNKNOWN, FleetSnapshot

from tests.support.fleet.random_fleets import random_fleet


def counted(snapshot: FleetSnapshot, *, rates: bool) -> dict[tuple[int, str], float]:
    """The load of each directory, by broker's id and path."""
    loads: dict[tuple[int, str], float] = defaultdict(float)
    replicas, partitions = snapshot.replicas, snapshot.partitions
    for row in range(len(replicas)):
        log_dir, partition = int(replicas.log_dirs[row]), int(replicas.partitions[row])
        if log_dir == UNKNOWN:
            continue
        load = max(float(replicas.size_bytes[row]), 0.0)
        if rates:
            load = float(np.nan_to_num(partitions.bytes_in_per_s[partition]))
            if partitions.leaders[partition] == replicas.brokers[row]:
                load += float(np.nan_to_num(partitions.bytes_out_per_s[partition]))
        broker = int(snapshot.brokers.ids[snapshot.log_dirs.brokers[log_dir]])
        loads[broker, snapshot.log_dirs.paths[log_dir]] += load
    return loads


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rates", [True, False], ids=["rates", "sizes"])
def test_shares_are_those_of_a_plain_count(seed: int, rates: bool) -> None:
    snapshot = random_fleet(seed)
    count = len(snapshot.partitions)
    rng = np.random.default_rng(seed)
    told = [np.where(rng.random(count) < 0.2, np.nan, rng.integers(1, 999, count)) for _ in range(2)]
    if not rates:
        told = [np.full(count, np.nan)] * 2
    partitions = replace(snapshot.partitions, bytes_in_per_s=told[0], bytes_out_per_s=told[1])
    snapshot = replace(snapshot, partitions=partitions)
    loads = counted(snapshot, rates=rates)
    found = log_dir_shares(snapshot)
    assert sorted(found) == snapshot.brokers.ids.tolist()
    for broker, shares in found.items():
        whole = sum(loads[broker, share.path] for share in shares)
        order = [(not share.offline, -share.share) for share in shares]
        assert order == sorted(order)
        for share in shares:
            assert share.broker == broker
            if share.measure == ("bytes written and read" if rates else "bytes stored") and whole:
                assert share.share == pytest.approx(loads[broker, share.path] / whole)
        assert sum(share.share for share in shares) == pytest.approx(1.0 if shares and whole else 0.0)


def test_a_directory_that_is_offline_comes_first_whatever_its_share() -> None:
    snapshot = random_fleet(3)
    dirs = snapshot.log_dirs
    broker = int(np.bincount(dirs.brokers).argmax())
    rows = np.flatnonzero(dirs.brokers == broker)
    broker_id = int(snapshot.brokers.ids[broker])
    last = log_dir_shares(snapshot)[broker_id][-1].path
    offline = dirs.offline.copy()
    offline[rows] = [dirs.paths[row] == last for row in rows]
    first = log_dir_shares(replace(snapshot, log_dirs=replace(dirs, offline=offline)))[broker_id][0]
    assert (first.path, first.offline) == (last, True)

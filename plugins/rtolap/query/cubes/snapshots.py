"""Snapshots of a cube, by which statements are answered: what history has, and whom to ask for the rest."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from cachetools import LRUCache

from rtolap.base.ids import CarryingPool
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.query.cancel import Cancellation, wait_within
from rtolap.query.cluster.view import Cluster
from rtolap.query.cubes.planner import plan_history, plan_realtime
from rtolap.query.plan import CubeRead, HistoryPlan, ReplicaSetPlan, TimeRange

PLANS_MAX = 64  # that are remembered: names and versions of segments, a few kilobytes each
LOOKS_MAX = 16  # at ZooKeeper at the same time, as many as statements run by default; more wait


class Snapshot(NamedTuple):
    """The snapshot by which a statement is answered. All of its parts are of the same moment.

    Attributes:
        sets: replica sets that have something of the cube.
        ended: history holds all that was ever read.
    """

    cube_id: str
    history: HistoryPlan
    sets: tuple[ReplicaSetPlan, ...]
    ended: bool


class _Planned(NamedTuple):
    control: CubeControl
    records: Mapping[str, SegmentRecord]
    plan: HistoryPlan


class Snapshots:
    """Takes snapshots. Plans of history are remembered as long as the records that they follow are the same.
    Thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._plans: LRUCache[tuple[str, TimeRange], _Planned] = LRUCache(PLANS_MAX)
        self._lock = threading.Lock()
        self._looks = CarryingPool(LOOKS_MAX, thread_name_prefix="look-segments")

    def take(self, read: CubeRead, cancellation: Cancellation, *, fresh: bool) -> Snapshot:
        """Return a snapshot of the read's cube; `fresh`: with a topology that is read anew."""
        cube_id, control, records = self.identified(read, cancellation)
        topology = self._cluster.topology(fresh=fresh)
        history = self.history_plan(read, control, records)
        return Snapshot(cube_id, history, plan_realtime(read.cube, control, topology), control.ended)

    def identified(
        self, read: CubeRead, cancellation: Cancellation
    ) -> tuple[str, CubeControl, dict[str, SegmentRecord]]:
        """Return the cube's id, control and records of the read's time.

        Pages of history that no statement has asked for yet are read, for as long as the statement has time.
        """
        view, time = self._cluster.view(read.cube), read.time
        if view.known()[1].missing(time.start_ms, time.end_ms):
            look = self._looks.submit(lambda: view.identified(time.start_ms, time.end_ms))
            wait_within((look,), cancellation)
            return look.result()
        return view.identified(time.start_ms, time.end_ms)

    def history_plan(
        self, read: CubeRead, control: CubeControl, records: Mapping[str, SegmentRecord]
    ) -> HistoryPlan:
        """Return the same object as before while the cube's records are: they are looked through once."""
        key = (read.cube, read.time)
        with self._lock:
            known = self._plans.get(key)
        if known is not None and known.control is control and known.records is records:
            return known.plan
        plan = plan_history(read, control, records)
        with self._lock:
            self._plans[key] = _Planned(control, records, plan)
        return plan

    def refresh(self, cube: str, cancellation: Cancellation) -> None:
        """Read ZooKeeper, which may not answer, for no longer than the statement has time left."""
        look = self._looks.submit(lambda: self._cluster.view(cube).refresh())
        wait_within((look,), cancellation)
        look.result()

    def close(self) -> None:
        """End looks, without waiting for one under way."""
        self._looks.shutdown(wait=False, cancel_futures=True)
